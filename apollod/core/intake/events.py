"""Facts: sources, and the examples of their lines."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.kernel.event import Event
from apollod.core.lessons.wording import Given


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Place in an agent's log that an example comes from; empty for one that was given as a record."""

    session: str = ""
    agent: str = ""
    """the program that wrote the log, by the name of its format"""
    version: str = ""
    """of that program"""
    records: tuple[str, ...] = ()
    """ids of the log's records that are learned"""
    responses: tuple[str, ...] = ()
    """ids of the engine's responses that are learned"""
    model: str = ""
    """who wrote them"""
    first_line: int = 0
    """where what is learned begins; it ends at the example's line"""
    left_out: int = 0
    """messages of the conversation before the answer that the record does not have: too old for what a step takes"""
    shortened: int = 0
    """messages of the record whose middle is left out, with a mark in its place"""


StripLevel = Literal["none", "memory", "system", "all"]
"""What is taken out of conversations before they are learned: see `curation.stripping`."""


class Removed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Text that the model was shown and that is not shown to it while it learns."""

    place: int
    """index of the message in the record in which it stood, or, if it was a message, before which"""
    at: int
    """characters of that message before it, as it is recorded; -1: it was a message of its own"""
    text: str
    why: str
    """memory, reminder, system, scaffolding, marked, pattern, tools"""
    role: str = ""
    """of a message of its own"""


class Sampled(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer as the engine sampled it, token by token; empty: nothing is known of that."""

    response: str = ""
    """its id, with `#N` behind it for another choice than the first"""
    answer: tuple[int, ...] = ()
    """what is learned; empty: the text is, after `prompt`"""
    prompt: tuple[int, ...] = ()
    """what the engine was asked, if it is learned after that"""
    final: int = -1
    """the token that ends the text after `prompt`; -1: that which ends texts of this tokenizer"""


class SourceDiscovered(Event, frozen=True):
    """A file seen for the first time. `source` is its identity: device, inode and a hash of its first bytes.

    Or a session in the database of an agent, with the path `DATABASE#SESSION`: device, inode, format, its id and birth.
    """

    kind: ClassVar[str] = "source.discovered"
    source: str
    path: str
    replaces: str = ""

    def key(self) -> str:
        return self.source


class SourceConsumed(Event, frozen=True):
    """Bytes up to `offset` and lines up to `line` of a source are taken; appended with what they became.

    `tail`: a digest of the last bytes before `offset`, by which a file that was written anew is known; empty where
    nothing is said about them (compressed files, which are taken whole, and events of before it was recorded).
    Of a session in a database, `offset` and `line` are both records.
    `cursor`: JSON in which the format's reader says what else it needs to go on; empty for one that needs nothing.
    `counts`: what gave no example and is no bad line, by `dropped: REASON` and `unknown: TYPE`; `unlearned`: how many
    answers of sessions are among it.
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
"""How a place is read: files dropped into the inbox, files of a watched directory, databases."""


class SourceBlocked(Event, frozen=True):
    """A path that cannot be read now, and what can be done about it: recorded when it is found, and again when the
    reason is another one. Nothing of it is taken; it is tried with every look.

    `mode` and `place`: where it was found.
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


Tier = Literal["direct", "bulk", "dream"]
"""How an example came, which decides its learning rate: given by somebody who waits for it (HTTP, `ctl submit`,
feedback), read from a file or log, imagined."""


class ExampleAccepted(Event, frozen=True):
    """`record` is the canonical record, `example` its content id (hex of BLAKE2b-128)."""

    kind: ClassVar[str] = "example.accepted"
    example: str
    record: msgspec.Raw
    source: str
    line: int
    tier: Tier = "bulk"
    origin: Origin = Origin()
    removed: tuple[Removed, ...] = ()
    """what was stripped from the record"""
    responses: tuple[str, ...] = ()
    """keys of the answers that are learned, by which they are known whatever they come in; none: of before there were
    any"""
    signature: str = ""
    """of the text that is learned, see `core.intake.repeats`; empty: it is too short, or some answers are repeated"""
    sampled: tuple[Sampled, ...] = ()
    """of each answer that is learned, in order, if tokens of any of them are known"""
    repeated: tuple[str, ...] = ()
    """examples that learned some of its answers before; in the record these answers have weight 0"""
    topic: str = ""
    """what it is about, in a word (`curation.topics`); empty: that does not show, or it is of before that was kept"""
    teacher: str = ""
    """digest of the file with the distribution that its answer is learned from (`wire.teacher`); empty: it is learned
    as it is written"""

    instead_of: str = ""
    """key of the answer that the user rejected with the prompt of this one: the pair is a preference"""
    again_of: str = ""
    """the example that taught the same before, weakly or in another tier (`core.intake.again`); empty: none did"""
    lesson: Given | None = None
    """what it teaches once it is approved; None: it is not held, or no lesson can be made of it"""
    question: str = ""
    """what it asks, by which other wordings of the question are known, as `Worded.key`; empty: it is not one short
    question and its answer, or it is a practice, or of before that was kept"""

    def key(self) -> str:
        return self.example


