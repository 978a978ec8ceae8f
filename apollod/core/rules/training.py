"""Windows and steps. Decisions, folds and status."""

from math import inf

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.environments import SOURCE
from apollod.core.facts.holding import filled, held_beside_behaviour, held_by
from apollod.core.facts.intake.state import Waiting, upcoming
from apollod.core.facts.training import (
    HELD_ROOM,
    KEPT,
    Learned,
    Pace,
    Running,
    TrainingCounts,
    TrainingState,
    Window,
    expected_s,
    practice_bound,
    tokens_bound,
)
from apollod.core.facts.updates import OBJECTIVE
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.rules.lessons.standing import is_practice, kin_practised, practised_now
from apollod.core.rules.updates import step_of
from apollod.core.schedules import STEP_ATTEMPTS_MAX, UNLEARNED_MAX, elapsed_s, learning_rate, loss_limit
from apollod.core.settings import Settings, TrainerSettings
from apollod.core.shared.repeating import next_repeat
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------


def _daemon_started(own: TrainingState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.unlearned = 0


def _resumed(own: TrainingState, state: State, e: ev.TrainingResumed, at_ns: int) -> None:
    own.unlearned = 0


def _window_opened(own: TrainingState, state: State, e: ev.WindowOpened, at_ns: int) -> None:
    own.window, own.windows = Window(e.window, e.planned), e.window


def _window_closed(own: TrainingState, state: State, e: ev.WindowClosed, at_ns: int) -> None:
    own.window = None


def _step_started(own: TrainingState, state: State, e: ev.StepStarted, at_ns: int) -> None:
    own.step = e.step
    own.running = Running(e, at_ns)
    if (window := own.window) is not None and not e.again_of and e.objective != OBJECTIVE:
        window.steps += 1
        window.examples += len(ev.all_examples(e))


def _step_completed(own: TrainingState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    examples, counts = ev.all_examples(e), own.running is None or halts(own.running.begun.objective)
    own.version, own.fingerprint, own.running, own.last_step_ns = e.step, e.fingerprint, None, at_ns
    if not e.applied:
        own.counts.skipped += len(examples)
        own.unlearned += counts and not e.known
        return
    own.counts.trained += len(examples)
    own.unlearned = 0
    if e.tokens:
        own.recent.append(Pace(e.tokens, e.seconds))
    if len(own.recent) > KEPT:
        del own.recent[0]
    if (window := own.window) is not None and e.loss is not None:
        window.losses += 1
        window.loss_total += e.loss


def _looked(own: TrainingState, state: State, e: ev.ExampleLooked, at_ns: int) -> None:
    own.counts.skipped += e.known


def _step_failed(own: TrainingState, state: State, e: ev.StepFailed, at_ns: int) -> None:
    own.running = None
    if not e.apart:
        own.unlearned += 1


def _trainer_bound(own: TrainingState, state: State, e: ev.TrainerBound, at_ns: int) -> None:
    own.fingerprint = own.fingerprint or e.fingerprint


def _trainer_exited(own: TrainingState, state: State, e: ev.TrainerExited, at_ns: int) -> None:
    if own.running is not None and state.children.trainer.phase == "ready" and not e.expected:
        own.running.attempts += 1


def _rollback_started(own: TrainingState, state: State, e: ev.RollbackStarted, at_ns: int) -> None:
    own.version, own.fingerprint, own.unlearned = e.to, e.fingerprint, 0
    own.counts.trained -= len(e.examples)


def _continued(own: TrainingState, state: State, e: ev.JournalContinued, at_ns: int) -> None:
    own.step, own.version, own.fingerprint = e.last_step, e.step, e.fingerprint


def _carried(own: TrainingState, state: State, e: ev.JournalCarried, at_ns: int) -> None:
    own.counts = composed(TrainingCounts, e)
    own.last_step_ns, own.windows = e.last_step_ns, e.windows
    if (w := e.window) is not None:
        own.window = composed(Window, w)


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.TrainingResumed: _resumed,
    ev.WindowOpened: _window_opened,
    ev.WindowClosed: _window_closed,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
    ev.ExampleLooked: _looked,
    ev.TrainerBound: _trainer_bound,
    ev.TrainerExited: _trainer_exited,
    ev.RollbackStarted: _rollback_started,
    ev.JournalContinued: _continued,
    ev.JournalCarried: _carried,
}


# --- decisions -------------------------------------------------------------------------------------------------------


def advance(state: State, now_ns: int) -> Outcome:
    """Close a window that is over; else open the next window or begin the next step, if one may begin."""
    settings = state.daemon.settings
    if settings is None or state.training.running is not None:
        return nothing()
    again = next_repeat(state)
    window, pending = state.training.window, state.intake.pending
    if window is not None and again is None and _over(state, settings.trainer, window):
        closed = ev.WindowClosed(window=window.number, steps=window.steps)
        return nothing() if blocked(Activity.WINDOW_END, state) else Outcome([closed], [])
    if blocked(Activity.STEP, state):
        return nothing()
    if again is not None:
        return _repeat(state, again)
    if not pending:
        return nothing()
    if window is None:
        return Outcome([ev.WindowOpened(window=state.training.windows + 1, planned=pending)], [])
    batch = _next_batch(state, settings, window)
    return _begin_step(state, settings, window, batch) if batch else nothing()


def _over(state: State, settings: TrainerSettings, window: Window) -> bool:
    """True if the window is over: nothing waits or, with a decaying rate, its planned examples are learned, so that
    later ones get a window of their own; a constant rate would only warm up again."""
    return not state.intake.pending or (settings.schedule == "cosine" and window.examples >= window.planned)


def _next_batch(state: State, settings: Settings, window: Window) -> list[Waiting]:
    """Examples of one tier and one objective that come one after the other in `core.facts.intake.state`, for one step,
    at most `accumulate`; or practices of a lesson; or rated answers, as many as fit into one batch. None while the next
    one is being tokenised: a bulk example does not overtake a direct one."""
    batch, direct = list[Waiting](), state.intake.direct.waiting
    most, room = _at_once(state, settings.trainer), inf
    if settings.trainer.schedule == "cosine":
        most = min(most, window.planned - window.examples)
    for one, *_ in upcoming(state.intake, settings.queue.share_max):
        first = batch[0] if batch else one
        if is_practice(state.lessons, one.example):
            if not batch and not (batch := practised_now(state.lessons, direct, _practice_room(state, settings))):
                continue
            break
        if one.tier != first.tier or (one.digest and one.objective != first.objective):
            break
        if not one.digest:
            return []
        if not batch and _rated_together(settings, first):
            most, room = settings.preferences.ratings_per_step, _ratings_room(state, settings)
        if batch and filled([each.tokens for each in (*batch, one)]) > room:
            break
        batch.append(one)
        if len(batch) >= most or first.alone or first.objective == OBJECTIVE:
            break
    return batch


def _at_once(state: State, settings: TrainerSettings) -> int:
    """Most examples of one step."""
    at_night = state.daemon.settings.schedule.accumulate if state.daemon.settings and state.schedule.open else 0
    return at_night or settings.accumulate


def _bound(state: State, settings: Settings) -> int:
    """Most tokens of one step, by the memory planned when the engine started."""
    facts = state.children.engine_facts
    planned = facts.step_tokens if facts is not None else 0
    return tokens_bound(settings.trainer.max_tokens, settings.lessons.hold > 0.0, planned)


def _practice_room(state: State, settings: Settings) -> int:
    """Most tokens of the practices of one step, beside the anchors that it would hold."""
    held = held_by(state.holding, settings.lessons, 0, kin_practised(state.lessons))
    anchors = filled([state.holding.anchors[one].tokens for one in held])
    return practice_bound(settings.trainer.max_tokens, _bound(state, settings), anchors)


def _rated_together(settings: Settings, first: Waiting) -> bool:
    """True if this example is learned in one batch with other rated answers. A step by kto over a single answer moves
    what all answers have in common: docs/benchmarks/2026-11-29-preferences.md."""
    return first.objective == "kto" and settings.preferences.ratings_per_step > 1


def _ratings_room(state: State, settings: Settings) -> int:
    """Most tokens of the rated answers of one step."""
    anchors = HELD_ROOM if settings.lessons.hold else 0
    return practice_bound(settings.trainer.max_tokens, _bound(state, settings), anchors)


def _held(state: State, settings: Settings, batch: list[Waiting], practice: bool, together: bool) -> tuple[str, ...]:
    """Anchors that the step of this batch holds. `together`: the batch goes through the model at once; else its
    examples do one by one, and the last one shares a backward pass with the anchors."""
    lengths = [one.tokens for one in batch]
    room = _bound(state, settings) - (filled(lengths) if together else max(lengths))
    kin = kin_practised(state.lessons) if practice else None
    if state.dreams.practises(batch[0].example):
        held = held_beside_behaviour(state.holding, settings.lessons, room)
        return held[:1] if batch[0].holds_one else held
    held = held_by(state.holding, settings.lessons, sum(lengths), kin, room=room)
    return held[:1] if batch[0].holds_one else held


def _begin_step(state: State, all_settings: Settings, window: Window, batch: list[Waiting]) -> Outcome:
    first, several, settings = batch[0], len(batch) > 1, all_settings.trainer
    if first.objective == OBJECTIVE:
        return step_of(state, first)
    practice = is_practice(state.lessons, first.example)
    together = several and (practice or _rated_together(all_settings, first))
    held = _held(state, all_settings, batch, practice, together)
    peak = _peak(all_settings, first)
    position = window.examples + len(batch) - 1
    started = ev.StepStarted(
        step=state.training.step + 1, parent=state.training.version, example=first.example, digest=first.digest,
        lr=learning_rate(peak, position, window.planned, settings.warmup, settings.schedule, settings.lr_floor),
        window=window.number,
        examples=tuple(w.example for w in batch) if several else (),
        digests=tuple(w.digest for w in batch) if several else (),
        loss_limit=loss_limit(settings.loss_max, settings.loss_spike, window.losses, window.loss_total),
        objective=first.objective, held=held, hold=all_settings.lessons.hold if held else 0.0,
        together=together, warmup=settings.warmup_steps,
        zero=state.preferences.zero if first.objective == "kto" else 0.0,
    )  # fmt: skip
    return Outcome([started], [fx.RunStep.of(started)])


def _peak(settings: Settings, first: Waiting) -> float:
    """Learning rate of a step whose first example is this one, before schedule and warm-up."""
    name = first.kin.source.removeprefix(SOURCE) if first.tier == "rollout" else ""
    if (environment := settings.environment_named(name)) is not None and environment.lr:
        return environment.lr
    return settings.trainer.direct_rate if first.tier == "direct" else settings.trainer.lr


def _repeat(state: State, again: Learned) -> Outcome:
    """Repeat a rolled-back step without the examples that did harm or are forgotten, bit for bit as a replay without
    them would."""
    several = len(again.examples) > 1
    started = ev.StepStarted(
        step=state.training.step + 1, parent=state.training.version, example=again.examples[0],
        digest=again.digests[0], lr=again.lr, window=again.window,
        examples=again.examples if several else (), digests=again.digests if several else (),
        **again.terms() | {"again_of": again.number},
    )  # fmt: skip
    return Outcome([started], [fx.RunStep.of(started)])


def _on_step_done(state: State, input_: inp.StepDone, now_ns: int) -> Outcome:
    """Record the result of the open step."""
    running = state.training.running
    if input_.replay or running is None or running.step != input_.step:
        return nothing()
    begun = running.begun
    events: list[ev.Event] = [
        composed(ev.StepCompleted, begun, input_, step=begun.step)
    ]  # fmt: skip
    if not input_.applied and not input_.known and halts(begun.objective):
        events += _halt_after(state, input_.note)
    return Outcome(events, [fx.RefreshEngine(begun.step)])


def _on_step_failed(state: State, input_: inp.StepFailure, now_ns: int) -> Outcome:
    """Give up the step for lack of memory only: the same examples would need as much again. After any other failure,
    and in a replay, the trainer exits with the reason; one that would stay is stopped."""
    running, ready = state.training.running, state.children.trainer.phase == "ready"
    if input_.out_of_memory and ready and running is not None and running.step == input_.step:
        return Outcome(_give_up(state, input_.reason, input_.torn), [])
    return nothing() if input_.torn else Outcome([], [fx.StopChild("trainer", 0.0)])


def _on_exited(state: State, input_: inp.TrainerExited, now_ns: int) -> Outcome:
    """Give up a step over which several trainers died."""
    running, trainer = state.training.running, state.children.trainer
    if running is None or trainer.phase != "ready":
        return nothing()
    expected = state.daemon.stopping or trainer.doomed
    if expected or running.attempts + 1 < STEP_ATTEMPTS_MAX:
        return nothing()
    return Outcome(_give_up(state, input_.reason), [])


def _give_up(state: State, reason: str, torn: bool = True) -> list[ev.Event]:
    """Hold back the running step's example; or, before that, learn its examples one by one, and then with one anchor
    only."""
    running = state.training.running
    assert running is not None
    again = running.begun.again_of > 0  # repeated bit for bit, or not at all
    fewer = len(running.examples) == 1 and len(running.begun.held) > 1 and not again
    apart = len(running.examples) > 1 or fewer
    failed = ev.StepFailed(
        step=running.step, example=running.examples[0], reason=reason, attempts=running.attempts + 1,
        examples=running.examples if apart else (), apart=apart, fewer=fewer, torn=torn,
    )  # fmt: skip
    return [failed, *([] if apart else _halt_after(state, reason))]


def halts(objective: str) -> bool:
    """True if steps by this objective that write nothing halt training. Groups of rollouts are no sign of a damaged
    model: their environment is paused (core.rules.environments)."""
    return objective in ("sft", "context")


def _halt_after(state: State, reason: str) -> list[ev.Event]:
    """Halt if too many steps in a row wrote nothing: then the cause is not the example."""
    if state.training.unlearned + 1 < UNLEARNED_MAX:
        return []
    sql = "SELECT * FROM examples WHERE state IN ('skipped', 'held')"
    return [
        ev.TrainingHalted(
            reason=f"{UNLEARNED_MAX} steps in a row wrote nothing, the last one because: {reason}",
            hint=f'`apollod ctl query "{sql}"` shows them; then `apollod ctl resume`',
        )
    ]


HANDLERS: Handlers = {inp.StepDone: _on_step_done, inp.StepFailure: _on_step_failed, inp.TrainerExited: _on_exited}


# --- status ----------------------------------------------------------------------------------------------------------


class RunningStep(msgspec.Struct, frozen=True, kw_only=True):
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


def running(state: State, now_ns: int) -> RunningStep | None:
    """The step that a trainer works on."""
    one = state.training.running
    if one is None or not step_runs(state):
        return None
    tokens = sum(taken.tokens for taken in state.intake.taken)
    expected = expected_s(state.training.recent, tokens)
    return RunningStep(
        step=one.step, example=one.examples[0], examples=len(one.examples), tokens=tokens,
        elapsed_s=elapsed_s(one.started_ns, now_ns), expected_s=None if expected is None else round(expected, 3),
    )  # fmt: skip


def optimizer(state: State) -> Optimizer:
    """Settings of the optimizer, and the size of its state."""
    settings, bound = state.daemon.settings, state.children.bound
    if settings is None:
        return Optimizer(name="", rank=0, state_bytes=state.children.state_bytes)
    trainer = settings.trainer
    return composed(
        Optimizer, trainer, state.children, lr_direct=trainer.direct_rate, products=bound.products if bound else "",
    )  # fmt: skip
