"""POST /feedback and GET /feedback/{id}: parses bodies into requests."""

from typing import Literal

import msgspec

from apollod.errors import RecordRefused
from apollod.wire.messages import FeedbackQuestion, FeedbackRequest

_HINT = 'send {"response_id": ID, "rating": "good"}, or "bad" with a "correction" and a "comment" if you like'


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    response_id: str
    rating: Literal["good", "bad"]
    correction: str | None = None
    comment: str | None = None
    choice: int | None = None


def feedback_of(body: bytes) -> FeedbackRequest:
    """The request in a body. Raises RecordRefused."""
    try:
        given = msgspec.json.decode(body, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordRefused(f"the body is not feedback ({error})", _HINT) from error
    return FeedbackRequest(
        given.response_id, given.rating, given.correction, given.comment or "", given.choice, by="http"
    )


def question_of(response: str, choice: str | None) -> FeedbackQuestion:
    """The query about an answer; `choice` as it stands in the URL. Raises RecordRefused."""
    if choice is not None and not choice.isdecimal():
        raise RecordRefused(f"choice={choice} is not a number", "ask for one of `choices`, the first is 0")
    return FeedbackQuestion(response, int(choice) if choice else None)
