"""Messages of an imagined scenario, the use of a seed, and a short sketch of a text."""

import msgspec


class Turn(msgspec.Struct, frozen=True):
    """A message of a scenario. `role`: user or assistant."""

    role: str
    content: str


class Surfaced(msgspec.Struct, frozen=True):
    """Use of a seed. `times`: number of dreams imagined from it; `learned`: number of these that were learned;
    `taught`: sum of their losses before, nats a token: the distance of the untold model from these answers."""

    times: int = 0
    learned: int = 0
    taught: float = 0.0


class Sketch(msgspec.Struct, frozen=True):
    """A short description of a text for comparisons: under 300 bytes as JSON, however long the text. Made by
    `curation.dreaming.scenario_text`, compared by `likeness`."""

    grams: bytes
    """the smallest hashes of its character n-grams, ascending, at most `collapse.KEPT`: uint16, little-endian"""
    vector: bytes
    """its words, each hashed to a place and a sign: `collapse.DIMENSIONS` int8"""
