"""Which of many words stand in a text, when hardly any text has one: asked of every byte of every log.

To search for each of some forty words takes longer than all else that is done with a log. This is Teddy (Wang et al.,
"Hyperscan: A Fast Multi-pattern Regex Matcher for Modern CPUs", NSDI 2019) with Python's integers as registers. Words
are in eight buckets, a bit each. For each of four bytes in a row a table says in which buckets a word may have this
byte there; so four translations of the text, moved onto each other and ANDed, leave a bit wherever a word of a bucket
may begin. Only then its words are looked for. It takes 4 ns a byte, however many words there are.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod

_WIDTH = 4  # bytes of a word that are compared; of a shorter one all
_BUCKETS = 8
_SET_WORDS = 50  # with more of them in eight buckets, most are looked into in vain
_FREQUENT = b" e0n\"tsiaor\\l1:cdp,um-f_h.gy)(b2x'w=kv4#/8}{36[]>5jz79`*\nq+%|<;@!?&^$~"
"""what logs are made of, most frequent first; only how fast it is depends on it"""
_FALL = 0.92  # frequency of each of them to that of the one before
_CAPITALS = 0.05  # of letters
_SHARES = [
    (1 - _FALL) * _FALL ** (_FREQUENT + letter).index(letter) * (_CAPITALS if letter[0] != code else 1)
    for code, letter in ((code, bytes([code]).lower()) for code in range(256))
]
_ANY = frozenset(range(256))
_Window = tuple[frozenset[int], ...]
"""the bytes that may stand at each place"""


class Sieve:
    """Looks for `words`. One with a capital in it must stand so in the text; any other one, in any case."""

    def __init__(self, words: Iterable[bytes]) -> None:
        words = tuple(dict.fromkeys(words))
        self._marks = tuple(word for word in words if len(word) < 3 and word.lower() == word.upper())
        rest = sorted((word for word in words if word not in self._marks), key=lambda word: (word[-1:], word))
        size = -(-len(rest) // (len(rest) // _SET_WORDS + 1))
        self._sets = tuple(_Set(rest[at : at + size]) for at in range(0, len(rest), size or 1))

    def found(self, text: bytes) -> set[bytes]:
        """The words in a text."""
        found = {word for word in self._marks if word in text}
        text += bytes(_WIDTH - 1)  # a short word may be the end
        moved = [text[place:] for place in range(_WIDTH)]
        lower = text.lower()
        for one in self._sets:
            one.look(text, lower, moved, found)
        return found


class _Set:
    """Words in eight buckets."""

    def __init__(self, words: Sequence[bytes]) -> None:
        buckets = _distributed(words)
        self._words = tuple(_by_case(words) for words, _ in buckets)
        self._tables = tuple(
            bytes(sum((code in window[place]) << bit for bit, (_, window) in enumerate(buckets)) for code in range(256))
            for place in range(_WIDTH)
        )

    def look(self, text: bytes, lower: bytes, moved: Sequence[bytes], found: set[bytes]) -> None:
        """Put those of the words that are in the text into `found`."""
        places, hit = -1, 0
        for piece, table in zip(moved, self._tables, strict=True):
            places &= int.from_bytes(piece.translate(table), "little")
        if not places:
            return
        for bits in set(places.to_bytes(len(text), "little").translate(None, b"\0")):
            hit |= bits
        for bit, (exact, others) in enumerate(self._words):
            if hit >> bit & 1:
                found.update([word for word in exact if word in text])
                found.update([word for word in others if word in lower])


def _distributed(words: Sequence[bytes]) -> list[tuple[list[bytes], _Window]]:
    """Words in buckets, and what the bytes of each may be: so that a bucket is seldom looked into in vain, and those of
    many words least of all."""
    buckets = [(list[bytes](), (frozenset[int](),) * _WIDTH) for _ in range(_BUCKETS)]
    for word in sorted(words, key=lambda word: -min(map(_share, _windows(word)))):
        cost, best, wider = float("inf"), 0, _windows(word)[0]
        for (bit, (others, window)), own in product(enumerate(buckets), _windows(word)):
            both = tuple(old | new for old, new in zip(window, own, strict=True))
            more = _share(both) * (len(others) + 1) - _share(window) * len(others)
            if more < cost:
                cost, best, wider = more, bit, both
        buckets[best] = [*buckets[best][0], word], wider
    return buckets


def _windows(word: bytes) -> list[_Window]:
    """Each piece of a word that may be compared; bytes behind a short one may be any."""
    each = [
        frozenset({code}) if _is_exact(word) else frozenset(bytes([code]).lower() + bytes([code]).upper())
        for code in word
    ]
    each += [_ANY] * (_WIDTH - len(word))
    return [tuple(each[at : at + _WIDTH]) for at in range(len(each) - _WIDTH + 1)]


def _is_exact(word: bytes) -> bool:
    return word != word.lower()


def _by_case(words: Sequence[bytes]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Those that must stand exactly so, and the others."""
    return tuple(word for word in words if _is_exact(word)), tuple(word for word in words if not _is_exact(word))


def _share(window: _Window) -> float:
    """Of places in logs, roughly, at which a window matches."""
    return prod(1.0 if codes == _ANY else sum(map(_SHARES.__getitem__, codes)) for codes in window)
