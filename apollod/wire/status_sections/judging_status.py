"""The parts of `status` about captured answers and the judge."""

import msgspec


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """Captured answers of the engine."""

    mode: str = ""
    """`off`, `feedback` or `all`; empty in a state that was folded from a journal"""
    answers: int = 0
    """that are kept"""
    rated: int = 0
    """answers about which somebody said something, over the life of the journal"""


class FollowUps(msgspec.Struct, frozen=True, kw_only=True):
    """Scoring of follow-ups by the served model, where no phrase decides."""

    score: str = "off"
    """as in [signals]"""
    used: bool = False
    """was the model right about the cases whose answer is known?"""
    reason: str = ""
    """why it is not used, or is not asked now; empty when all is well"""
    right: int = 0
    """of `cases`, the last time that it was asked about them"""
    cases: int = 0
    waiting: int = 0
    """follow-ups about which it was not asked yet"""


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """The judge of examples, and whether it is trusted."""

    mode: str = "off"
    model: str = ""
    trusted: bool = False
    """do its verdicts decide?"""
    reason: str = ""
    """why not, or why it is not asked now; empty when all is well"""
    agreement: float | None = None
    """with planted cases and with people: the mean of the rates on good and on bad; null while not known"""
    low: float | None = None
    high: float | None = None
    """95 % interval"""
    good: int = 0
    """known to be good, of those that count; so `bad`"""
    bad: int = 0
    waiting: int = 0
    """examples that wait for its verdict"""
    asked: int = 0
    """questions under way"""
    verdicts: int = 0
    """on examples, over the life of the journal"""
    failures: int = 0
    """in a row, of the endpoint"""
