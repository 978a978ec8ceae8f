"""Inputs: log-probabilities of trainer and engine, and the comparison of weights."""

from apollod.core.alignment.bounds import ModelKind
from apollod.core.kernel.input import Input


class Probed(Input, frozen=True, tag="probed"):
    """The trainer's side of comparison `number`: `ids` of the probe with `logprobs` of ids 1.., or `digests` of all
    tensors. `gave_way`: neither, because of another request meanwhile."""

    step: int
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    digests: dict[str, str] = {}
    seconds: float = 0.0
    error: str = ""
    number: int = 0
    gave_way: bool = False


class ScoreLate(Input, frozen=True):
    """The engine has not answered within the time that a step may wait; it still may."""

    number: int


class Scored(Input, frozen=True):
    """Log-probabilities of ids 1.. of the probe, by trainer and engine; `probe`: digest of the ids."""

    step: int
    number: int
    probe: str
    trainer: tuple[float, ...]
    engine: tuple[float, ...]
    seconds: float
    error: str = ""
    kind: ModelKind = "dense"


class Compared(Input, frozen=True, tag="compared"):
    """Names of tensors that the engine sees differently than the trainer, derived ones first, and the problem of
    each."""

    step: int
    differing: dict[str, str] = {}
    error: str = ""
    number: int = 0
