"""Finds the way from one step back to an earlier one: the steps from which its weights are rebuilt."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.fixed_bits import differing_setting
from apollod.core.recovery.environment import differing_choice

T = TypeVar("T")

UNDONE_MAX = 10_000
"""most steps in one rollback: all of them are in one event"""

_TAKEN_BACK = (
    "step {version} does not build on step {to}, which was taken back; `apollod replay --to {to} --out DIR` has "
    "its weights"
)


class NotRead(Exception):
    """The journal has to be read further back: `step` is missing."""

    def __init__(self, step: int) -> None:
        super().__init__(f"step {step}")
        self.step = step


def way_back(
    started: Mapping[int, ev.StepStarted],
    completed: Mapping[int, ev.StepCompleted],
    settings_of: Callable[[int], ev.Settings],
    bound_of: Callable[[int], ev.TrainerBound | None],
    to: int,
    version: int,
    checkpoints: Mapping[int, str],
) -> inp.RollbackPlanned:
    """The way from version `version` to step `to`, by the nearest of `checkpoints` (path by step) at or before it.

    `started`, `completed`: steps by number; `settings_of`, `bound_of`: the settings and the trainer's binding in force
    when a step was done. Raises NotRead if a step is missing.
    """
    if to == version:
        return _refused(to, version, f"step {to} is what is served")
    if to < 0:
        return _refused(to, version, f"there is no step {to}")
    if to > version:
        _of(completed, to)
        return _refused(to, version, _TAKEN_BACK.format(version=version, to=to))
    undone, at = _steps_back(completed, version, lambda step: step <= to)
    if len(undone) > UNDONE_MAX:
        return _refused(
            to, version, f"more than {UNDONE_MAX} steps; start anew from `apollod replay --to {to} --out DIR`"
        )
    if at != to:
        return _refused(to, version, _TAKEN_BACK.format(version=version, to=to))
    to_replay, base = _steps_back(completed, to, lambda step: step in checkpoints or step <= 0)
    if len(to_replay) > UNDONE_MAX:
        return _refused(
            to, version, f"the nearest checkpoint is more than {UNDONE_MAX} steps before it; name the step of one"
        )
    replay = [
        ev.RecordedStep.of(_of(started, done.step), done, bound.products if (bound := bound_of(done.step)) else "bf16")
        for done in to_replay
    ]
    made_with = [settings_of(done.step) for done in to_replay]
    made_on = [bound.versions if (bound := bound_of(done.step)) else {} for done in to_replay]
    if name := differing(made_with, made_on):
        reason = f"steps after the checkpoint at {base} were made with several {name}; name the step of a checkpoint"
        return _refused(to, version, reason)
    return inp.RollbackPlanned(
        to=to, version=version, fingerprint=completed[to].fingerprint if to in completed else "",
        origin=checkpoints.get(base, ""),
        replay=tuple(reversed(replay)), made_with=made_with[0] if made_with else None,
        ran_on=dict(made_on[0]) if made_on else {},
        undone=tuple(done.step for done in undone),
        examples=tuple(example for done in undone if done.applied for example in ev.all_examples(done)),
    )  # fmt: skip


def _steps_back(
    completed: Mapping[int, ev.StepCompleted], step: int, there: Callable[[int], bool]
) -> tuple[list[ev.StepCompleted], int]:
    """Go back from a step along its parents until `there` is true; return the steps passed, newest first, and the step
    reached. Stops after more than UNDONE_MAX steps."""
    passed: list[ev.StepCompleted] = []
    while not there(step) and len(passed) <= UNDONE_MAX:
        passed.append(_of(completed, step))
        step = passed[-1].parent
    return passed, step


def differing(made_with: Sequence[ev.Settings], made_on: Sequence[Mapping[str, str]]) -> str | None:
    """First setting or choice that differs among steps to be replayed together; None if none does."""
    settings = (differing_setting(one, made_with[0]) for one in made_with)
    choices = (differing_choice(one, made_on[0]) for one in made_on)
    return next((name for name in (*settings, *choices) if name), None)


def _of(steps: Mapping[int, T], step: int) -> T:
    if step not in steps:
        raise NotRead(step)
    return steps[step]


def _refused(to: int, version: int, reason: str) -> inp.RollbackPlanned:
    return inp.RollbackPlanned(to=to, version=version, error=reason)
