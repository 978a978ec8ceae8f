"""Events: sources, and the examples of their lines."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import ClassVar, Literal

import msgspec
from msgspec.structs import replace

from apollod.core.kernel.event import Event, ExampleEvent
from apollod.core.kernel.input import Input


class Given(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The lesson as a person gave it: a statement, or a question and its answer, or all three."""

    statement: str = ""
    question: str = ""
    answer: str = ""
    document: str = ""
    """name of the document it comes from; empty: it was given alone"""
    section: str = ""
    """the part of that document that states it, which is told with it"""

    def says_the_same(self, other: "Given") -> bool:
        """True if both teach the same, regardless of their documents."""
        return replace(self, document="", section="") == replace(other, document="", section="")


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Place in an agent's log that an example comes from; empty for an example given as a record."""

    session: str = ""
    agent: str = ""
    """the program that wrote the log, by the name of its format"""
    version: str = ""
    """version of that program"""
    records: tuple[str, ...] = ()
    """ids of the log's records that are learned"""
    responses: tuple[str, ...] = ()
    """ids of the engine's responses that are learned"""
    model: str = ""
    """the model that wrote them"""
    first_line: int = 0
    """first line of the learned part; it ends at the example's line"""
    left_out: int = 0
    """number of earlier messages that the record leaves out because a step cannot take them"""
    shortened: int = 0
    """number of messages of the record whose middle is left out, with a mark in its place"""


StripLevel = Literal["none", "memory", "system", "all"]
"""Parts removed from conversations before learning: see `curation.stripping`."""


class Removed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Text that the model was shown, and that it does not see while it learns."""

    place: int
    """index of the message in the record that held it or, if it was a message itself, that followed it"""
    at: int
    """number of characters before it in that message as recorded; -1: it was a message itself"""
    text: str
    why: str
    """memory, reminder, system, scaffolding, marked, pattern, tools"""
    role: str = ""
    """role, if it was a message itself"""


class Sampled(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer as the engine sampled it, token by token; empty: not known."""

    response: str = ""
    """id of the response, followed by `#N` for another choice than the first"""
    answer: tuple[int, ...] = ()
    """tokens to learn; empty: the text is learned, after `prompt`"""
    prompt: tuple[int, ...] = ()
    """prompt tokens of the engine, if the answer is learned after them"""
    final: int = -1
    """the token that ends the text after `prompt`; -1: the tokenizer's usual one"""


class SourceDiscovered(Event, frozen=True):
    """A file seen for the first time. `source` is its identity: device, inode and a hash of its first bytes.

    For a session in an agent's database, with the path `DATABASE#SESSION`: device, inode, format, session id and
    creation time.
    """

    kind: ClassVar[str] = "source.discovered"
    source: str
    path: str
    replaces: str = ""

    def key(self) -> str:
        return self.source


class SourceConsumed(Event, frozen=True):
    """Bytes up to `offset` and lines up to `line` of a source are taken; recorded in one transaction with the resulting
    events.

    `tail`: digest of the last bytes before `offset`, to recognise a file that was rewritten; empty for compressed
    files, which are taken whole, and in old events. For a session in a database, `offset` and `line` both count
    records. `cursor`: further state of the format's reader as JSON; empty: none. `counts`: records that gave no example
    without being bad lines, by `dropped: REASON` and `unknown: TYPE`; `unlearned`: number of answers among them.
    """

    kind: ClassVar[str] = "source.consumed"
    source: str
    path: str
    offset: int
    line: int
    accepted: int
    duplicates: int
    rejected: int
    tail: str = ""
    cursor: str = ""
    counts: dict[str, int] = {}
    unlearned: int = 0

    def key(self) -> str:
        return self.source


class SourceQuarantined(Event, frozen=True):
    """A line (or, with `line` 0, a whole file) is not a record. Its bytes are kept in the file `kept`."""

    kind: ClassVar[str] = "source.quarantined"
    source: str
    path: str
    line: int
    reason: str
    bytes: int
    sha256: str
    kept: str

    def key(self) -> str:
        return self.source


SourceMode = Literal["inbox", "tail", "poll"]
"""Way of reading a place: files dropped into the inbox, files of a watched directory, databases."""


