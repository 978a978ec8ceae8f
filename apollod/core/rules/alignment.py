"""Comparisons of engine and trainer by log-probabilities. Decisions, folds and status.

The trainer scores a built-in text on its views, the engine the same token ids without its prefix cache. Serving goes
on. Before a step the text is short, so that it costs little of that step, and an engine that is slow to answer is
overtaken: the step runs beside the comparison. The whole text is compared while nothing waits, and gives way to any
other work. Both then digest every tensor if this trainer's were not compared yet, were not compared since it wrote, or
if the log-probabilities differ by more than usual. Training halts with the names of tensors that differ, or without
names if the difference is larger than two correct programs make. A difference over a few tokens, or one that a step may
have made meanwhile, is first measured again over the whole text, at rest. See docs/decisions/0026.
"""

import math
from itertools import islice

import msgspec
from msgspec.structs import replace

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.alignment import (
    NOTHING,
    REMEMBERED,
    TOKENS,
    AlignmentState,
    bound_of,
    noticed,
    patience_s,
    tokens_before,
    usual_of,
)
from apollod.core.facts.intake.state import first
from apollod.core.kernel.composing import composed
from apollod.core.kernel.event import Event
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------


def _dropped(own: AlignmentState, state: State, e: Event, at_ns: int) -> None:
    """Drop the comparison: one of the two processes is gone, or the compared weights are."""
    own.open = None


def _trainer_attached(own: AlignmentState, state: State, e: ev.TrainerAttached, at_ns: int) -> None:
    own.version = own.whole_version = -1
    own.doubted, own.looked = False, []


def _started(own: AlignmentState, state: State, e: ev.AlignmentStarted, at_ns: int) -> None:
    own.open, own.opened_ns, own.beside = e, at_ns, False
    own.count, own.steps_before = max(e.number, own.count), state.training.step


def _overtaken(own: AlignmentState, state: State, e: ev.AlignmentOvertaken, at_ns: int) -> None:
    own.beside = True


def _fold_abandoned(own: AlignmentState, state: State, e: ev.AlignmentAbandoned, at_ns: int) -> None:
    if own.comparing:
        own.whole_version = -1
    own.open, own.doubted = None, own.doubted or e.doubted


def _fold_measured(own: AlignmentState, state: State, e: ev.AlignmentMeasured, at_ns: int) -> None:
    own.measured = e
    _done(own, e)
    if not e.aligned or e.compares:
        return  # the tensors are compared next
    _expected(own, e)
    own.open = None


def _compared(own: AlignmentState, state: State, e: ev.AlignmentCompared, at_ns: int) -> None:
    own.looked = [*own.looked, e.step]
    if e.differing:
        return  # training halts
    own.same = e.step
    if own.measured is not None and own.measured.aligned:
        _expected(own, own.measured)
    own.open = None


def _expected(own: AlignmentState, e: ev.AlignmentMeasured) -> None:
    """Keep the mean of a passed comparison over the whole text as baseline for the next ones."""
    if own.open is None or not own.open.whole:
        return
    past = own.past if own.past_probe == e.probe else []
    own.past, own.past_probe = [*past, e.mean_abs_diff][-REMEMBERED:], e.probe


def _failed(own: AlignmentState, state: State, e: ev.AlignmentFailed, at_ns: int) -> None:
    if own.comparing:
        own.looked = [*own.looked, e.step]
    _done(own, e)
    own.open = None


def _done(own: AlignmentState, e: ev.AlignmentMeasured | ev.AlignmentFailed) -> None:
    """Mark these weights as compared until the next comparison is due."""
    own.version, own.doubted = e.step, False
    if own.open is None or own.open.whole:
        own.whole_version = e.step


FOLDS: Folds = {
    ev.DaemonStarted: _dropped,
    ev.TrainingHalted: _dropped,
    ev.EngineExited: _dropped,
    ev.TrainerExited: _dropped,
    ev.RollbackStarted: _dropped,
    ev.TrainerAttached: _trainer_attached,
    ev.AlignmentStarted: _started,
    ev.AlignmentOvertaken: _overtaken,
    ev.AlignmentAbandoned: _fold_abandoned,
    ev.AlignmentMeasured: _fold_measured,
    ev.AlignmentCompared: _compared,
    ev.AlignmentFailed: _failed,
}


# --- decisions -------------------------------------------------------------------------------------------------------

NAMES_SHOWN = 5  # of the tensors that differ
LOOKS = 2
"""Tensor comparisons of an attached trainer, at different versions, even without an unusual difference: one before its
first write, and one after it, which proves that the engine sees the writes."""


def advance(state: State, now_ns: int) -> Outcome:
    """Begin a comparison if one is due and no write can come between its two halves; end one that gives way."""
    own, waited_for = state.alignment, _step_waits(state)
    if own.open is not None and own.open.gives_way and not own.differs and waited_for:
        return _abandoned(state, "an example waits")
    if blocked(Activity.ALIGNMENT, state) or not _due(state, own.version if waited_for else own.whole_version):
        return nothing()
    calm = not own.doubted
    started = ev.AlignmentStarted(
        step=state.training.version, number=own.count + 1,
        tokens=tokens_before(_next_tokens(state)) if waited_for and calm else TOKENS,
        gives_way=calm and not waited_for,
    )  # fmt: skip
    return Outcome([started], [fx.ProbeTrainer(started.step, started.number, started.tokens, started.gives_way)])


