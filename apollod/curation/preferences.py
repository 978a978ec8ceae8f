"""Makes comparisons of answers: a pair of an answer that was preferred and another one to the same prompt, or a rated
answer, which was found good or bad. `[preferences]` decides whether they are made and how they are learned; otherwise a
good answer is learned like any other, and a bad one is not.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from apollod.curation.conversation import Opinion, is_learned
from apollod.errors import RecordRefused
from apollod.wire.comparisons import PairForm, PairRecord, PairTerms, RatedForm, RatedRecord, RatedTerms, compared_json
from apollod.wire.records import Form, Record, message_form, record_of, record_of_bytes, record_of_forms

RATED_BAD = "rated bad"
"""Reason why an answer is not learned"""
WORSE_MAX = 4
"""most pairs of one answer, with the first of the worse ones"""


class Preferences(msgspec.Struct, frozen=True):
    """How comparisons are learned. `pairs`: by sft the better answer alone; `ratings`: by sft good answers alone."""

    pairs: Literal["sft", "dpo"] = "sft"
    ratings: Literal["sft", "kto"] = "sft"
    pair: PairTerms = PairTerms()
    good: RatedTerms = RatedTerms()
    bad: RatedTerms = RatedTerms()

    def takes_bad(self, opinion: Opinion | None) -> bool:
        """True if an answer that was rated bad is learned: as a bad one."""
        return self.ratings == "kto" and opinion is not None and opinion.rated


def compared(record: Record, opinion: Opinion, preferences: Preferences) -> tuple[Record, ...]:
    """The records to learn because of an opinion on the last answer of a record: comparisons, the record itself, or
    none for a bad answer. Raises RecordRefused for a worse answer that is no answer."""
    last = _last_alone(record)
    if last and opinion.good and opinion.worse and preferences.pairs == "dpo":
        pairs = tuple(_pairs(record, opinion.worse[:WORSE_MAX], preferences.pair))
        if pairs:
            return pairs
    if last and opinion.rated and preferences.ratings == "kto":
        return (rated(record, opinion.good, preferences),)
    return (record,) if opinion.good else ()


def rated(record: Record, good: bool, preferences: Preferences) -> Record:
    """The last answer of a record as a good or a bad one."""
    terms = preferences.good if good else preferences.bad
    made = RatedRecord(RatedForm(msgspec.Raw(record.canonical), good, terms))
    return record_of_bytes("compared", compared_json(made), record.tier)


def pair(better: Record, worse: Record, preferences: Preferences) -> Record:
    """Two answers to the same prompt."""
    return _pair(better, worse, preferences.pair)


def _pair(better: Record, worse: Record, terms: PairTerms) -> Record:
    made = PairRecord(PairForm(msgspec.Raw(better.canonical), msgspec.Raw(worse.canonical), terms))
    return record_of_bytes("compared", compared_json(made), better.tier)


def _last_alone(record: Record) -> bool:
    """True if the last turn is the only learned one, and whole: one answer is compared at a time."""
    if record.kind != "messages":
        return record.kind == "completion"
    *before, last = msgspec.json.decode(record.canonical)["messages"]
    return is_learned(last) and "part" not in last and not any(map(is_learned, before))


def _pairs(record: Record, worse: Sequence[Form | str], terms: PairTerms) -> Iterator[Record]:
    form = msgspec.json.decode(record.canonical)
    seen = {record.canonical}
    for answer in worse:
        if record.kind == "completion":
            if not isinstance(answer, str):
                raise RecordRefused("a worse answer is a message, the better one a text", "give both in the same form")
            other = record_of({"prompt": form["prompt"], "completion": answer})
        else:
            turn = {"role": "assistant", "content": answer} if isinstance(answer, str) else answer
            said = message_form(turn, "the worse answer")
            if said["role"] != "assistant":
                raise RecordRefused(f"a worse answer is of the {said['role']}", "give a turn of the assistant")
            other = record_of_forms([*form["messages"][:-1], said], form.get("tools", ()))
        if other.canonical not in seen:
            seen.add(other.canonical)
            yield _pair(record, other, terms)
