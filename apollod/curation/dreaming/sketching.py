"""Makes the sketch of a text for later comparisons: see `core/dreams/likeness.py`."""

from collections import Counter
from collections.abc import Iterable
from math import sqrt
from struct import pack
from zlib import crc32

from apollod.core.dreams.likeness import DIMENSIONS, HASH_MAX, KEPT
from apollod.core.dreams.scenario import Sketch, Turn
from apollod.curation.dreaming.scenario_words import words_of

GRAM = 4
"""characters of an n-gram"""
_LONG = 8  # letters from which on a longer word weighs no more


def text_of(scenario: Iterable[Turn]) -> str:
    """The text of a scenario to sketch: its turns, one per line."""
    return "\n".join(turn.content for turn in scenario)


def sketch_of(text: str) -> Sketch:
    """The sketch of a text of any length. Case and white space do not count."""
    folded = f" {' '.join(text.casefold().split())} "
    grams = {folded[at : at + GRAM] for at in range(max(1, len(folded) - GRAM + 1))}
    hashes = sorted({_hash(gram) for gram in grams})[:KEPT]
    return Sketch(pack(f"<{len(hashes)}H", *hashes), _vector(words_of(text)))


def _vector(words: Iterable[str]) -> bytes:
    """A hashed word vector. Longer words weigh more, and repetitions of a word less than new words."""
    sums = [0.0] * DIMENSIONS
    for word, times in Counter(words).items():
        hash_ = _hash(word)
        weight = sqrt(times) * min(len(word), _LONG)
        sums[hash_ % DIMENSIONS] += weight if hash_ & 0x8000 else -weight
    most = max(map(abs, sums))
    return pack(f"<{DIMENSIONS}b", *(round(127 * one / most) if most else 0 for one in sums))


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass")) & HASH_MAX