class SourceBlocked(Event, frozen=True):
    """A path that cannot be read now, and the fix: recorded when it is found, and again when the reason changes.
    Nothing of it is taken; every scan tries it again.

    `mode` and `place`: the place in which it was found.
    """

    kind: ClassVar[str] = "source.blocked"
    path: str
    reason: str
    hint: str
    mode: SourceMode
    place: str

    def key(self) -> str:
        return self.path


class SourceUnblocked(Event, frozen=True):
    """The path is readable again, gone, or no longer watched."""

    kind: ClassVar[str] = "source.unblocked"
    path: str

    def key(self) -> str:
        return self.path


Tier = Literal["direct", "bulk", "dream", "rollout", "update"]
"""Origin of an example, which decides its learning rate: given directly (HTTP, `ctl submit`, feedback), read from a
file or log, imagined, sampled for an environment; or weights of an outside trainer, which are written as they are."""


class ExampleAccepted(ExampleEvent, frozen=True):
    """`record` is the canonical record, `example` its content id (hex of BLAKE2b-128)."""

    kind: ClassVar[str] = "example.accepted"
    record: msgspec.Raw
    source: str
    line: int
    tier: Tier = "bulk"
    origin: Origin = Origin()
    removed: tuple[Removed, ...] = ()
    """texts stripped from the record"""
    responses: tuple[str, ...] = ()
    """keys of the learned answers, the same in any log or format; empty in old events"""
    signature: str = ""
    """signature of the learned text, see `core.facts.intake.repeats`; empty: it is too short, or some answers are
    repeated"""
    sampled: tuple[Sampled, ...] = ()
    """for each learned answer, in order, if the tokens of any are known"""
    repeated: tuple[str, ...] = ()
    """examples that learned some of its answers before; these answers have weight 0 in the record"""
    topic: str = ""
    """topic, in one word (`curation.signatures`); empty: not clear, or an old event"""
    teacher: str = ""
    """digest of the file that it is learned from: the distribution of a told model (`wire.teacher`), a group of
    rollouts (`wire.rollouts`); empty: the text is learned, or `example.encoded` names a reference"""
    instead_of: str = ""
    """key of the answer that the user rejected with the prompt of this one: the pair is a preference"""
    again_of: str = ""
    """the example that taught the same before, weakly or in another tier (`rules.intake.accepting`); empty: none"""
    lesson: Given | None = None
    """lesson to make of it once it is approved; None: it is not held, or it does not make a lesson"""
    question: str = ""
    """key of its question, which other wordings share, as `Worded.key`; empty: it is not one short question with an
    answer, it is a practice, or an old event"""


class ExampleLooked(ExampleEvent, frozen=True):
    """The first look of the lesson that was made of this example is over. `known`: the model answers it already, and
    the example is not learned; else it is learned as without a lesson. `reason`: result of the look."""

    kind: ClassVar[str] = "example.looked"
    lesson: str
    known: bool
    reason: str


class ExampleDuplicate(ExampleEvent, frozen=True):
    """A line that teaches nothing new: it repeats an example, all its answers were learned with the example `of` (empty
    for one in an archive), or its text nearly equals that of another one."""

    kind: ClassVar[str] = "example.duplicate"
    source: str
    line: int
    of: str = ""
    resembles: str = ""
    similarity: float = 0.0
    """estimated share of shingles (three words) that both texts have in common"""


class ExampleEncoded(ExampleEvent, frozen=True):
    """Token counts, and a digest of token ids and mask that every later run of the example has to match."""

    kind: ClassVar[str] = "example.encoded"
    tokens: int
    targets: int
    cut: int
    digest: str
    objective: str = "sft"
    """name of its loss"""
    changes: dict[str, int] = {}
    """changes to the messages before the answer, to fit length and chat template, with their counts: see
    docs/formats.md"""
    reference: str = ""
    """of a pair or a rated answer, the digest of the file with the log-probabilities of its learned tokens when it was
    tokenised first (`wire.comparisons`); empty: another example"""
    weights: int = -1
    """version of the weights that gave these; -1: no reference, or an earlier event has it"""


class ExampleRejected(ExampleEvent, frozen=True):
    """An accepted example that turned out not to be learnable; its record stays in `example.accepted`."""

    kind: ClassVar[str] = "example.rejected"
    reason: str


class ExampleWithdrawn(Event, Input, frozen=True):
    """Examples that waited were taken out of the queue, or out of the weights by the rollback before; they are learned
    only if a person requests them again."""

    kind: ClassVar[str] = "example.withdrawn"
    examples: tuple[str, ...]
    by: str
    reason: str = ""


