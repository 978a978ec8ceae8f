"""Signatures of texts: the similarity of two signatures estimates that of their texts.

MinHash with one permutation (Li, Owen and Zhang, "One Permutation Hashing", NeurIPS 2012): each shingle of three words
has one hash, whose low bits choose a bin; the smallest hash of each bin is kept, and a byte of it (Li and König, "b-Bit
Minwise Hashing", WWW 2010). An empty bin borrows the value of another one, chosen by a fixed sequence (Shrivastava,
"Optimal Densification", ICML 2017). In plain Python because the supervisor loads no numpy: 0.25 µs a word.
core/facts/intake/repeats.py uses the signatures.
"""

from array import array
from base64 import b64encode
from zlib import crc32

from apollod.core.facts.intake.repeats import BINS, SCHEME

WORDS_MIN = 40  # shorter answers may agree in all but the words that matter
_EMPTY = 1 << 32
_SHIFT = 7  # bits of a hash that choose the bin
_LANES = sum(((1 << (32 - _SHIFT)) - 1) << 64 * place for place in range(BINS))


def signature(text: str) -> str:
    """The signature of a text; empty for a short one. Case and white space do not count."""
    words = text.lower().encode().split()
    if len(words) < WORDS_MIN:
        return ""
    least = [_EMPTY] * BINS
    for hash_ in map(crc32, map(b" ".join, zip(words, words[1:], words[2:], strict=False))):
        place = hash_ & (BINS - 1)
        if hash_ < least[place]:
            least[place] = hash_
    filled = least.copy()
    for place in [place for place, one in enumerate(least) if one == _EMPTY]:
        filled[place] = _filler(least, place)
    # (one >> _SHIFT) * 0x9E3779B1 >> 24 & 0xFF of each, in lanes of 64 bits of one integer
    lanes = int.from_bytes(array("Q", filled).tobytes(), "little") >> _SHIFT & _LANES
    return SCHEME + b64encode((lanes * 0x9E3779B1).to_bytes(8 * BINS + 8, "little")[3 : 8 * BINS : 8]).decode()


def _filler(least: list[int], place: int) -> int:
    """The value that an empty bin borrows: from the same bins in the same order in every text."""
    at, step = place, 2 * place + 37
    while (one := least[at]) == _EMPTY:
        at = (at * 5 + step) % BINS  # for a fixed `place` it goes through all bins
    return one
