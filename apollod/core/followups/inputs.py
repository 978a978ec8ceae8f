"""Inputs: the served model answered a question about a follow-up, or failed to."""

from apollod.core.followups.events import FollowUpNoted, Known
from apollod.core.kernel.input import Input


class FollowUpDone(Input, frozen=True):
    """Answer about one follow-up. `noted`: the follow-up; None: no answer, because of `error`; `retryable`: a later
    attempt may succeed."""

    example: str
    noted: FollowUpNoted | None = None
    odds: float = 0.0
    weights_version: int = -1
    seconds: float = 0.0
    error: str = ""
    retryable: bool = False


class CasesDone(Input, frozen=True):
    """Answers about all labelled cases, or the error that prevented them."""

    told: tuple[Known, ...] = ()
    weights_version: int = -1
    seconds: float = 0.0
    error: str = ""
    retryable: bool = False
