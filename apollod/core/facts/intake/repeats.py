"""Finds repeats: answers that were learned already, or a text similar to a learned one.

Pure. An answer is identified by its key (`Line.responses`), the same in any log or format. An example all of whose
answers are known is a duplicate; if only some are, these become context, so that no answer is learned twice. A text is
compared by its signature: the share of equal bytes in two signatures estimates the similarity of the texts, and only
texts that share one of the bands are compared (curation/signatures.py makes signatures).
"""

from base64 import b64decode
from collections.abc import Mapping
from hashlib import blake2b
from operator import xor
from struct import Struct

import msgspec

from apollod.core.facts.intake.inputs import PARTS_MAX, Line, Response, part_key

SCHEME = "w3-oph128:"
"""Prefix of every signature: shingles of 3 words, one permutation, 128 bins, a byte of each. Signatures with other
prefixes are never compared; any change of the method needs a new name"""
BINS = 128  # bytes of a signature, in 16 bands of 8: these find 99.99 % of what agrees to 0.9, 95 % at 0.8
_BANDS = Struct("<16q")
_SALTS = tuple(n * 0x1E3779B97F4A7C15 & 0x7FFFFFFFFFFFFFFF for n in range(16))  # bands of different places differ
_BY_CHANCE = 1 / 256  # share of bytes that two unlike texts have in common
_CONTEXT = b',"weight":0'  # the last key of a turn in canonical form


class Repeated(msgspec.Struct, frozen=True):
    """Why a line is not taken: it repeats the example `of` (empty: its own), or resembles another one."""

    of: str = ""
    resembles: str = ""
    similarity: float = 0.0


class Known:
    """Facts of the journal about a batch, and the lines of the batch accepted so far.

    `examples`: ids; `responses`: the example that learned an answer, by the answer's key; `signatures`: by id, of
    examples that may resemble one of the batch.
    """

    def __init__(self, examples: set[str], responses: Mapping[str, str], signatures: Mapping[str, str]) -> None:
        self._examples: set[str] = set()
        self._responses: dict[str, str] = {}
        self._signatures: dict[str, str] = {}
        self._bands: dict[int, list[str]] = {}
        self.tell(examples, responses, signatures)

    def tell(self, examples: set[str], responses: Mapping[str, str], signatures: Mapping[str, str]) -> None:
        """Add facts of the journal."""
        self._examples |= examples
        self._responses.update(responses)
        for example, signature in signatures.items():
            if example not in self._signatures:
                self._signatures[example] = signature
                self._index(example, bands(signature))

    def sift(self, line: Line, alike: float) -> tuple[Line, tuple[str, ...]] | Repeated:
        """The line to accept, with the examples that its other answers repeat, or why it is not accepted. `alike`:
        similarity from which a text counts as known; 0: not compared."""
        if line.example in self._examples:
            return Repeated()
        known = [one for one in line.responses if not self._responses.keys().isdisjoint(one.keys)]
        repeated = dict.fromkeys(self._responses[key] for one in known for key in one.keys if key in self._responses)
        if repeated:
            fresh = [one for one in line.responses if one not in known]
            if not fresh:
                return Repeated(of=next(iter(repeated)))
            line = _without(line, known, fresh)
            if line.example in self._examples:
                return Repeated()
        own = bands(line.signature) if alike and line.signature else ()
        if own and (found := self._nearest(line.signature, own))[1] >= alike:
            return Repeated(resembles=found[0], similarity=round(found[1], 3))
        self._add(line, own)
        return line, tuple(repeated)

    def renew(self, example: str) -> bool:
        """True if an example that teaches another one again is new; it is known from now on."""
        new = example not in self._examples
        self._examples.add(example)
        return new

    def learner(self, line: Line, answer: str) -> str:
        """The example that learns an answer, by its key; "" if none does, or one of an archive. An example older than
        keys is recognised by the line that repeats it."""
        again = line.example in self._examples and any(one.key == answer for one in line.responses)
        return self._responses.get(answer, line.example if again else "") if answer else ""

    def learners(self, line: Line, answer: str) -> list[str]:
        """The same for an answer learned in parts: the example of each part."""
        rest = (self._responses.get(part_key(answer, part), "") for part in range(1, PARTS_MAX)) if answer else ()
        return [one for one in (self.learner(line, answer), *rest) if one]

    def _add(self, line: Line, own: tuple[int, ...]) -> None:
        self._examples.add(line.example)
        for one in line.responses:
            for key in one.keys:
                self._responses.setdefault(key, line.example)
        if own:
            self._signatures[line.example] = line.signature
            self._index(line.example, own)

    def _index(self, example: str, own: tuple[int, ...]) -> None:
        for band in own:
            self._bands.setdefault(band, []).append(example)

    def _nearest(self, signature: str, own: tuple[int, ...]) -> tuple[str, float]:
        """The most similar known text, the first among equals, and its similarity; no name and 0 if there is none."""
        found = dict.fromkeys(example for band in own for example in self._bands.get(band, ()))
        alike = ((example, similarity(signature, self._signatures[example])) for example in found)
        return max(alike, key=lambda one: one[1], default=("", 0.0))


def bands(signature: str) -> tuple[int, ...]:
    """Numbers (64 bits, signed), at least one of which two texts of similarity 0.9 share; none for another scheme."""
    values = _values(signature)
    return tuple(map(xor, _BANDS.unpack(values), _SALTS)) if values else ()


def similarity(one: str, other: str) -> float:
    """Estimated share of shingles that two texts have in common (Jaccard), 0 to 1; its standard error is 0.03 at 0.9
    and 0.045 at 0.5, a third more for texts of fewer than 128 words."""
    first, second = _values(one), _values(other)
    if not first or not second:
        return 0.0
    equal = sum(a == b for a, b in zip(first, second, strict=True)) / BINS
    return max(0.0, (equal - _BY_CHANCE) / (1 - _BY_CHANCE))


def content_id(canonical: bytes) -> str:
    """The id of a record: hex of BLAKE2b-128 of its canonical form."""
    return blake2b(canonical, digest_size=16).hexdigest()


def _values(signature: str) -> bytes:
    return b64decode(signature[len(SCHEME) :]) if signature.startswith(SCHEME) else b""


def _without(line: Line, known: list[Response], fresh: list[Response]) -> Line:
    """The line with known answers as context. Its text changes, so it has no signature."""
    record = line.record
    for one in sorted(known, key=lambda one: one.end, reverse=True):
        record = record[: one.end] + _CONTEXT + record[one.end :]
    return msgspec.structs.replace(
        line, example=content_id(record), record=record, responses=tuple(fresh), signature=""
    )
