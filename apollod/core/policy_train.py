"""When a step begins, what its result means, and when a checkpoint is written."""

from collections.abc import Iterable
from itertools import chain, count, islice

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.policy_publish import fence_pending
from apollod.core.schedules import CHECKPOINT_RETRY_S, UNLEARNED_MAX, is_due, learning_rate, loss_limit
from apollod.core.state import DAY_NS, SECOND_NS, CheckpointRef, State, Waiting, Window

Outcome = tuple[list[ev.Event], list[fx.Effect]]

DAMAGED_HINT = (
    "`apollod replay --to STEP --out DIR` writes the weights of an earlier step; go on from those, with a lower [trainer] lr and "
    "another [state] dir"
)
ENCODE_BATCH = 64  # examples tokenised per message; bounds what the trainer does between two steps


def encode_effect(examples: Iterable[str]) -> list[fx.Effect]:
    """Tokenise the first of `examples`; the rest follows when these are answered."""
    first = tuple(islice(examples, ENCODE_BATCH))
    return [fx.EncodeExamples(first)] if first else []


def on_encoded(state: State, input_: inp.EncodeDone, now_ns: int) -> Outcome:
    """Record token counts or the refusal, and ask for the next ones."""
    events: list[ev.Event] = []
    for result, waiting in zip(input_.results, list(state.untokenised), strict=False):
        if result.example != waiting.example:
            break  # an answer to a question of an earlier attachment
        if result.refused:
            events.append(ev.ExampleRejected(example=result.example, reason=result.refused))
        else:
            events.append(
                ev.ExampleEncoded(
                    example=result.example, tokens=result.tokens, targets=result.targets, cut=result.cut, digest=result.digest
                )
            )
    return events, encode_effect(w.example for w in islice(state.untokenised, len(events), None))


def advance_training(state: State, now_ns: int) -> Outcome:
    """The next thing training has to do by itself, if any."""
    assert state.settings is not None
    if _checkpoint_due(state, now_ns):
        return on_checkpoint_requested(state, inp.CheckpointRequested(why="due"), now_ns)
    surplus = _surplus(state, now_ns)
    if surplus is not None:
        return [ev.CheckpointRemoved(step=surplus.step, path=surplus.path)], [fx.RemoveCheckpoint(surplus.path)]
    if not state.trainable or state.running is not None:
        return [], []
    window = state.window
    if window is not None and _over(state, window):
        return [ev.WindowClosed(window=window.number, steps=window.steps)], []
    if not state.waiting:
        return [], []
    if window is None:
        return [ev.WindowOpened(window=state.windows + 1, planned=len(state.waiting))], []
    batch = _next_batch(state, window)
    return _begin_step(state, window, batch) if batch else ([], [])


def _over(state: State, window: Window) -> bool:
    """A window ends when nothing waits. With a rate that decays over its examples it ends with the last of those, so that
    what came meanwhile gets a window of its own; a constant rate would only be warmed up again."""
    assert state.settings is not None
    return not state.waiting or (state.settings.schedule == "cosine" and window.examples >= window.planned)


def _next_batch(state: State, window: Window) -> list[Waiting]:
    """Consecutive examples of one tier for one step, at most `accumulate`; none while the next one is being tokenised."""
    assert state.settings is not None
    most = 1 if state.waiting[0].alone else state.settings.accumulate
    if state.settings.schedule == "cosine":
        most = min(most, window.planned - window.examples)
    batch: list[Waiting] = []
    for waiting in islice(state.waiting, most):
        if waiting.tier != state.waiting[0].tier:
            break
        if not waiting.digest:
            return []
        batch.append(waiting)
    return batch


def _begin_step(state: State, window: Window, batch: list[Waiting]) -> Outcome:
    assert state.settings is not None
    s, several = state.settings, len(batch) > 1
    started = ev.StepStarted(
        step=state.step + 1, parent=state.version, example=batch[0].example, digest=batch[0].digest,
        lr=learning_rate(
            s.lr_direct if batch[0].tier == "direct" else s.lr,
            window.examples + len(batch) - 1, window.planned, s.warmup, s.schedule, s.lr_floor,
        ),
        window=window.number,
        examples=tuple(w.example for w in batch) if several else (),
        digests=tuple(w.digest for w in batch) if several else (),
        loss_limit=loss_limit(s.loss_max, s.loss_spike, window.losses, window.loss_total),
    )
    digests = started.digests or (started.digest,)
    return [started], [fx.RunStep(started.step, ev.all_examples(started), digests, started.lr, started.loss_limit)]


