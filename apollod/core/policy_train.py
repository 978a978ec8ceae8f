"""When a step begins, what its result means, and when a checkpoint is written."""

from collections.abc import Iterable
from itertools import islice

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.schedules import learning_rate
from apollod.core.state import SECOND_NS, CheckpointRef, State

Outcome = tuple[list[ev.Event], list[fx.Effect]]

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
    surplus = _surplus(state)
    if surplus is not None:
        return [ev.CheckpointRemoved(step=surplus.step, path=surplus.path)], [fx.RemoveCheckpoint(surplus.path)]
    if not state.trainable or state.running is not None:
        return [], []
    if not state.waiting:
        closes = state.window is not None
        return ([ev.WindowClosed(window=state.window.number, steps=state.window.steps)] if closes and state.window else []), []
    if state.window is None:
        return [ev.WindowOpened(window=state.windows + 1, planned=len(state.waiting))], []
    head = state.waiting[0]
    if not head.digest:
        return [], []  # being tokenised
    lr = learning_rate(state.settings.lr, state.window.steps, state.window.planned, state.settings.warmup)
    started = ev.StepStarted(
        step=state.step + 1, parent=state.version, example=head.example, digest=head.digest, lr=lr, window=state.window.number
    )
    return [started], [fx.RunStep(step=started.step, example=head.example, digest=head.digest, lr=lr)]


def on_step_done(state: State, input_: inp.StepDone, now_ns: int) -> Outcome:
    """The open step's result."""
    running = state.running
    if running is None or running.step != input_.step:
        return [], []
    completed = ev.StepCompleted(
        step=running.step, parent=running.parent, example=running.example, applied=input_.applied, loss=input_.loss,
        lr=running.lr, grad_norm=input_.grad_norm, update_norm=input_.update_norm, tokens=input_.tokens,
        targets=input_.targets, skipped_zero=input_.skipped_zero, skipped_nonfinite=input_.skipped_nonfinite,
        fingerprint=input_.fingerprint, seconds=input_.seconds, note=input_.note,
    )
    return [completed], [fx.RefreshEngine(running.step)]


def _checkpoint_due(state: State, now_ns: int) -> bool:
    """`delay_s` after the last step, or when a recovery would have too many steps to run again."""
    assert state.settings is not None
    if not state.since or state.checkpointing is not None or not state.trainable or state.running is not None:
        return False
    if now_ns < state.checkpoint_retry_ns:
        return False
    idle = not state.waiting and now_ns - state.last_training_ns >= state.settings.checkpoint_delay_s * SECOND_NS
    return idle or len(state.since) >= state.settings.replay_max


def _surplus(state: State) -> CheckpointRef | None:
    """The oldest checkpoint beyond `keep`, never the one that the engine was loaded from."""
    assert state.settings is not None
    if len(state.checkpoints) <= max(1, state.settings.checkpoint_keep):
        return None
    return next((c for c in state.checkpoints[:-1] if c.path != state.engine_dir), None)


def on_checkpoint_requested(state: State, input_: inp.CheckpointRequested, now_ns: int) -> Outcome:
    """Write the weights as they are after the running step, if one runs: the trainer works in order."""
    if state.checkpointing is not None or state.trainer.phase != "ready":
        return [], []
    step = state.running.step if state.running else state.version
    path = f"{state.state_dir}/checkpoints/step-{step:08d}"
    return [ev.CheckpointStarted(step=step, path=path, why=input_.why)], [fx.WriteCheckpoint(step=step, path=path)]


def on_checkpoint_written(state: State, input_: inp.CheckpointWritten, now_ns: int) -> Outcome:
    """Committed, unless the trainer failed to write or wrote other weights than the journal's."""
    if state.checkpointing is None or state.checkpointing.path != input_.path:
        return [], []
    error = input_.error
    if not error and input_.fingerprint != state.fingerprint and input_.step == state.version:
        error = f"the checkpoint's fingerprint is {input_.fingerprint}, the journal's {state.fingerprint}"
    if error:
        return [ev.CheckpointFailed(step=input_.step, path=input_.path, reason=error)], []
    committed = ev.CheckpointCommitted(
        step=input_.step, path=input_.path, fingerprint=input_.fingerprint, bytes=input_.bytes, seconds=input_.seconds
    )
    return [committed], []