def _step_waits(state: State) -> bool:
    """True if a step would begin if it were not for a comparison."""
    return state.intake.pending > 0 and not blocked(Activity.STEP, state)


def _next_tokens(state: State) -> int:
    """Tokens of the next example; 0 while it is being tokenised."""
    settings = state.daemon.settings
    one = first(state.intake, settings.queue.share_max if settings is not None else 1.0)
    return one.tokens if one is not None else 0


def _due(state: State, compared: int) -> bool:
    """True if another comparison is due after the one at version `compared`."""
    settings = state.daemon.settings
    if settings is None:
        return False
    every = settings.trainer.align_every
    return state.alignment.doubted or compared < 0 or (every > 0 and state.training.version - compared >= every)


def _open(state: State, number: int) -> bool:
    """True if `number` is that of the open comparison."""
    return state.alignment.open is not None and state.alignment.open.number == number


def _abandoned(state: State, reason: str, doubted: bool = False) -> Outcome:
    """End the open comparison; another one is due."""
    open_ = state.alignment.open
    assert open_ is not None
    ended = ev.AlignmentAbandoned(step=open_.step, number=open_.number, reason=reason, doubted=doubted)
    return Outcome([ended], [fx.DropScore(open_.number)])


def _on_probed(state: State, input_: inp.Probed, now_ns: int) -> Outcome:
    """Take the trainer's half and ask for the engine's."""
    open_ = state.alignment.open
    if open_ is None or not _open(state, input_.number):
        return nothing()
    if input_.gave_way:
        return _abandoned(state, "the trainer was asked something else")
    if input_.digests:
        return Outcome([], [fx.CompareWeights(input_.step, input_.number, input_.digests)])
    if input_.error:
        return _not_measured(state, input_.step, input_.error)
    if state.alignment.comparing:
        return _not_measured(state, input_.step, "the trainer gave no digests")
    hurried = not open_.gives_way and not state.alignment.doubted
    patience = patience_s(_next_tokens(state), len(input_.ids), input_.seconds) if hurried else None
    score = fx.ScoreProbe(input_.step, input_.number, input_.ids, input_.logprobs, input_.seconds, patience)
    return Outcome([], [score])


def _on_late(state: State, input_: inp.ScoreLate, now_ns: int) -> Outcome:
    """Stop waiting for the comparison: the step runs beside it."""
    if not _open(state, input_.number) or not state.alignment.waited_for or state.alignment.differs:
        return nothing()
    return Outcome([ev.AlignmentOvertaken(step=state.training.version, number=input_.number)], [])


def _on_scored(state: State, input_: inp.Scored, now_ns: int) -> Outcome:
    """Compare both halves; compare the tensors if they differ or the comparison is due."""
    if not _open(state, input_.number):
        return nothing()
    if input_.error:
        return _not_measured(state, input_.step, input_.error)
    measured = _measured(state, input_)
    if not _conclusive(state):
        if measured.aligned and not noticed(measured.mean_abs_diff, measured.usual, NOTHING[input_.kind]):
            return Outcome([measured], [])
        differ = f"mean |difference| {measured.mean_abs_diff:.4g} over {measured.tokens} tokens, is looked at again"
        return _abandoned(state, differ, doubted=True)
    measured = replace(measured, compares=_why_compared(state, measured))
    if not measured.compares:
        return Outcome([measured], [])
    gives_way = measured.aligned and state.alignment.open is not None and state.alignment.open.gives_way
    return Outcome([measured], [fx.ProbeTrainer(input_.step, input_.number, gives_way=gives_way, digests=True)])


def _why_compared(state: State, measured: ev.AlignmentMeasured) -> str:
    """Reason to compare the tensors after this measurement; empty: no reason."""
    own = state.alignment
    if not measured.aligned:
        return "engine and trainer differ too much"
    if own.doubted:
        return "engine and trainer differed over a few tokens"
    if noticed(measured.mean_abs_diff, measured.usual):
        return f"engine and trainer differ {measured.mean_abs_diff / measured.usual:.1f} times as much as usual"
    if len(own.looked) < LOOKS and measured.step not in own.looked:
        return "not compared since the trainer wrote" if own.looked else "not compared since the trainer was attached"
    return ""


def _conclusive(state: State) -> bool:
    """True if a difference of the open comparison halts training. A few tokens may differ by chance, and a step that
    began since may have written between the two halves."""
    own = state.alignment
    return own.open is not None and own.open.whole and state.training.step == own.steps_before


def _on_rollback(state: State, input_: inp.RollbackRequested, now_ns: int) -> Outcome:
    """Abandon the comparison: its weights are about to go, and a rollback does not wait. A difference is located
    first."""
    if state.alignment.open is None or state.alignment.differs:
        return nothing()
    return _abandoned(state, "a rollback was asked for")