def on_step_done(state: State, input_: inp.StepDone, now_ns: int) -> Outcome:
    """The open step's result."""
    running = state.running
    if running is None or running.step != input_.step:
        return [], []
    events: list[ev.Event] = [
        ev.StepCompleted(
            step=running.step, parent=running.parent, example=running.examples[0], applied=input_.applied, loss=input_.loss,
            lr=running.lr, grad_norm=input_.grad_norm, update_norm=input_.update_norm, tokens=input_.tokens,
            targets=input_.targets, skipped_zero=input_.skipped_zero, skipped_nonfinite=input_.skipped_nonfinite,
            fingerprint=input_.fingerprint, seconds=input_.seconds, note=input_.note,
            examples=running.examples if len(running.examples) > 1 else (),
        )
    ]
    if not input_.applied:
        events += _halt_after(state, input_.note)
    return events, [fx.RefreshEngine(running.step)]


def on_step_failed(state: State, input_: inp.StepFailed, now_ns: int) -> Outcome:
    """The trainer leaves after this, and its exit carries the reason. Only a lack of memory is settled here: the same
    examples would want as much again."""
    running = state.running
    if not input_.out_of_memory or running is None or running.step != input_.step or state.trainer.phase != "ready":
        return [], []
    return fail_step(state, input_.reason), []


def fail_step(state: State, reason: str) -> list[ev.Event]:
    """Give up the running step: hold its example, or learn its examples one by one."""
    running = state.running
    assert running is not None
    apart = len(running.examples) > 1
    failed = ev.StepFailed(
        step=running.step, example=running.examples[0], reason=reason, attempts=running.attempts + 1,
        examples=running.examples if apart else (), apart=apart,
    )
    return [failed, *([] if apart else _halt_after(state, reason))]


def _halt_after(state: State, reason: str) -> list[ev.Event]:
    """Halt where this is one step too many that wrote nothing: then it is not the example."""
    if state.unlearned + 1 < UNLEARNED_MAX:
        return []
    return [
        ev.TrainingHalted(
            reason=f"{UNLEARNED_MAX} steps in a row wrote nothing, the last one because: {reason}",
            hint="`apollod ctl query \"SELECT * FROM examples WHERE state IN ('skipped', 'held')\"` shows them; then `apollod ctl resume`",
        )
    ]


def _checkpoint_due(state: State, now_ns: int) -> bool:
    """`delay_s` after the last step, or when a recovery would have too many steps to run again; at once after a rollback,
    so that the model directory does not hold what was taken back."""
    assert state.settings is not None
    if not state.unsaved or state.checkpointing is not None or not state.trainable or state.running is not None:
        return False
    if not is_due(now_ns, state.checkpoint_retry_ns, CHECKPOINT_RETRY_S):
        return False
    delay_s = state.settings.checkpoint_delay_s
    idle = not state.waiting and is_due(now_ns, state.last_training_ns + int(delay_s * SECOND_NS), delay_s)
    return idle or state.taken_back or len(state.since) >= state.settings.replay_max


def _surplus(state: State, now_ns: int) -> CheckpointRef | None:
    """The oldest checkpoint, where there are too many, too large or too old ones; never one that a recovery needs."""
    s = state.settings
    assert s is not None
    oldest = next((c for c in state.checkpoints[:-1] if c != state.origin), None)
    if oldest is None or state.checkpointing is not None or state.rollback_wanted is not None or state.rolling_back is not None:
        return None
    many = len(state.checkpoints) > max(1, s.checkpoint_keep)
    large = 0 < s.checkpoint_keep_bytes < sum(c.bytes for c in state.checkpoints)
    old = 0 < s.checkpoint_keep_days * DAY_NS < now_ns - oldest.at_ns
    return oldest if many or large or old else None


