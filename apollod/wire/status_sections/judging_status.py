"""The parts of `status` about captured answers and the judge."""

import msgspec


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """Captured answers of the engine."""

    mode: str = ""
    """`off`, `feedback` or `all`; empty if the state was folded from a journal"""
    answers: int = 0
    """number of kept answers"""
    rated: int = 0
    """rated answers, over the life of the journal"""


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
