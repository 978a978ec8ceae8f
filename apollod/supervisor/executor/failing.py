"""Classifies failures of questions to a model, as causes of the core."""

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
"""HTTP statuses of an endpoint that rejects this question: too long, or asking for a missing feature"""


REASON_MAX = 2_000  # characters; the error of a bug may quote any text


class Failure(NamedTuple):
    """`retry_after_s`: wait that the endpoint requests."""

    cause: Literal["endpoint", "nonsense", "refused", "cut", "seeds", "check", "teacher"]
    reason: str
    retry_after_s: float = 0.0


async def answered(
    work: Awaitable[AnswerT], failed: Callable[[Failure], FailedT], bug: str, **about: object
) -> AnswerT | FailedT:
    """The answer to a question, or the result of `failed` for its failure. A bug of ours ends the question, not the
    daemon: it is logged as `bug`, with `about`."""
    try:
        return await work
    except Exception as error:
        if not isinstance(error, ApolloError | OSError):
            log.exception(bug, **about)
        return failed(failure_of(error))


def failure_of(error: Exception) -> Failure:
    """Cause and text of an error, without secrets, since it may quote a model or an endpoint. Errors of journal and
    network count as the endpoint's, which is asked again. Errors that are neither ours nor the system's are bugs."""
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
