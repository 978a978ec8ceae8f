"""The part of `status` about learning hours."""

import msgspec

from apollod.core.schedules import SECOND_NS
from apollod.core.state import State


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Learning hours of examples that are not urgent. Times are seconds since 1970."""

    nightly: str = ""
    """hours of the day; empty: at any time"""
    zone: str = ""
    """empty: that of this machine"""
    open: bool = True
    """such examples are learned now"""
    late: bool = False
    """a missed night is being caught up"""
    opens_at: float | None = None
    closes_at: float | None = None
    """start and end of the present or next hours; `closes_at` while catching up: its end"""
    steps: int = 0
    """steps of this night, or of the last one"""
    dream: str = "any"
    """when dreams begin: at any time, or at night"""


def status(state: State) -> Schedule:
    """The hours of this night or the next; empty without such hours."""
    own, settings = state.schedule, state.daemon.settings
    if settings is None or not settings.schedule.nightly:
        return Schedule()
    opens, closes = (own.planned.opens_ns, own.until_ns or own.planned.closes_ns) if own.planned else (None, None)
    return Schedule(
        nightly=settings.schedule.nightly, zone=settings.schedule.zone, open=own.open, steps=own.steps,
        late=bool(own.until_ns), dream=settings.schedule.dream,
        opens_at=None if opens is None else opens / SECOND_NS, closes_at=None if closes is None else closes / SECOND_NS,
    )  # fmt: skip