class ExampleCarried(Event, frozen=True):
    """Examples that the archive of this journal accepted and settled, so that none of them is learned again; their
    records and outcomes are in the archive."""

    kind: ClassVar[str] = "example.carried"
    examples: tuple[str, ...]
    responses: tuple[str, ...] = ()
    """keys of answers that examples of the archive have learned"""
    signals: tuple[str, ...] = ()
    """ids of signals in the archive"""


class ExampleRequeued(ExampleEvent, frozen=True):
    """An example whose step was taken back, or that was withdrawn, is to be learned after all."""

    kind: ClassVar[str] = "example.requeued"
    tier: Tier
    by: str


Polarity = Literal["good", "bad", "correction"]
"""Judgement of an answer by a signal. correction: it was bad, and the user said what would have been better."""


class SignalFlagged(Event, frozen=True):
    """Evidence in a log about an answer; recorded in one transaction with the other events of its lines. Recorded once
    for an answer, a kind and a polarity, even if its lines are read again, and independent of the example's fate."""

    kind: ClassVar[str] = "signal.flagged"
    signal: str
    """id, by which repeats are recognised"""
    cue: str = msgspec.field(name="kind")
    """kind of evidence: see docs/formats.md"""
    polarity: Polarity
    strength: float
    """strength, from 0 to 1"""
    example: str
    """the example that learns the answer; empty: none"""
    source: str
    line: int
    """line at which it was seen"""
    session: str = ""
    records: tuple[str, ...] = ()
    """ids of the log's records: the answer's first, then those of the evidence"""
    quote: str = ""
    """the decisive words"""
    answer: str = ""
    """key of the answer, see `Line.responses`; empty: only its record identifies it"""
    followed: str = ""
    """the user's whole next message, as far as it is kept; empty: the quote is all of it, or the evidence is not a
    message"""
    also: tuple[str, ...] = ()
    """examples that learn other answers of the turn, if the user took back all of it"""

    def key(self) -> str:
        return self.signal


Learn = Literal["unrejected", "positive", "all"]
"""Answers of a log to learn: those without evidence against them ("unrejected"), of these only those with positive
evidence ("positive"), or all. The others are held."""

COUNTS = 0.4
"""Strength from which evidence decides. Weaker are an interrupt, a failed call, and a check that was run again in the
same turn."""

BY_SCORE = "rejected-by-score"
"""Kind of evidence that the served model gives where no cue decides."""
BY_SCORE_STRENGTH = 0.45

SURELY_AGAINST: tuple[tuple[str, Polarity], ...] = (
    ("rating", "bad"), ("undo", "bad"), ("rewound", "bad"), ("regenerated", "bad"), ("refused", "bad"),
    ("correction", "correction"), (BY_SCORE, "correction"),
)  # fmt: skip
"""Kinds of evidence against an answer that decide at any strength: their ids alone suffice."""


class Evidence(msgspec.Struct, frozen=True):
    """Fields as in `SignalFlagged`."""

    kind: str
    polarity: Polarity
    strength: float
    answer: str = ""
    session: str = ""
    records: tuple[str, ...] = ()
    quote: str = ""
    followed: str = ""
    turn: tuple[str, ...] = ()
    """keys of other answers to the same prompt that it is also about"""

    @property
    def id(self) -> str:
        """Hex of BLAKE2b-128 of kind, polarity and answer: the same in a fork of the session or a rewritten log. An
        answer without a key is identified by session and record."""
        about = (self.answer,) if self.answer else (self.session, *self.records[:1])
        return _id(self.kind, self.polarity, *about)


def rejections(answer: str) -> Iterator[str]:
    """Possible ids of SURELY_AGAINST evidence about an answer, computed from the answer's key."""
    return (_id(kind, polarity, answer) for kind, polarity in SURELY_AGAINST)


def speaks_against(polarity: Polarity, strength: float) -> bool:
    """True if such evidence keeps an answer from being learned."""
    return polarity != "good" and strength >= COUNTS


def speaks_for(polarity: Polarity, strength: float) -> bool:
    """True if such evidence releases an answer where positive evidence is required."""
    return polarity == "good" and strength >= COUNTS


def _id(*parts: str) -> str:
    return blake2b("\x00".join(parts).encode(), digest_size=16).hexdigest()
