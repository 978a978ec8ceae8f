"""Inputs: the engine scored an answer, or failed to."""

from apollod.core.kernel.input import Input


class ExampleScoreDone(Input, frozen=True):
    """Fields as in `ExampleScored`. `error`: why there is no score; `retryable`: a later attempt may succeed."""

    example: str
    with_context: float = 0.0
    without_context: float = 0.0
    tokens: int = 0
    weights_version: int = -1
    seconds: float = 0.0
    alternate: str = ""
    error: str = ""
    retryable: bool = False
    after: int = 0
