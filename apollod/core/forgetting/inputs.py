"""Inputs: a request to forget examples, and the plan read from the journal."""

from apollod.core.kernel.input import Input
from apollod.core.settings import Settings
from apollod.core.training.learned import Learned


class ForgetRequested(Input, frozen=True):
    """A person asks to remove the effect of these examples from the weights."""

    examples: tuple[str, ...]
    by: str
    reason: str = ""


class ForgetPlanned(Input, frozen=True):
    """The answer to PlanForget for weights of `version`. Each of the `examples` was learned by the step at its place in
    `steps`, the first of which follows step `to`; `again`: the steps from there on, without these examples;
    `made_with`, `ran_on`: settings and environment of all of these. `far`: learned before the steps that were searched;
    `absent`: not learned by any step of these weights. `error`: why there is no plan, or what differs among the steps
    to be repeated."""

    version: int
    examples: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    to: int = 0
    again: tuple[Learned, ...] = ()
    made_with: Settings | None = None
    ran_on: dict[str, str] = {}
    far: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    error: str = ""
