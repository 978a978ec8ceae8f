"""A situation that was imagined, and what is kept of a text where the text itself would be too long."""

import msgspec


class Turn(msgspec.Struct, frozen=True):
    """What somebody says. `role`: user or assistant."""

    role: str
    content: str


class Sketch(msgspec.Struct, frozen=True):
    """What can be compared of a text: under 300 bytes as JSON, however long the text. Made by
    `curation.dreaming.sketching`, compared by `likeness`."""

    grams: bytes
    """the smallest hashes of its character n-grams, ascending, at most `likeness.KEPT`: uint16, little-endian"""
    vector: bytes
    """its words, each hashed to a place and a sign: `likeness.DIMENSIONS` int8"""
