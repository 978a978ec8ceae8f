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
