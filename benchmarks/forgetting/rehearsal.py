"""Chooses old examples to learn again. Pure, and the same in every run: digests take the place of chance."""

from hashlib import blake2b

ROOM = 256
"""examples that can be repeated"""


class Rehearsal:
    """A uniform sample of the learned examples (Vitter 1985, "Random sampling with a reservoir", algorithm R), and a
    share of old examples for each new one."""

    def __init__(self, share: float, room: int = ROOM) -> None:
        self._share, self._room = share, room
        self._held: list[int] = []
        self._learned = 0
        self._owed = 0.0

    def learned(self, example: int) -> None:
        """A new example was learned."""
        self._learned += 1
        if len(self._held) < self._room:
            self._held.append(example)
        elif (place := _drawn(f"place {self._learned}", self._learned)) < self._room:
            self._held[place] = example
        self._owed += self._share

    def due(self, step: int) -> int | None:
        """The old example that this step has to learn; None: a new one."""
        if self._owed < 1.0 - 1e-9 or not self._held:
            return None
        self._owed -= 1.0
        return self._held[_drawn(f"step {step}", len(self._held))]


def _drawn(what: str, below: int) -> int:
    """A number from 0 to below - 1, by the digest of its purpose."""
    return int.from_bytes(blake2b(what.encode(), digest_size=8).digest(), "big") % below
