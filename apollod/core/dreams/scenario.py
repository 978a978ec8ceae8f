"""A situation that was imagined, and what is kept of a text where the text itself would be too long."""

import msgspec


class Turn(msgspec.Struct, frozen=True):
    """A message of a scenario. `role`: user or assistant."""

    role: str
    content: str


class Surfaced(msgspec.Struct, frozen=True):
    """Use of a seed. `times`: dreams that were imagined from it; `learned`: those of them that were learned, and
    `taught`: the sum of their losses before they were, nats a token: how far the model was from answering so untold."""

    times: int = 0
    learned: int = 0
    taught: float = 0.0


class Sketch(msgspec.Struct, frozen=True):
    """A short description of a text for comparisons: under 300 bytes as JSON, however long the text. Made by
    `curation.dreaming.sketching`, compared by `likeness`."""

    grams: bytes
    """the smallest hashes of its character n-grams, ascending, at most `likeness.KEPT`: uint16, little-endian"""
    vector: bytes
    """its words, each hashed to a place and a sign: `likeness.DIMENSIONS` int8"""