class ExampleLooked(Event, frozen=True):
    """The first look of the lesson that was made of this example is over. `known`: the model answers it already, so
    that the example is not learned; else it is, as without a lesson. `reason`: what the look found."""

    kind: ClassVar[str] = "example.looked"
    example: str
    lesson: str
    known: bool
    reason: str

    def key(self) -> str:
        return self.example


class ExampleDuplicate(Event, frozen=True):
    """A line that teaches nothing new: it is an example again, all its answers were learned with the example `of`
    (which may be in an archive and not named), or its text is nearly that of another one."""

    kind: ClassVar[str] = "example.duplicate"
    example: str
    source: str
    line: int
    of: str = ""
    resembles: str = ""
    similarity: float = 0.0
    """estimated share of shingles (three words) that both texts have in common"""

    def key(self) -> str:
        return self.example


class ExampleEncoded(Event, frozen=True):
    """Token counts, and a digest of token ids and mask that every later run of the example has to match."""

    kind: ClassVar[str] = "example.encoded"
    example: str
    tokens: int
    targets: int
    cut: int
    digest: str
    objective: str = "sft"
    """the loss that learns it, by name"""
    changes: dict[str, int] = {}
    """what was done to the messages before the answer, so that they fit and the chat template takes them, and how
    often: see docs/formats.md"""

    def key(self) -> str:
        return self.example


class ExampleRejected(Event, frozen=True):
    """An accepted example that turned out not to be learnable; its record stays in `example.accepted`."""

    kind: ClassVar[str] = "example.rejected"
    example: str
    reason: str

    def key(self) -> str:
        return self.example


class ExampleWithdrawn(Event, frozen=True):
    """Examples that waited were taken out of the queue, or out of the weights by the rollback before; they are not
    learned unless a person asks for them again."""

    kind: ClassVar[str] = "example.withdrawn"
    examples: tuple[str, ...]
    by: str
    reason: str = ""


class ExampleCarried(Event, frozen=True):
    """Examples that the archive of this journal has accepted and settled: they are known, so that none of them is
    learned again; their records and what became of them are in the archive."""

    kind: ClassVar[str] = "example.carried"
    examples: tuple[str, ...]
    responses: tuple[str, ...] = ()
    """keys of answers that examples of the archive have learned"""
    signals: tuple[str, ...] = ()
    """ids of signals that the archive has"""


class ExampleRequeued(Event, frozen=True):
    """An example whose step was taken back, or that was withdrawn, is to be learned after all."""

    kind: ClassVar[str] = "example.requeued"
    example: str
    tier: Tier
    by: str

    def key(self) -> str:
        return self.example


Polarity = Literal["good", "bad", "correction"]
"""What a signal says of an answer. correction: it was bad, and somebody said what would have been better."""


class SignalFlagged(Event, frozen=True):
    """A log shows something about an answer; appended with what the same lines became. Recorded once for an answer,
    a kind and a polarity, however often its lines come, and whatever becomes of the example."""

    kind: ClassVar[str] = "signal.flagged"
    signal: str
    """its id, by which it is known when it comes again"""
    cue: str = msgspec.field(name="kind")
    """what it is: see docs/formats.md"""
    polarity: Polarity
    strength: float
    """how much it says, from 0 to 1"""
    example: str
    """the one that learns the answer; empty: none does"""
    source: str
    line: int
    """at which it was seen"""
    session: str = ""
    records: tuple[str, ...] = ()
    """ids of the log's records: of the answer first, then of those that show it"""
    quote: str = ""
    """the words that show it"""
    answer: str = ""
    """key of the answer, see `Line.responses`; empty: it can be told from others by its record only"""
    followed: str = ""
    """the whole of what the user wrote next, as far as it is kept; empty: the quote is all of it, or it was not that"""
    also: tuple[str, ...] = ()
    """examples that learn other answers of the turn, where the user took all of it back"""

    def key(self) -> str:
        return self.signal
