"""Effects: ask the judge."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class AskJudge(Effect, frozen=True):
    """Ask about an example, or (`planted`) about a case; answered by `JudgeAnswered` or `JudgeFailed`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("subject", "attempt")
    subject: str
    attempt: int
    planted: bool
    votes: int
    temperature: float
    rubric: str = ""
    """text for the judge besides the stripped instruction"""
