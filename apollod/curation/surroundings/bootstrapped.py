"""Puts an answer from a log into a surrounding: if nothing preceded its request but the stripped instruction, it is
learned in a shipped surrounding for practice, as a dream is."""

from collections.abc import Sequence

import msgspec

from apollod.core.intake.events import Removed
from apollod.core.surroundings import INSTRUCTING, JOINT, NOTHING, Surrounding, SurroundingKind
from apollod.curation.surroundings.shipped import shipped
from apollod.wire.records import Form, Record, record_of_forms

DIGITS = 8
"""hex digits of a record's id that draw its surrounding: always the same one"""


class Placed(msgspec.Struct, frozen=True):
    """A record in its surrounding, and the texts that were stripped from it."""

    record: Record
    removed: tuple[Removed, ...]


def placed(record: Record, removed: tuple[Removed, ...], kinds: Sequence[SurroundingKind]) -> Placed:
    """Put the record into a surrounding. One with a system message left stays as it is, since that is a surrounding of
    its own; turns of an agent come only before a single request."""
    form = msgspec.json.decode(record.canonical)
    messages: list[Form] = form.get("messages", [])
    if not kinds or not messages or messages[0]["role"] in INSTRUCTING:
        return Placed(record, removed)
    around = _drawn(int(record.id[:DIGITS], 16), kinds, single=sum(one["role"] == "user" for one in messages) == 1)
    if around == NOTHING or form.get("tools"):
        return Placed(record, removed)
    before = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in around.messages]
    whole = record_of_forms([*before, *messages], around.tools)._replace(tier=record.tier)
    return Placed(whole, tuple(_moved(one, around) for one in removed))


def _drawn(number: int, kinds: Sequence[SurroundingKind], single: bool) -> Surrounding:
    ours = [kind for kind in kinds if kind != "own"] or ["none"]
    kind = ours[number % len(ours)]
    if kind != "neutral" and not (kind == "agent" and single):
        return NOTHING
    found = shipped(kind, "practice")
    return found[number // len(ours) % len(found)]


def _moved(one: Removed, around: Surrounding) -> Removed:
    """The removal at its place in the surrounding: a system message moves to the end of the one there."""
    if one.at < 0 and one.role in INSTRUCTING and around.system is not None:
        return msgspec.structs.replace(one, place=0, at=len(around.system), text=JOINT + one.text)
    return msgspec.structs.replace(one, place=one.place + len(around.messages))
