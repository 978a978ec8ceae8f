"""State: the present or next night, and the time missed of the last one."""

import msgspec

from apollod.core.schedule.events import NightPlanned


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
