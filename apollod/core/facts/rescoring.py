"""Rescoring: the loss of lines before their step, and again afterwards. Events, inputs, effects and state."""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

import msgspec

from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input

# --- events ----------------------------------------------------------------------------------------------------------


class RescoreRequested(Event, frozen=True):
    """Intent: the trainer scores these learned examples again, with the weights of `step`."""

    kind: ClassVar[str] = "rescore.requested"
    number: int
    examples: tuple[str, ...]
    step: int


class Rescored(msgspec.Struct, frozen=True, omit_defaults=True):
    """Loss of an example, nats a token, before `learned_in`, the step that learned it, and `after`: mean of -log p over
    its learned tokens (`tokens` of them). `after` None: not scored, for the `reason`."""

    example: str
    learned_in: int
    before: float
    after: float | None
    tokens: int = 0
    reason: str = ""


class ExamplesRescored(Event, frozen=True):
    """Result: the scores of request `number`, with the weights of `step`. Missing examples are requested again: another
    request interrupted the trainer. Nothing was written."""

    kind: ClassVar[str] = "example.rescored"
    number: int
    step: int
    scores: tuple[Rescored, ...]
    seconds: float


# --- inputs ----------------------------------------------------------------------------------------------------------


class ScoredAgain(msgspec.Struct, frozen=True):
    """The score of one example. `loss`: mean of -log p over the learned tokens, nats; None: not scored, for the
    `reason`."""

    example: str
    loss: float | None
    tokens: int = 0
    reason: str = ""


class ExamplesScored(Input, frozen=True, tag="examples-scored"):
    """Answers the `RescoreExamples` with this `number`, in its order; with fewer scores if it gave way to another
    request. `error`: why none of the others can be scored."""

    number: int
    scores: tuple[ScoredAgain, ...]
    seconds: float = 0.0
    error: str = ""


# --- effects ---------------------------------------------------------------------------------------------------------


class RescoreExamples(Effect, frozen=True):
    """Have the trainer score these examples (whose tokens have these `digests`) with the present weights. It stops at
    the next other request."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    number: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]


# --- state -----------------------------------------------------------------------------------------------------------

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


# --- gain ------------------------------------------------------------------------------------------------------------
# Classifies the gain in probability of a learned line.
#
# A line is learned weakly if its loss fell by less than WEAK_GAIN of its value before and is still above SAID nats a
# token. Both are needed: the loss of a nearly known line cannot fall much, and at 0.5 nats its tokens have a
# probability of 0.6 in the (geometric) mean, so that each is more probable than all others together and greedy decoding
# gives them. Steps of other examples and rounding also change a line's loss by up to a tenth.

WEAK_GAIN = 0.1
SAID = 0.5


def is_weak(before: float, after: float) -> bool:
    """True if a line with these losses (nats a token) was learned weakly."""
    return after > SAID and before - after < WEAK_GAIN * before


class Gained(NamedTuple):
    """Means over lines, nats a token; `weak`: how many of them were learned weakly."""

    scored: int
    before: float
    after: float
    weak: int


def gained(gains: Iterable[Gain]) -> Gained | None:
    """Means over these lines; None if there are none."""
    pairs = [(one.learned.before, one.after) for one in gains]
    if not pairs:
        return None
    before, after = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return Gained(len(pairs), before, after, sum(is_weak(*pair) for pair in pairs))
