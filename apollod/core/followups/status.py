"""The part of `status` about follow-ups."""

import msgspec

from apollod.core.activities import Activity, blocked
from apollod.core.followups.calibration import counts_of
from apollod.core.followups.policy import unused
from apollod.core.state import State


class FollowUps(msgspec.Struct, frozen=True, kw_only=True):
    """Scoring of follow-ups by the served model, where no cue decides."""

    score: str = "off"
    """as in [signals]"""
    used: bool = False
    """the model passed calibration on labelled cases"""
    reason: str = ""
    """why it is not used, or not asked now; empty: all is well"""
    right: int = 0
    """right answers among `cases`, in the last calibration"""
    cases: int = 0
    waiting: int = 0
    """follow-ups that it was not asked about yet"""


def status(state: State) -> FollowUps:
    """The last calibration, and the number of waiting follow-ups."""
    own, settings = state.followups, state.daemon.settings
    if settings is None or settings.signals.score == "off":
        return FollowUps()
    found = own.measured
    return FollowUps(
        score=settings.signals.score, used=found is not None and found.used, waiting=len(own.waiting),
        reason=unused(state) or own.error or (blocked(Activity.FOLLOW_UPS, state) if own.waiting else ""),
        right=counts_of(found).right if found is not None else 0, cases=found.cases if found is not None else 0,
    )  # fmt: skip
