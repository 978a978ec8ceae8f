"""Learning hours: bulk examples are learned on arrival, or at night. Events, inputs, effects and state."""

from typing import ClassVar

import msgspec

from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input

# --- events ----------------------------------------------------------------------------------------------------------


class NightPlanned(Event, Input, frozen=True):
    """The next hours of `[schedule] nightly`, or the present ones: nanoseconds since 1970. `hours` and `zone`: as
    configured; without hours there is no night."""

    kind: ClassVar[str] = "night.planned"
    opens_ns: int
    closes_ns: int
    hours: str = ""
    zone: str = ""


class NightOpened(Event, frozen=True):
    """Learning of waiting examples begins. `waiting`: their number. `until_ns`: latest end of catching up a missed
    night (nanoseconds since 1970); 0: these are the regular hours."""

    kind: ClassVar[str] = "night.opened"
    waiting: int
    until_ns: int = 0


class NightClosed(Event, frozen=True):
    """Examples that are not learned yet wait for the next night. `steps`: made in this one."""

    kind: ClassVar[str] = "night.closed"
    steps: int
    waiting: int


# --- inputs ----------------------------------------------------------------------------------------------------------


# --- state -----------------------------------------------------------------------------------------------------------


class ScheduleState(msgspec.Struct):
    planned: NightPlanned | None = None
    open: bool = False
    steps: int = 0
    """steps of this night"""
    unsaved: bool = False
    """a step of the night is in no checkpoint yet"""
    last: NightPlanned | None = None
    """the last planned night, also of an earlier life of the daemon"""
    known_ns: int = 0
    """time from which these hours are known"""
    used_ns: int = 0
    """time in them during which the daemon ran and was not paused"""
    since_ns: int = 0
    """start of the used time that is not accounted for yet; 0: none"""
    owed_ns: int = 0
    """time of the last night that was missed and is not caught up yet"""
    chance_ns: int = 0
    """time from which it could be caught up"""
    until_ns: int = 0
    """latest end of catching up; 0: not catching up"""
