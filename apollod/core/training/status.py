"""The parts of `status` about the running step and the optimizer."""

import msgspec

from apollod.core.schedules import elapsed_s
from apollod.core.state import State
from apollod.core.training.pace import expected_s


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The running step."""

    step: int
    example: str
    """id of its first example"""
    examples: int
    tokens: int
    """tokens of all its examples; 0: not known"""
    elapsed_s: float
    """time since its intent was recorded"""
    expected_s: float | None
    """expected total time, from earlier steps; null: not known"""


class Optimizer(msgspec.Struct, frozen=True, kw_only=True):
    """The optimizer; empty before the first start."""

    name: str
    rank: int
    lr: float = 0.0
    lr_direct: float = 0.0
    """learning rate of direct corrections"""
    state_bytes: int
    products: str = ""
    """dtype of bf16 matrix products, `bf16` or `float32`; empty without a trainer"""


def step_runs(state: State) -> bool:
    """True if a trainer works on the open step. A trainer that died leaves the intent open."""
    return state.training.running is not None and state.children.trainer.phase == "ready"


def running(state: State, now_ns: int) -> Running | None:
    """The step that a trainer works on."""
    one = state.training.running
    if one is None or not step_runs(state):
        return None
    tokens = sum(taken.tokens for taken in state.intake.taken)
    expected = expected_s(state.training.recent, tokens)
    return Running(
        step=one.step, example=one.examples[0], examples=len(one.examples), tokens=tokens,
        elapsed_s=elapsed_s(one.started_ns, now_ns), expected_s=None if expected is None else round(expected, 3),
    )  # fmt: skip


def optimizer(state: State) -> Optimizer:
    """Settings of the optimizer, and the size of its state."""
    settings, bound = state.daemon.settings, state.children.bound
    if settings is None:
        return Optimizer(name="", rank=0, state_bytes=state.children.state_bytes)
    trainer = settings.trainer
    return Optimizer(
        name=trainer.name, rank=trainer.rank, lr=trainer.lr, lr_direct=trainer.direct_rate,
        state_bytes=state.children.state_bytes, products=bound.products if bound else "",
    )  # fmt: skip
