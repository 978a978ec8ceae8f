"""Splits texts into words and sentences for comparisons, and makes their sketches: see
`core/facts/dreams/scenario.py`.
"""

import re
from collections import Counter
from collections.abc import Iterable
from math import sqrt
from struct import pack
from zlib import crc32

from apollod.core.facts.dreams.scenario import DIMENSIONS, HASH_MAX, KEPT, Sketch, Turn

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff"
"""Thai, Lao, Burmese, kana and Han put no spaces between words: a character is a word."""
SENTENCE = re.compile(r"[.!?;:]+(?:\s|$)|[。！？；：]|\n+")
"""end of a sentence"""
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_FUNCTION_WORDS = frozenset(
    "a about after again all also always am an and any are as at be been before being but by can could did do does don "
    "doing either else ever every few for from had has have having he her here hers him his how i if in into is "
    "it its itself just let ll may me might more most must my neither never no nor not now of off on once one only or "
    "other our out over own please re s same shall she should so some such t than that the their them then there these "
    "they this those through to too under until up upon us ve very was we were what when where whether which while who "
    "whom whose why will with without would you your yours yourself".split()
)


def words_of(text: str) -> list[str]:
    """The words of a text in order, without case and punctuation; "don't" is two."""
    return _WORD.findall(text.casefold())


def says_something(word: str) -> bool:
    """True for a content word."""
    return word not in _FUNCTION_WORDS and (len(word) > 2 or not word.isascii())


def shown(sentence: str) -> str:
    """A sentence for a message: quoted, and cut if it is long."""
    text = " ".join(sentence.split())
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


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