def _measured(state: State, scored: inp.Scored) -> ev.AlignmentMeasured:
    """Statistics of the differences; a position without a finite one counts as not aligned."""
    assert state.daemon.settings is not None
    own = state.alignment
    usual = usual_of(own.past) if own.past_probe == scored.probe or not (own.open and own.open.whole) else 0.0
    bound = bound_of(scored.kind, state.daemon.settings.trainer.align_max, usual)
    differences = [t - e for t, e in zip(scored.trainer, scored.engine, strict=True)]
    finite = {i: d for i, d in enumerate(differences) if math.isfinite(d)}
    worst = max(finite, key=lambda i: abs(finite[i]), default=0)
    count = max(1, len(finite))
    mean = sum(map(abs, finite.values())) / count
    nonfinite = len(differences) - len(finite)
    return composed(
        ev.AlignmentMeasured, scored, tokens=len(differences), mean_abs_diff=mean,
        max_abs_diff=abs(finite.get(worst, 0.0)), mean_diff=sum(finite.values()) / count, worst=worst + 1,
        nonfinite=nonfinite, bound=bound, aligned=mean <= bound and not nonfinite, usual=usual,
    )  # fmt: skip


def _not_measured(state: State, step: int, reason: str) -> Outcome:
    """Halt if a difference was found but cannot be located; else record a failure, which is a warning."""
    measured = state.alignment.measured
    if measured is not None and state.alignment.differs:
        return Outcome([_halt(measured, f"the tensors could not be compared: {reason}")], [])
    return Outcome([ev.AlignmentFailed(step=step, reason=reason)], [])


def _on_compared(state: State, input_: inp.Compared, now_ns: int) -> Outcome:
    """Halt training if a tensor differs, or if the log-probabilities differ by more than the bound."""
    measured = state.alignment.measured
    if not _open(state, input_.number) or measured is None:
        return nothing()
    if input_.error:
        return _not_measured(state, input_.step, input_.error)
    names = dict(islice(input_.differing.items(), NAMES_SHOWN))
    compared = ev.AlignmentCompared(
        step=input_.step, number=input_.number, differing=len(input_.differing), names=names
    )
    if names:
        rest = len(input_.differing) - len(names)
        shown = ", ".join(f"{name} ({what})" for name, what in names.items())
        return Outcome([compared, _halt(measured, f"look at {shown}{f' and {rest} more' if rest else ''}", True)], [])
    if measured.aligned:
        return Outcome([compared], [])
    carried = min((one.carried for one in state.publishing.sent.values()), default=1.0)
    return Outcome([compared, _halt(measured, _mistaken(measured, carried))], [])


def _mistaken(measured: ev.AlignmentMeasured, carried: float) -> str:
    """Advice to the operator when log-probabilities differ although every tensor is identical. `carried`: see
    `facts.publishing.Attempt`."""
    if carried < 1.0:
        return (
            f"the engine has an adapter, which carries {carried:.0%} of what was learned: raise [weights] rank or "
            f"[trainer] align_max, or send whole weights"
        )
    hint = "every tensor is the same, so the two programs compute differently: report the model, with this line"
    if measured.nonfinite:
        return hint
    return f"{hint}; `[trainer] align_max` above {measured.mean_abs_diff:.2g} trains all the same"


def _halt(measured: ev.AlignmentMeasured, look: str, tensors: bool = False) -> ev.TrainingHalted:
    found = f"mean |difference| {measured.mean_abs_diff:.4g} over {measured.tokens} tokens at step {measured.step}"
    extra = f", {measured.nonfinite} not finite" if measured.nonfinite else f", at most {measured.bound:.3g}"
    usual = f", usually {measured.usual:.3g}" if measured.usual else ""
    what = "weights not shared: " if tensors else ""
    return ev.TrainingHalted(
        reason=f"{what}engine and trainer give other log-probabilities ({found}{extra}{usual})",
        hint=f"{look}; `apollod ctl resume` attaches a new trainer and compares again",
    )


HANDLERS: Handlers = {
    inp.RollbackRequested: _on_rollback,
    inp.Probed: _on_probed,
    inp.ScoreLate: _on_late,
    inp.Scored: _on_scored,
    inp.Compared: _on_compared,
}


# --- status ----------------------------------------------------------------------------------------------------------


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """The newest comparison of trainer and engine: the difference of their log-probabilities, and the equality of
    tensors."""

    step: int
    """version of the weights that were compared"""
    aligned: bool
    mean_abs_diff: float
    """of the log-probabilities of the probe text, in nats"""
    max_abs_diff: float
    tokens: int
    """length of the probe text"""
    bound: float
    """mean difference above which training halts"""
    seconds: float
    usual: float = 0.0
    """usual mean difference; 0 while none was measured"""
    same_at: int | None = None
    """newest version at which every tensor was the same by digest; null while none was compared"""


def status(state: State) -> Alignment | None:
    """The newest result, if there is one."""
    own = state.alignment
    return None if own.measured is None else composed(Alignment, own.measured, same_at=own.same)
