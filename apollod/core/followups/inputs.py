"""What can happen: the served model has answered about follow-ups, or not."""

from apollod.core.followups.events import FollowUpNoted, Known
from apollod.core.kernel.input import Input


class FollowUpDone(Input, frozen=True):
    """`noted`: what was asked about; None where there is no answer. `error`: why not; `retryable`: there may be one
    later."""

    example: str
    noted: FollowUpNoted | None = None
    odds: float = 0.0
    weights_version: int = -1
    seconds: float = 0.0
    error: str = ""
    retryable: bool = False


class CasesDone(Input, frozen=True):
    """The answers about all cases, or why there are none."""

    told: tuple[Known, ...] = ()
    weights_version: int = -1
    seconds: float = 0.0
    error: str = ""
    retryable: bool = False
