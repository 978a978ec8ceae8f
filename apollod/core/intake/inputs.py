"""Inputs: lines were read, paths were looked at, examples were tokenised, and people withdraw or relearn examples."""

from hashlib import blake2b

import msgspec

from apollod.core.intake.events import Origin, Removed, Sampled, SourceMode, Tier
from apollod.core.intake.evidence import Evidence, Learn
from apollod.core.kernel.input import Input
from apollod.core.lessons.wording import Given


class Response(msgspec.Struct, frozen=True, gc=False):
    """An answer that a record teaches."""

    key: str
    """hex; the same for the same answer to the same question, whatever log or format it came in"""
    end: int = 0
    """bytes of the record before the brace that ends its turn; 0: the record is not made of turns"""
    sampled: Sampled = Sampled()
    part: int = 0
    """which part of a long answer it is, from 0; `key` is that of the whole answer"""

    @property
    def keys(self) -> tuple[str, ...]:
        """By which it is known: what was said, and which response of the engine it is, if it is as that was sampled."""
        keys = (self.key, response_key(self.sampled.response)) if self.sampled.answer else (self.key,)
        return tuple(part_key(key, self.part) for key in keys) if self.part else keys


def response_key(response: str) -> str:
    """By which the answer of a response is known, whatever a log made of its text; hex."""
    return blake2b(response.encode(), digest_size=16, person=b"apollod.response").hexdigest()


PARTS_MAX = 16
"""parts of an answer, at most"""


def part_key(key: str, part: int) -> str:
    """By which a part of the answer with this key is known: the first one (0) by the key of the answer itself."""
    return blake2b(f"{key}/{part}".encode(), digest_size=16, person=b"apollod.part").hexdigest() if part else key


class Line(msgspec.Struct, frozen=True):
    """One complete line. A record has `example` (content id), `record` (canonical JSON) and the tier it asks for, if
    any; a bad line has `reason`, its length, hash and the file in which its bytes are kept. One that has neither only
    shows something about answers."""

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
    """all that the record teaches, in order"""
    signature: str = ""
    """of the text that is learned, by which texts that are nearly the same are found; empty: it is too short"""
    topic: str = ""
    """what the text is about, in a word; empty: that does not show"""
    evidence: tuple[Evidence, ...] = ()
    """what it shows about its answers, or about those of earlier lines"""
    instead_of: str = ""
    """see `ExampleAccepted`"""
    unscored: tuple[Evidence, ...] = ()
    """what the person wrote after answers and no cue speaks of, as the evidence that it may be"""
    of_log: bool = False
    """what was said in a session, not a row of a data set"""
    leak: str = ""
    """what of which probe of the quality guard it holds, for people; empty: nothing"""
    lesson: Given | None = None
    """what it teaches, if it is one question with a short answer that was given directly"""
    question: str = ""
    """see `ExampleAccepted`"""


class Batch(msgspec.Struct, frozen=True):
    """Lines of one source, in order, up to `offset` (bytes) and `line`. `tracked` false: no position is recorded
    (lines given over the socket). `tier`: of records that ask for none."""

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
    """what else the format's reader needs to go on, as JSON"""
    counts: dict[str, int] = {}
    """what gave no line: see `SourceConsumed`"""
    unlearned: int = 0
    """answers among it"""
    tracked: bool = True
    tier: Tier = "bulk"
    near_duplicate: float = 0.0
    """similarity to a known text from which one is not learned; 0: not compared"""
    hold: float = 0.0
    """share of examples that wait for a person"""
    judged: str = ""
    """why all of them wait for the judge that wait for no person; empty: they do not"""
    learn: Learn = "all"
    """what evidence decides"""


class Taught(msgspec.Struct, frozen=True):
    """An example whose line is given again: its newest learning, how many there were, and the tier of that."""

    example: str
    times: int
    tier: Tier
    weak: bool = False
    """it was learned weakly"""
    replaced: bool = False
    """a lesson has another answer since"""


class LinesRead(Input, frozen=True):
    """A batch of complete lines from a file or a caller, and what the journal knows of it. `known`: ids in it that it
    holds already; `responses`: the example that learned an answer of it (empty: one of an archive), by the answer's
    key; `signatures`: of examples that one of it may resemble, by their ids; `flagged`: ids of its evidence that is
    recorded already, and of recorded evidence against answers that it teaches; `taught`: what lines of it repeat
    and may teach again, by the ids of the examples."""

    batch: Batch
    known: frozenset[str]
    responses: dict[str, str] = {}
    signatures: dict[str, str] = {}
    flagged: frozenset[str] = frozenset()
    taught: dict[str, Taught] = {}


class Obstruction(msgspec.Struct, frozen=True):
    """Why a path cannot be read now, and what can be done about it. `passing_s`: of what ends by itself, such as a
    lock, how long it has been so (seconds)."""

    reason: str
    hint: str = ""
    passing_s: float | None = None


class PlaceLooked(Input, frozen=True):
    """Unreadable paths of a place of sources. `complete`: the look is over, so that all else could."""

    mode: SourceMode
    place: str
    blocked: dict[str, Obstruction]
    complete: bool = True


class WithdrawRequested(Input, frozen=True):
    """Take these examples out of the queue, as far as they wait."""

    examples: tuple[str, ...]
    by: str


class RelearnRequested(Input, frozen=True):
    """Put these examples (id, tier) back into the queue: their steps were taken back, or they were withdrawn."""

    examples: tuple[tuple[str, Tier], ...]
    by: str


class Encoded(msgspec.Struct, frozen=True):
    """One tokenised example. `cut`: prompt tokens dropped at the left; `digest`: of token ids, mask and columns.
    `refused` is empty when it can be learned, by `objective`. `changes`: see `ExampleEncoded`."""

    example: str
    tokens: int = 0
    targets: int = 0
    cut: int = 0
    digest: str = ""
    refused: str = ""
    objective: str = "sft"
    changes: dict[str, int] = {}


class EncodeDone(Input, frozen=True, tag="encode-done"):
    """Results in the order asked."""

    results: list[Encoded]
