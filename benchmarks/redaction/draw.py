"""Seeded choices. Alternatives are split in two halves, so that rules can be improved with one and judged by the
other."""

import base64
import random
import string
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

HALVES = ("seen", "held out")
LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
WORD = LOWER + UPPER + DIGITS
HEX = DIGITS + "abcdef"
BASE32 = UPPER + "234567"
BASE64 = WORD + "+/"
URL64 = WORD + "-_"


class Sample(NamedTuple):
    """A text as it stands in a log, and its secret parts, without public prefixes."""

    kind: str
    text: str
    secrets: tuple[str, ...] = ()


class Draw:
    """The source of random choices for one half of the sample."""

    def __init__(self, seed: int, half: int) -> None:
        self.rng = random.Random(f"{seed}/{half}")
        self.half = half

    def of(self, ways: Sequence[T]) -> T:
        """One of this half's alternatives; with fewer than four, any."""
        return self.rng.choice(ways[self.half :: 2] if len(ways) >= 4 else ways)

    def some(self, alphabet: str, count: int, to: int = 0) -> str:
        """`count` random characters, or up to `to` of them."""
        return "".join(self.rng.choices(alphabet, k=self.rng.randint(count, to) if to else count))

    def base64(self, size: int) -> str:
        """`size` random bytes in base64."""
        return base64.b64encode(self.rng.randbytes(size)).decode()

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def password(self) -> str:
        """A password like those of people and password managers, without characters that JSON or a shell escapes."""
        words = ("Winter", "harbour", "Dragon", "coffee", "Tiger", "Summer", "correct", "Falcon", "monkey", "Berlin")
        one, two = self.rng.choice(words), self.rng.choice(words)
        mark = self.rng.choice("!#%*+_-.")
        return self.rng.choice(
            (
                f"{one}{mark}{self.number(10, 9999)}",
                f"{one}-{two}-{self.number(10, 99)}",
                f"{one}{two}{mark}{self.number(1, 99)}",
                self.some(WORD, 12, 20),
                self.some(WORD + "!#%*+_-.", 14, 24),
                f"{self.some(LOWER, 3)}{mark}{self.some(WORD, 6)}{mark}{self.some(DIGITS, 2)}",
            )
        )
