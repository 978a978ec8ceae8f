"""The next night, or the one that it is."""

import msgspec

from apollod.core.schedule.events import NightPlanned


class ScheduleState(msgspec.Struct):
    planned: NightPlanned | None = None
    open: bool = False
    steps: int = 0
    """of this night"""
    unsaved: bool = False
    """was a step made at night that is in no checkpoint?"""
    last: NightPlanned | None = None
    """what was planned last, in this life of the daemon or an earlier one"""
    known_ns: int = 0
    """since when these hours are known"""
    used_ns: int = 0
    """how long of them the daemon ran and was not paused"""
    since_ns: int = 0
    """from when on time is used that was not accounted for yet; 0: none is"""
    owed_ns: int = 0
    """how much of the last night that passed was missed, and not caught up yet"""
    chance_ns: int = 0
    """since when it could be caught up"""
    until_ns: int = 0
    """when that ends which is being caught up; 0: nothing is"""
