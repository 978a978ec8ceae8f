"""Events: the hours in which the queue is learned."""

from typing import ClassVar

from apollod.core.kernel.event import Event


class NightPlanned(Event, frozen=True):
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
