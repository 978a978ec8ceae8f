"""Are the weights still shared? Between steps, engine and trainer score the same tokens and must agree.

The trainer scores a built-in text on its views, the engine the same token ids without its prefix cache. Serving goes
on; only the next step waits. Where they differ by more than rounding does, both digest every tensor, and training halts
with the names of those that are not the same.
"""

import math
from itertools import islice

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.state import State

NAMES_SHOWN = 5  # of the tensors that differ


def advance(state: State, now_ns: int) -> Outcome:
    """Begin a comparison if one is due and no write can come between its two halves."""
    settings, version, compared = state.daemon.settings, state.training.version, state.alignment.version
    if settings is None or blocked(Activity.ALIGNMENT, state):
        return nothing()
    every = settings.trainer.align_every
    if compared >= 0 and (not every or version - compared < every):
        return nothing()
    return Outcome([ev.AlignmentStarted(step=version)], [fx.ProbeTrainer(version)])


def _open(state: State, step: int) -> bool:
    """Is this an answer to the question that is open?"""
    return state.alignment.open is not None and state.alignment.open.step == step


def _on_probed(state: State, input_: inp.Probed, now_ns: int) -> Outcome:
    """The trainer's half: now the engine's."""
    if not _open(state, input_.step):
        return nothing()
    if input_.digests:
        return Outcome([], [fx.CompareWeights(input_.step, input_.digests)])
    if input_.error:
        return _not_measured(state, input_.step, input_.error)
    return Outcome([], [fx.ScoreProbe(input_.step, input_.ids, input_.logprobs, input_.seconds)])


def _on_scored(state: State, input_: inp.Scored, now_ns: int) -> Outcome:
    """Both halves: agree, or look where they do not."""
    if not _open(state, input_.step):
        return nothing()
    if input_.error:
        return _not_measured(state, input_.step, input_.error)
    assert state.daemon.settings is not None
    measured = _measured(input_, state.daemon.settings.trainer.align_max)
    return Outcome([measured], [] if measured.aligned else [fx.ProbeTrainer(input_.step, digests=True)])


def _measured(scored: inp.Scored, bound: float) -> ev.AlignmentMeasured:
    """The differences in numbers; a position without a finite one counts as not aligned."""
    differences = [t - e for t, e in zip(scored.trainer, scored.engine, strict=True)]
    finite = {i: d for i, d in enumerate(differences) if math.isfinite(d)}
    worst = max(finite, key=lambda i: abs(finite[i]), default=0)
    count = max(1, len(finite))
    mean = sum(map(abs, finite.values())) / count
    nonfinite = len(differences) - len(finite)
    return ev.AlignmentMeasured(
        step=scored.step,
        tokens=len(differences),
        mean_abs_diff=mean,
        max_abs_diff=abs(finite.get(worst, 0.0)),
        mean_diff=sum(finite.values()) / count,
        worst=worst + 1,
        nonfinite=nonfinite,
        probe=scored.probe,
        bound=bound,
        aligned=mean <= bound and not nonfinite,
        seconds=scored.seconds,
    )


def _not_measured(state: State, step: int, reason: str) -> Outcome:
    """A comparison that found a difference and cannot find its place still halts; one that found nothing is a
    warning."""
    measured = state.alignment.measured
    if measured is not None and state.alignment.version == step and not measured.aligned:
        return Outcome([_halt(measured, f"where could not be found: {reason}")], [])
    return Outcome([ev.AlignmentFailed(step=step, reason=reason)], [])


def _on_compared(state: State, input_: inp.Compared, now_ns: int) -> Outcome:
    """Where the difference comes from: training halts with it."""
    measured = state.alignment.measured
    if not _open(state, input_.step) or measured is None:
        return nothing()
    if input_.error:
        return _not_measured(state, input_.step, input_.error)
    shown = [f"{name} ({what})" for name, what in islice(input_.differing.items(), NAMES_SHOWN)]
    rest = len(input_.differing) - len(shown)
    look = (
        f"look at {', '.join(shown)}{f' and {rest} more' if rest else ''}"
        if shown
        else "no tensor differs: look at the models' code"
    )
    return Outcome([_halt(measured, look)], [])


def _halt(measured: ev.AlignmentMeasured, look: str) -> ev.TrainingHalted:
    found = f"mean |difference| {measured.mean_abs_diff:.4g} over {measured.tokens} tokens at step {measured.step}"
    extra = f", {measured.nonfinite} not finite" if measured.nonfinite else f", at most {measured.bound:g}"
    return ev.TrainingHalted(
        reason=f"weights not shared: engine and trainer give other log-probabilities ({found}{extra})",
        hint=f"{look}; `apollod ctl resume` attaches a new trainer and compares again",
    )


HANDLERS: Handlers = {inp.Probed: _on_probed, inp.Scored: _on_scored, inp.Compared: _on_compared}
