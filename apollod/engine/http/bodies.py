"""Parses bodies of POST /train, POST /lessons and POST /feedback into requests to the supervisor, and the URL of
GET /feedback/{id}. What cannot be parsed raises RecordRefused."""

from typing import Literal, TypeVar

import msgspec

from apollod.core.settings import Check, PatternSettings
from apollod.errors import RecordRefused
from apollod.wire.messages import FeedbackQuestion, FeedbackRequest, TeachDocumentRequest, TeachRequest

_LESSON_HINT = (
    'send {"statement": TEXT}, or {"question": Q, "answer": A}; "replaces": ID, too, if it corrects a lesson; '
    'or {"document": TEXT, "name": "NOTES.md"}; or {"instruction": TEXT}'
)
_FEEDBACK_HINT = 'send {"response_id": ID, "rating": "good"}, or "bad" with a "correction" and a "comment" if you like'
_T = TypeVar("_T")


def lines_of(body: bytes) -> list[bytes]:
    """Inbox lines of POST /train: one for each of `examples`, else the body itself is the record."""
    record = _decoded(body, object, "not JSON", 'send {"messages":[...]} or {"examples":[...]}')
    if not isinstance(record, dict):
        raise RecordRefused("the body is not a JSON object", 'send {"messages":[...]} or {"examples":[...]}')
    records = record.get("examples", [record])
    if not isinstance(records, list) or not records:
        raise RecordRefused("`examples` is not a list of records", 'send {"examples":[{"messages":[...]}, ...]}')
    return [msgspec.json.encode(each) for each in records]


class _Lesson(msgspec.Struct, forbid_unknown_fields=True):
    statement: str = ""
    question: str = ""
    answer: str = ""
    replaces: str = ""


class _Pair(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    answer: str


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    document: str
    name: str = "document.md"
    questions: list[_Pair] = []
    forget_removed: bool = False


class _Behaviour(msgspec.Struct, forbid_unknown_fields=True):
    """A behaviour in a request: without commands and files, since a caller must not run anything here."""

    instruction: str
    name: str = ""
    check_regex: str = ""
    rubric: str = ""


def taught_of(body: bytes) -> TeachRequest | TeachDocumentRequest:
    """The request of POST /lessons."""
    fields = _lesson(body, dict[str, msgspec.Raw])
    if "instruction" in fields:
        told = _lesson(body, _Behaviour)
        check = Check(regex=told.check_regex, rubric=told.rubric)
        return TeachRequest(by="http", pattern=PatternSettings(told.name, told.instruction, check=check))
    if "document" in fields:
        one = _lesson(body, _Document)
        pairs = [(pair.question, pair.answer) for pair in one.questions]
        data = one.document.encode("utf-8", "surrogatepass")
        return TeachDocumentRequest(one.name, data, pairs, one.forget_removed, by="http")
    given = _lesson(body, _Lesson)
    return TeachRequest(given.statement, given.question, given.answer, given.replaces, by="http")


def _lesson(body: bytes, type_: type[_T]) -> _T:
    return _decoded(body, type_, "not a lesson", _LESSON_HINT)


class _Feedback(msgspec.Struct, forbid_unknown_fields=True):
    response_id: str
    rating: Literal["good", "bad"]
    correction: str | None = None
    comment: str | None = None
    choice: int | None = None


def feedback_of(body: bytes) -> FeedbackRequest:
    """The request of POST /feedback."""
    given = _decoded(body, _Feedback, "not feedback", _FEEDBACK_HINT)
    return FeedbackRequest(
        given.response_id, given.rating, given.correction, given.comment or "", given.choice, by="http"
    )


def question_of(response: str, choice: str | None) -> FeedbackQuestion:
    """The query about an answer; `choice` as it stands in the URL."""
    if choice is not None and not choice.isdecimal():
        raise RecordRefused(f"choice={choice} is not a number", "ask for one of `choices`, the first is 0")
    return FeedbackQuestion(response, int(choice) if choice else None)


def _decoded(body: bytes, type_: type[_T], what: str, hint: str) -> _T:
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordRefused(f"the body is {what} ({error})", hint) from error
