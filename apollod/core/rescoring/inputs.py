"""Inputs of rescoring: the trainer has scored examples."""

import msgspec

from apollod.core.kernel.input import Input


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
