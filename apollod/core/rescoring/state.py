"""State of rescoring: recently learned examples, and their loss before and after."""

import msgspec

REST_MIN_S, REST_MAX_S = 1.0, 60.0
"""between two requests"""


class Lately(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A learned example: its step, its loss before that step (nats a token), the digest of its tokens."""

    step: int
    before: float
    digest: str


class Gain(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A learned example, scored `after` with the weights of step `version`, in nats a token."""

    learned: Lately
    after: float
    version: int


class RescoringState(msgspec.Struct):
    """Waiting and scored examples by id, the newest last."""

    waiting: dict[str, Lately] = {}
    """to be scored again"""
    gains: dict[str, Gain] = {}
    """the last scores"""
    open: tuple[str, ...] = ()
    """examples of the open request"""
    version: int = 0
    """weights version of that request"""
    number: int = 0
    """number of the last request"""
    retry_ns: int = 0
    """earliest time of the next request"""
