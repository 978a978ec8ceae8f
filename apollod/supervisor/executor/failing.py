"""Why a question to a model had no usable answer, in the words of the core."""

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeVar

import structlog

from apollod.curation.redaction import redact_text
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
from apollod.explain import line_of, reason

log = structlog.get_logger()

AnswerT = TypeVar("AnswerT")
FailedT = TypeVar("FailedT")

_OF_THIS_QUESTION = (400, 413, 422)
"""HTTP statuses of an endpoint that answers, but not this question: it is too long, or asks for what it has not"""


REASON_MAX = 2_000  # characters; a bug may quote anything


class Failure(NamedTuple):
    """`retry_after_s`: how long the endpoint asks us to wait."""

    cause: Literal["endpoint", "nonsense", "refused", "cut", "seeds", "check", "teacher"]
    reason: str
    retry_after_s: float = 0.0


async def answered(
    work: Awaitable[AnswerT], failed: Callable[[Failure], FailedT], bug: str, **about: object
) -> AnswerT | FailedT:
    """What comes of a question, or what `failed` makes of its failure. A bug of ours ends the question and not the
    daemon: it is logged as `bug`, with `about`."""
    try:
        return await work
    except Exception as error:
        if not isinstance(error, ApolloError | OSError):
            log.exception(bug, **about)
        return failed(failure_of(error))


def failure_of(error: Exception) -> Failure:
    """What an error says, without secrets: it may quote what a model or an endpoint said. The journal's and the
    network's are the endpoint's: it is asked again. What is neither ours nor the system's is a bug."""
    found = _failure_of(error)
    return found._replace(reason=redact_text(found.reason)[:REASON_MAX])


def _failure_of(error: Exception) -> Failure:
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
        case ApolloError():
            return Failure("endpoint", error.line())
    return Failure("nonsense", line_of(error))
