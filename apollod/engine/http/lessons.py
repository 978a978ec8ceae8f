"""POST /lessons: bodies to requests."""

import msgspec

from apollod.errors import RecordRefused
from apollod.wire.messages import TeachRequest

_HINT = 'send {"statement": TEXT}, or {"question": Q, "answer": A}; "replaces": ID, too, if it corrects a lesson'


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    statement: str = ""
    question: str = ""
    answer: str = ""
    replaces: str = ""


def taught_of(body: bytes) -> TeachRequest:
    """The request in a body. Raises RecordRefused."""
    try:
        given = msgspec.json.decode(body, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordRefused(f"the body is no lesson ({error})", _HINT) from error
    return TeachRequest(given.statement, given.question, given.answer, given.replaces, by="http")
