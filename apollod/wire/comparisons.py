"""Records of comparisons: a group of rollouts with their scores (rollouts.py), a pair of answers to one conversation,
one of which is better, or one answer that was rated.

Pairs and rated answers have a reference, which holds the model near what it was: the log-probabilities of the learned
tokens under the weights of the time when the example was tokenised. The trainer computes them then, once, since those
of the step's own weights would differ from themselves by 0 and hold nothing. They are a file beside the journal, f32,
little-endian, one for each learned token, of a pair first those of the better answer; `example.encoded` names it. A
group whose terms have `kl` has one, too, under the weights before the first step.
"""

from __future__ import annotations

from array import array
from typing import Annotated, Any, TypeGuard

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from apollod.core.events import Sampled
from apollod.errors import RecordRefused
from apollod.wire.records import (
    CompletionRecord,
    Message,
    MessagesRecord,
    Readable,
    TextRecord,
    TokensRecord,
    TypedRecord,
    decode_record,
    with_sampled,
)
from apollod.wire.rollouts import Group, Rollout, Terms, first_missing, read_group
from apollod.wire.teacher import GivenBlob
from apollod.wire.updates import as_words, decode_update, is_update

Beta = Annotated[float, Meta(gt=0.0)]


class PairTerms(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a pair is learned. `smoothing`: chance that the pair is the wrong way round; `robust`: that is corrected for,
    else it is hedged against; `sft`: weight of the better answer's own loss."""

    beta: Beta = 0.1
    smoothing: Annotated[float, Meta(ge=0.0, lt=0.5)] = 0.0
    robust: bool = False
    sft: Annotated[float, Meta(ge=0.0)] = 0.0


class RatedTerms(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a rated answer is learned. `weight`: of answers of this rating."""

    beta: Beta = 0.1
    weight: Annotated[float, Meta(gt=0.0)] = 1.0


class GroupForm(msgspec.Struct, frozen=True):
    """A group of rollouts for people, and how it is learned. `rollouts`: digest of the file; `prompt`: the conversation
    that was answered; `answers`, `scores`: text and score of each answer, in the order of the file."""

    environment: str
    prompt: list[Message]
    answers: list[str]
    objective: str
    rollouts: str
    scores: list[float]
    terms: Terms = Terms()


class PairForm(msgspec.Struct, frozen=True):
    """Two answers to one conversation: canonical records that differ in their last turn, or in their completion."""

    better: msgspec.Raw
    worse: msgspec.Raw
    terms: PairTerms = PairTerms()


class RatedForm(msgspec.Struct, frozen=True):
    """A canonical record whose last turn, or completion, was found good or not."""

    answer: msgspec.Raw
    good: bool
    terms: RatedTerms = RatedTerms()


class GroupRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group of rollouts; the targets are the tokens that the model sampled. For the trainer: `blob`, the file;
    `reference`, that of the reference."""

    group: GroupForm
    blob: GivenBlob | None = None
    reference: GivenBlob | None = None

    def read(self) -> Group:
        """The rollouts. Raises RecordRefused for a file that is missing, or not the one that the record names, and for
        other scores than those in the record."""
        group = read_group(_given(self.blob, self.group.rollouts).checked("its group of rollouts"))
        if [one.score for one in group.rollouts] != self.group.scores:
            raise RecordRefused("the scores of its rollouts are not those of the record", "leave the group out")
        return group if self.reference is None else _with_references(group, self.reference)

    def bare(self) -> GroupRecord:
        """The same without `kl`, which needs a reference."""
        return replace(self, group=replace(self.group, terms=replace(self.group.terms, kl=0.0)))


class PairRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A preference; the targets are both answers. `sampled`: tokens of the better and the worse answer, if known.
    `reference`: its file, for the trainer."""

    pair: PairForm
    sampled: list[Sampled] = []
    reference: GivenBlob | None = None

    def answers(self) -> tuple[TypedRecord, TypedRecord]:
        """The better answer and the worse one. Raises RecordRefused."""
        better, worse = self.sampled or (None, None)
        return _answer(self.pair.better, better), _answer(self.pair.worse, worse)


class RatedRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rated answer. `sampled`: its tokens, if known. `reference`: its file, for the trainer."""

    rated: RatedForm
    sampled: list[Sampled] = []
    reference: GivenBlob | None = None

    def answer(self) -> TypedRecord:
        """The rated answer. Raises RecordRefused."""
        return _answer(self.rated.answer, *self.sampled)


def _answer(record: msgspec.Raw, sampled: Sampled | None = None) -> TypedRecord:
    known = [sampled] if sampled is not None and (sampled.answer or sampled.prompt) else []
    return decode_record(with_sampled(bytes(record), known))


Compared = GroupRecord | PairRecord | RatedRecord
LearnedRecord = TypedRecord | Compared
"""All that a step can learn"""

COMPARED = {"group": GroupRecord, "pair": PairRecord, "rated": RatedRecord}
"""The records of comparisons by their key"""
# As in records.py, the first key tells the shape.
_COMPARED: dict[bytes, msgspec.json.Decoder[Any]] = {
    b'{"%b"' % key.encode(): msgspec.json.Decoder(shape) for key, shape in COMPARED.items()
}


def decode_learned(canonical: bytes) -> LearnedRecord:
    """As `decode_record`, and what is learned by comparing answers, too."""
    decoder = _COMPARED.get(canonical[: canonical.find(b":")])
    if decoder is None:
        return decode_record(canonical)
    try:
        record: LearnedRecord = decoder.decode(canonical)
    except msgspec.MsgspecError as error:
        raise RecordRefused(f"the bytes are no canonical record: {error}", "give what `compared_json` made") from error
    return record


def as_text(canonical: bytes) -> Readable:
    """A record as a conversation, for readers of its text: what is compared comes as one turn after another, and token
    ids as numbers. Raises RecordRefused as `decode_learned`."""
    if is_update(canonical):
        return TextRecord(as_words(decode_update(canonical)))
    match decode_learned(canonical):
        case GroupRecord(group=group):
            return MessagesRecord([*group.prompt, *(Message("assistant", answer) for answer in group.answers)])
        case PairRecord() as pair:
            return _both(*pair.answers())
        case RatedRecord() as rated:
            return _readable(rated.answer())
        case record:
            return _readable(record)


def _readable(record: TypedRecord) -> Readable:
    return CompletionRecord(*record.as_words()) if isinstance(record, TokensRecord) else record


def _both(better: TypedRecord, worse: TypedRecord) -> Readable:
    if isinstance(better, MessagesRecord) and isinstance(worse, MessagesRecord):
        return MessagesRecord([*better.messages, worse.messages[-1]], better.tools)
    if isinstance(better, CompletionRecord) and isinstance(worse, CompletionRecord):
        return CompletionRecord(better.prompt, f"{better.completion}\n\n{worse.completion}")
    raise RecordRefused("its answers are of two kinds", "give both as messages, or both as completions")


def compared_json(record: Compared) -> bytes:
    """The canonical record, without its files and tokens."""
    given: dict[str, Any] = {"blob": None} if isinstance(record, GroupRecord) else {"sampled": []}
    return msgspec.json.encode(replace(record, reference=None, **given), order="sorted")


def _with_references(group: Group, given: GivenBlob) -> Group:
    """The rollouts, each with its part of the reference. Raises RecordRefused as `reference_of`."""
    values, at, rollouts = reference_of(given, sum(sum(one.learned) for one in group.rollouts)), 0, list[Rollout]()
    for one in group.rollouts:
        count = sum(one.learned)
        rollouts.append(replace(one, reference=values[at : at + count].tobytes()))
        at += count
    return Group(tuple(rollouts))


def reference_of(blob: GivenBlob | None, count: int) -> array[float]:
    """The log-probabilities of `count` learned tokens in a reference's file. Raises RecordRefused for a file that is
    missing, not the one that the journal names, or not of so many values."""
    data = (blob or GivenBlob("", why="it was not given")).checked("its reference")
    if len(data) != 4 * count:
        raise RecordRefused(
            f"its reference has {len(data) / 4:g} log-probabilities for {count} learned tokens",
            "withdraw the example, and give it again",
        )
    if found := first_missing(data):
        raise RecordRefused(
            f"its reference gave token {found.place} the log-probability {found.value:g}",
            "withdraw the example, and give it again",
        )
    return array("f", data)


def _given(blob: GivenBlob | None, digest: str) -> GivenBlob:
    if blob is None:
        return GivenBlob(digest, why="it was not given")
    return blob if blob.digest == digest else GivenBlob(digest, why=f"{blob.digest} was given")


def needs_reference(record: LearnedRecord) -> TypeGuard[Compared]:
    """True for a comparison whose reference was not computed yet."""
    if isinstance(record, GroupRecord) and not record.group.terms.kl:
        return False
    return isinstance(record, Compared) and record.reference is None


def is_compared(canonical: bytes) -> bool:
    """True for the record of a group, a pair or a rated answer."""
    return canonical[: canonical.find(b":")] in _COMPARED


def may_refer(canonical: bytes) -> bool:
    """True for the record of a comparison that has a reference, once it was tokenised."""
    return is_compared(canonical) and (not canonical.startswith(b'{"group"') or b'"kl":' in canonical)


def with_file(canonical: bytes, given: GivenBlob) -> bytes:
    """A canonical record for the trainer, with the file that it is learned from: a teacher's, or that of a group."""
    return _with(canonical, "blob" if is_compared(canonical) else "teacher", given)


def with_reference(canonical: bytes, given: GivenBlob) -> bytes:
    """The canonical record of a comparison for the trainer, with the file of its reference."""
    return _with(canonical, "reference", given)


def _with(canonical: bytes, name: str, given: GivenBlob) -> bytes:
    return b'%b,"%b":%b}' % (canonical[:-1], name.encode(), msgspec.json.encode(given))
