"""Effect: tokenise examples. Inputs: lines were read, places were scanned, examples were tokenised, and people withdraw
or relearn examples."""

from collections.abc import Iterable
from hashlib import blake2b
from itertools import islice
from typing import ClassVar

import msgspec

from apollod.core.facts.intake.events import Evidence, Given, Learn, Origin, Removed, Sampled, SourceMode, Tier
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.input import Input

ENCODE_BATCH = 64  # examples tokenised per message; bounds what the trainer does between two steps


class EncodeExamples(Effect, frozen=True):
    """Have the trainer tokenise these examples, whose records are in the journal. `untrained`: fingerprint of the
    weights before the first step."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("examples",)
    examples: tuple[str, ...]
    untrained: str = ""


def encode(examples: Iterable[str], untrained: str) -> list[Effect]:
    """Tokenise the first of `examples`; the rest follows when these are answered."""
    first = tuple(islice(examples, ENCODE_BATCH))
    return [EncodeExamples(first, untrained)] if first else []


class Response(msgspec.Struct, frozen=True, gc=False):
    """An answer that a record teaches."""

    key: str
    """hex; the same for the same answer to the same question in any log or format"""
    end: int = 0
    """offset in the record of the brace that ends its turn; 0: the record has no turns"""
    sampled: Sampled = Sampled()
    part: int = 0
    """index of this part of a long answer, from 0; `key` is that of the whole answer"""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that identify it: that of its text and, if it is learned as sampled, that of the engine's response."""
        keys = (self.key, response_key(self.sampled.response)) if self.sampled.answer else (self.key,)
        return tuple(part_key(key, self.part) for key in keys) if self.part else keys


def response_key(response: str) -> str:
    """Key of an engine's response, independent of the log's text; hex."""
    return blake2b(response.encode(), digest_size=16, person=b"apollod.response").hexdigest()


PARTS_MAX = 16
"""most parts of an answer"""


def part_key(key: str, part: int) -> str:
    """Key of a part of the answer with this key; the first part (0) has the key of the answer itself."""
    return blake2b(f"{key}/{part}".encode(), digest_size=16, person=b"apollod.part").hexdigest() if part else key


class Line(msgspec.Struct, frozen=True):
    """One complete line. A record has `example` (content id), `record` (canonical JSON) and the tier it asks for, if
    any; a bad line has `reason`, its length, hash and the file in which its bytes are kept. A line with neither only
    holds evidence about answers."""

    number: int
    """from 1 within its source; 0: the file as a whole"""
    example: str = ""
    record: bytes = b""
    tier: Tier | None = None
    reason: str = ""
    bytes: int = 0
    sha256: str = ""
    kept: str = ""
    origin: Origin = Origin()
    removed: tuple[Removed, ...] = ()
    responses: tuple[Response, ...] = ()
    """all answers of the record, in order"""
    sampled: tuple[Sampled, ...] = ()
    """of the answers that it compares, in order; empty: those of `responses` are learned"""
    signature: str = ""
    """signature of the learned text, to find nearly equal texts; empty: too short"""
    topic: str = ""
    """topic of the text, in one word; empty: not clear"""
    evidence: tuple[Evidence, ...] = ()
    """evidence about its answers, or about those of earlier lines"""
    instead_of: str = ""
    """see `ExampleAccepted`"""
    unscored: tuple[Evidence, ...] = ()
    """user messages after answers that no cue decides, as the evidence that they may become"""
    of_log: bool = False
    """it comes from a session, not from a data set"""
    decided: bool = False
    """it compares answers or rates one: a person has decided about them, so neither evidence nor a judge does"""
    leak: str = ""
    """which part of which probe of the quality guard it holds, for people; empty: none"""
    lesson: Given | None = None
    """lesson to make of it, if it is one question with a short answer that was given directly"""
    question: str = ""
    """see `ExampleAccepted`"""


class Batch(msgspec.Struct, frozen=True):
    """Lines of one source, in order, up to `offset` (bytes) and `line`. `tracked` false: no position is recorded (lines
    given over the socket). `tier`: of records that name none."""

    source: str
    path: str
    offset: int
    line: int
    lines: tuple[Line, ...]
    new: bool = False
    replaces: str = ""
    """an earlier source in the same file, which was truncated"""
    tail: str = ""
    """digest of the last bytes before `offset`"""
    cursor: str = ""
    """further state of the format's reader, as JSON"""
    counts: dict[str, int] = {}
    """records that gave no line: see `SourceConsumed`"""
    unlearned: int = 0
    """number of answers among these"""
    tracked: bool = True
    tier: Tier = "bulk"
    near_duplicate: float = 0.0
    """similarity to a known text from which a text is not learned; 0: not compared"""
    hold: float = 0.0
    """share of examples that wait for a person"""
    judged: str = ""
    """why all of them that wait for no person wait for the judge; empty: they do not"""
    learn: Learn = "all"
    """answers to learn, by their evidence"""


class Taught(msgspec.Struct, frozen=True):
    """An example whose line is given again: its newest learning, the number of learnings, and the tier of the
    newest."""

    example: str
    times: int
    tier: Tier
    weak: bool = False
    """it was learned weakly"""
    replaced: bool = False
    """a later lesson has another answer"""


class LinesRead(Input, frozen=True):
    """A batch of complete lines from a file or a caller, with related facts from the journal. `known`: ids in it that
    the journal holds already; `responses`: by key of an answer, the example that learned it (empty: one of an archive);
    `signatures`: by id, of examples that its texts may resemble; `flagged`: ids of its evidence that is recorded
    already, and of recorded evidence against its answers; `taught`: by id, examples that its lines repeat and may teach
    again."""

    batch: Batch
    known: frozenset[str]
    responses: dict[str, str] = {}
    signatures: dict[str, str] = {}
    flagged: frozenset[str] = frozenset()
    taught: dict[str, Taught] = {}


class Obstruction(msgspec.Struct, frozen=True):
    """Why a path cannot be read now, and the fix. `passing_s`: for a temporary cause, such as a lock, its duration so
    far (seconds)."""

    reason: str
    hint: str = ""
    passing_s: float | None = None


class PlaceLooked(Input, frozen=True):
    """Unreadable paths of a place of sources. `complete`: the scan is over, so all other paths are readable."""

    mode: SourceMode
    place: str
    blocked: dict[str, Obstruction]
    complete: bool = True


class RelearnRequested(Input, frozen=True):
    """Put these examples (id, tier) back into the queue: their steps were taken back, or they were withdrawn."""

    examples: tuple[tuple[str, Tier], ...]
    by: str


class Encoded(msgspec.Struct, frozen=True):
    """One tokenised example. `cut`: prompt tokens dropped at the left; `digest`: of token ids, mask and columns.
    `refused`: why it cannot be learned; empty: it can, by `objective`. `changes`: see `ExampleEncoded`. `reference`:
    digest of the file of its reference; `file`: its bytes if it was computed now, kept before this is decided on;
    `untrained`: by the weights before the first step."""

    example: str
    tokens: int = 0
    targets: int = 0
    cut: int = 0
    digest: str = ""
    refused: str = ""
    objective: str = "sft"
    changes: dict[str, int] = {}
    file: bytes = b""
    reference: str = ""
    untrained: bool = False


class EncodeDone(Input, frozen=True, tag="encode-done"):
    """Results in the requested order."""

    results: list[Encoded]
