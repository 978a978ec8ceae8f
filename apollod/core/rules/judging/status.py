"""The part of `status` about the judge."""

import msgspec

from apollod.core.activities import Activity, blocked
from apollod.core.facts.judging.agreement import agreement, distrust
from apollod.core.state import State


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """The judge of examples, and whether it is trusted."""

    mode: str = "off"
    model: str = ""
    trusted: bool = False
    """its verdicts decide"""
    reason: str = ""
    """why not, or why it is not asked now; empty: all is well"""
    agreement: float | None = None
    """with planted cases and with people: the mean of the rates on good and on bad; null while not known"""
    low: float | None = None
    high: float | None = None
    """95 % interval"""
    good: int = 0
    """counted cases known to be good; likewise `bad`"""
    bad: int = 0
    waiting: int = 0
    """examples that wait for its verdict"""
    asked: int = 0
    """questions under way"""
    verdicts: int = 0
    """number of verdicts on examples, over the life of the journal"""
    failures: int = 0
    """failures of the endpoint in a row"""


def status(state: State) -> Judge:
    """Mode and record of the judge; without one, only counts."""
    own, settings = state.judging, state.daemon.settings
    if settings is None or settings.judge.mode == "off":
        return Judge(waiting=len(own.waiting), verdicts=own.verdicts)
    doubt, found = distrust(own, settings.judge.trust_min), agreement(own)
    low, high = found.interval if found.figure is not None else (None, None)
    return Judge(
        mode=settings.judge.mode, model=own.judge.model, trusted=not doubt,
        reason=own.error or doubt or blocked(Activity.JUDGING, state),
        agreement=_rounded(found.figure), low=_rounded(low), high=_rounded(high), good=found.of_good, bad=found.of_bad,
        waiting=len(own.waiting), asked=len(own.open), verdicts=own.verdicts, failures=own.retry.failures,
    )  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
