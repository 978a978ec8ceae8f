"""POST /lessons: parses bodies into requests."""

from typing import TypeVar

import msgspec

from apollod.core.settings import Check, PatternSettings
from apollod.errors import RecordRefused
from apollod.wire.messages import TeachDocumentRequest, TeachRequest

_HINT = (
    'send {"statement": TEXT}, or {"question": Q, "answer": A}; "replaces": ID, too, if it corrects a lesson; '
    'or {"document": TEXT, "name": "NOTES.md"}; or {"instruction": TEXT}'
)
_T = TypeVar("_T")


class _Body(msgspec.Struct, forbid_unknown_fields=True):
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
    """The request in a body. Raises RecordRefused."""
    fields = _decoded(body, dict[str, msgspec.Raw])
    if "instruction" in fields:
        told = _decoded(body, _Behaviour)
        check = Check(regex=told.check_regex, rubric=told.rubric)
        return TeachRequest(by="http", pattern=PatternSettings(told.name, told.instruction, check=check))
    if "document" in fields:
        one = _decoded(body, _Document)
        pairs = [(pair.question, pair.answer) for pair in one.questions]
        data = one.document.encode("utf-8", "surrogatepass")
        return TeachDocumentRequest(one.name, data, pairs, one.forget_removed, by="http")
    given = _decoded(body, _Body)
    return TeachRequest(given.statement, given.question, given.answer, given.replaces, by="http")


def _decoded(body: bytes, type_: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordRefused(f"the body is not a lesson ({error})", _HINT) from error