def on_checkpoint_requested(state: State, input_: inp.CheckpointRequested, now_ns: int) -> Outcome:
    """Write the weights as they are after the running step, if one runs: the trainer works in order."""
    running = None if fence_pending(state) else state.running  # that step is not the trainer's yet
    saved = state.checkpoint is not None and not state.unsaved and running is None
    if saved or state.checkpointing is not None or state.trainer.phase != "ready":
        return [], []
    step = running.step if running else state.version
    path, full = _free_path(state, step), _full_due(state)
    started = ev.CheckpointStarted(step=step, path=path, why=input_.why, full=full)
    return [started], [fx.WriteCheckpoint(step=step, path=path, model_dir=state.model_path, full=full)]


def _free_path(state: State, step: int) -> str:
    """After a rollback, weights of one step may be written a second time."""
    path, taken = f"{state.state_dir}/checkpoints/step-{step:08d}", {state.removed, *(c.path for c in state.checkpoints)}
    return next(p for p in chain([path], (f"{path}-{n}" for n in count(2))) if p not in taken)


def _full_due(state: State) -> bool:
    """Have the ways back since the last full copy grown past half the model? Then one more copy costs less than they do."""
    grown = 0
    for ref in state.checkpoints:
        grown = 0 if ref.full else grown + ref.delta_bytes
    return state.engine_facts is not None and 2 * grown > state.engine_facts.bytes


def on_checkpoint_written(state: State, input_: inp.CheckpointWritten, now_ns: int) -> Outcome:
    """Committed, unless the trainer failed to write or wrote other weights than the journal's."""
    if state.checkpointing is None or state.checkpointing.path != input_.path:
        return [], []
    if input_.doubtful:
        return [], [fx.ObserveCheckpoint(input_.step, input_.path)]
    error = input_.error or _mismatch(state, input_.step, input_.fingerprint)
    if error:
        events: list[ev.Event] = [ev.CheckpointFailed(step=input_.step, path=input_.path, reason=error)]
        if input_.damaged and not state.halted:
            events.append(ev.TrainingHalted(reason=error, hint=DAMAGED_HINT))
        return events, []
    committed = ev.CheckpointCommitted(
        step=input_.step, path=input_.path, fingerprint=input_.fingerprint, bytes=input_.bytes, seconds=input_.seconds,
        held_s=input_.held_s, written_bytes=input_.written_bytes, delta_bytes=input_.delta_bytes,
        changed_blocks=input_.changed_blocks, blocks=input_.blocks, files=input_.files, full=state.checkpointing.full,
    )
    return [committed], []


def on_checkpoint_observed(state: State, input_: inp.CheckpointObserved, now_ns: int) -> Outcome:
    """Its writer is gone: what lies on disk decides."""
    open_ = state.checkpointing
    if open_ is None or open_.path != input_.path:
        return [], []
    reason = input_.error or ("" if input_.fingerprint else "its writer ended before it was committed")
    if reason := reason or _mismatch(state, open_.step, input_.fingerprint):
        return [ev.CheckpointFailed(step=open_.step, path=open_.path, reason=reason)], []
    committed = ev.CheckpointCommitted(
        step=open_.step, path=open_.path, fingerprint=input_.fingerprint, bytes=0, seconds=0.0, full=open_.full
    )
    return [committed], []


def _mismatch(state: State, step: int, fingerprint: str) -> str:
    """How weights of `step` that were written differ from the journal's; empty when they do not or it is not known."""
    recorded = {done.step: done.fingerprint for done in state.since} | {state.version: state.fingerprint}
    if recorded.get(step, fingerprint) == fingerprint:
        return ""
    return f"the checkpoint's fingerprint is {fingerprint}, the journal's {recorded[step]}"


def run_hook(state: State) -> list[fx.Effect]:
    """For the newest checkpoint, until it is reported; a daemon that was stopped meanwhile runs it when it is back."""
    due, s = state.hook_due, state.settings
    return [fx.RunHook(due.step, due.path, due.fingerprint)] if due is not None and s is not None and s.checkpoint_hook else []


def on_hook_done(state: State, input_: inp.HookDone, now_ns: int) -> Outcome:
    """Told, and nothing else: the checkpoint is committed, whatever becomes of its copy elsewhere."""
    if input_.error:
        return [ev.HookFailed(step=input_.step, seconds=input_.seconds, reason=input_.error, path=input_.path)], []
    return [ev.HookCompleted(step=input_.step, seconds=input_.seconds, path=input_.path)], []
