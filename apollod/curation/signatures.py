"""Topic of a text in one word, for a queue, and its signature, for the search for repeats.

The topic is the most frequent word, weighted by its length, common words of English and of code excluded. Cheap, the
same on every machine, and readable, but without understanding: two texts about one thing may have two topics, and a
text in another language than English may get one of its common words. Then the queue's shares are kept all the same,
only less evenly. Only the first CHARACTERS of the learned text are read.
"""

import re
from array import array
from base64 import b64encode
from collections import Counter
from zlib import crc32

from apollod.core.facts.intake.repeats import BINS, SCHEME

CHARACTERS = 512
_WORDS = re.compile(r"[^\W\d_]{4,40}")
_COMMON = frozenset(
    """
    about above after again against also although always among another answer anything around because become been before
    being below better between both call called case cannot change changed check class code come command contains
    content correct could create current data default def does doing done down each either else empty error even ever
    every everything example false file files find first following follows found from function further general give
    given goes going good have having here however https import include including instead into itself just keep kind
    know language large last least less like line lines list little long look made make makes many maybe mean means
    might more most much must name need needs never next none nothing null number object often once only option other
    output over part path perhaps place please possible print problem put question quite rather read redacted result
    return returns right run running same says second seem self several shall should show since single small some
    something start state step still string such sure take takes tell test text than thank thanks that their them then
    there therefore these they thing things think this those though three through time together true type under unless
    until upon used user uses using value values very want wants well were what whatever when where whether which while
    will with within without word words work works would write written wrong your yours yourself
    """.split()
)


def topic(text: str) -> str:
    """The topic of a text, in lower case; may be empty."""
    counts = Counter(_WORDS.findall(text[:CHARACTERS].lower()))
    best, most = "", 0
    for word, count in counts.items():
        weight = count * len(word)
        if weight >= most and word not in _COMMON and (weight > most or word < best):
            best, most = word, weight
    return best


# Signatures of texts: the similarity of two signatures estimates that of their texts.
#
# MinHash with one permutation (Li, Owen and Zhang, "One Permutation Hashing", NeurIPS 2012): each shingle of three
# words has one hash, whose low bits choose a bin; the smallest hash of each bin is kept, and a byte of it (Li and
# König, "b-Bit Minwise Hashing", WWW 2010). An empty bin borrows the value of another one, chosen by a fixed sequence
# (Shrivastava, "Optimal Densification", ICML 2017). In plain Python because the supervisor loads no numpy: 0.25 µs a
# word. core/facts/intake/repeats.py uses the signatures.

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
