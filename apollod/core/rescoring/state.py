"""State of rescoring: examples that were learned lately, and their loss before and after."""

import msgspec

REST_MIN_S, REST_MAX_S = 1.0, 60.0
"""between two requests"""


class Lately(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An example that was learned: the step, its loss before it (nats a token), the digest of its tokens."""

    step: int
    before: float
    digest: str


class Gain(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The same, scored `after` with the weights of step `version`, in nats a token."""

    learned: Lately
    after: float
    version: int


class RescoringState(msgspec.Struct):
    """Examples that wait to be scored, and those that were, by id, the newest one last."""

    waiting: dict[str, Lately] = {}
    """to be scored again"""
    gains: dict[str, Gain] = {}
    """those that were scored last"""
    open: tuple[str, ...] = ()
    """about which the trainer is asked"""
    version: int = 0
    """of the weights then"""
    number: int = 0
    """of the last request"""
    retry_ns: int = 0
    """not before"""
