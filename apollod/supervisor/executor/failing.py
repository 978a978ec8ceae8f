"""Why a question to a model had no usable answer, in the words of the core."""

from typing import Literal, NamedTuple

from apollod.errors import (
    ApolloError,
    DreamCheckFailed,
    DreamCut,
    DreamNonsense,
    LlmError,
    LlmRefused,
    RecordRefused,
    ScoreRefused,
    SeedsUnreadable,
    VerdictNonsense,
)
from apollod.explain import reason

_OF_THIS_QUESTION = (400, 413, 422)
"""HTTP statuses of an endpoint that answers, but not this question: it is too long, or asks for what it has not"""


class Failure(NamedTuple):
    """`retry_after_s`: how long the endpoint asks us to wait."""

    cause: Literal["endpoint", "nonsense", "refused", "cut", "seeds", "check", "teacher"]
    reason: str
    retry_after_s: float = 0.0


def failure_of(error: ApolloError | OSError) -> Failure:
    """What an error says; the journal's and the network's are the endpoint's: it is asked again."""
    match error:
        case OSError():
            return Failure("endpoint", reason(error))
        case VerdictNonsense() | DreamNonsense():
            return Failure("nonsense", error.line())
        case LlmRefused():
            cause: Literal["refused", "endpoint"] = "refused" if error.status in _OF_THIS_QUESTION else "endpoint"
            return Failure(cause, error.line(), error.retry_after_s or 0.0)
        case LlmError():
            return Failure("endpoint", error.line())
        case ScoreRefused():
            return Failure("teacher", error.line())
        case RecordRefused():
            return Failure("refused", error.line())
        case DreamCut():
            return Failure("cut", error.line())
        case SeedsUnreadable():
            return Failure("seeds", error.line())
        case DreamCheckFailed():
            return Failure("check", error.line())
    return Failure("endpoint", error.line())
