"""Requests that steer training: pause, resume, write a checkpoint, roll back, learn undone examples again, measure the
quality, and pause or resume an environment."""

import anyio.to_thread

from apollod.adapters.journal.examples import tiers_of
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.quality.looking import takes_baseline
from apollod.supervisor.requests.asked import Daemon, input_of, reply
from apollod.supervisor.requests.status_requests import status_of
from apollod.wire import messages as msg


async def pause(daemon: Daemon, request: msg.PauseRequest) -> msg.Answer:
    """Pause; answered with the status when it is recorded. The running step goes on."""
    await daemon.loop.submit(input_of(inp.TrainingPaused, request))
    return msg.Reply(status_of(daemon))


async def resume(daemon: Daemon, request: msg.ResumeRequest) -> msg.Answer:
    """Resume; answered with the status when it is recorded."""
    await daemon.loop.submit(input_of(inp.TrainingResumed, request))
    return msg.Reply(status_of(daemon))


async def checkpoint(daemon: Daemon, request: msg.CheckpointRequest) -> msg.Answer:
    """Wait for a checkpoint that holds everything completed or running now."""
    state = daemon.loop.state
    target = state.training.running.step if state.training.running else state.training.version
    while state.checkpoints.newest is None or state.checkpoints.newest.step < target or state.taken_back:
        if state.children.trainer.phase != "ready":
            return msg.Failure(
                "the trainer is not ready, so nothing can be written", "see `apollod ctl status`", retryable=True
            )
        failures = state.checkpoints.retry_ns
        await daemon.loop.submit(inp.CheckpointRequested(why="requested"))
        while state.checkpoints.open is not None:
            await daemon.loop.changed()
        if state.checkpoints.retry_ns != failures:
            return msg.Failure(
                "the checkpoint was not written", "see `apollod ctl events --kind checkpoint.failed`", retryable=True
            )
    c = state.checkpoints.newest
    return reply(step=c.step, fingerprint=c.fingerprint, path=c.path, model_dir=state.daemon.model_path)


async def rollback(daemon: Daemon, request: msg.RollbackRequest) -> msg.Answer:
    """Roll back; wait until the served weights are those of step `to`, and new requests find no prefixes of later
    ones."""
    loop, state = daemon.loop, daemon.loop.state
    asked = await loop.submit(input_of(inp.RollbackRequested, request))
    if not any(isinstance(r.event, ev.RollbackRequested) for r in asked):
        return msg.Failure("another rollback is under way", "see `apollod ctl status`")
    refused, started = loop.last(ev.RollbackRefused), loop.last(ev.RollbackStarted)
    while state.rollback.wanted is not None or state.rollback.under_way is not None:
        if state.daemon.halted and state.rollback.under_way is not None:
            return msg.Failure(
                f"the rollback stopped: {state.daemon.halted}",
                "nothing is lost; then `apollod ctl resume` goes on with it",
            )
        await loop.changed()
    if (now := loop.last(ev.RollbackRefused)) is not None and now is not refused:
        return msg.Failure(
            now.reason, '`apollod ctl query "SELECT step, parent, at FROM steps ORDER BY step DESC"` lists the steps'
        )
    begun, done = loop.last(ev.RollbackStarted), loop.last(ev.RollbackCompleted)
    assert begun is not None and begun is not started and done is not None
    await announced(daemon)
    return reply(
        step=done.to, **{"from": done.from_step}, fingerprint=done.fingerprint, how=done.how, replayed=done.replayed,
        seconds=done.seconds, undone=list(begun.undone), examples=list(begun.examples),
    )  # fmt: skip


async def announced(daemon: Daemon) -> None:
    """Wait until the engine was told: before, new requests still find prefixes of the undone weights."""
    await daemon.loop.submit(inp.Advance())  # afterwards the effects of the last event have been requested
    if (engine := daemon.children.engine) is not None:
        await engine.api.settled()


async def relearn(daemon: Daemon, request: msg.RelearnRequest) -> msg.Answer:
    """Queue examples again; all or none: refused if one of them was neither undone nor withdrawn."""
    intake = daemon.loop.state.intake
    out = intake.undone.keys() | intake.withdrawn.keys()
    if others := [example for example in request.examples if example not in out]:
        return msg.Failure(
            f"{others[0]} was not taken back by a rollback, nor withdrawn",
            "`apollod ctl query \"SELECT id FROM examples WHERE state IN ('undone', 'withdrawn')\"` lists those that "
            "were",
        )
    wanted = await anyio.to_thread.run_sync(tiers_of, daemon.config.journal_path, request.examples)
    recorded = await daemon.loop.submit(input_of(inp.RelearnRequested, request, examples=tuple(wanted)))
    requeued = [r.event.example for r in recorded if isinstance(r.event, ev.ExampleRequeued)]
    return reply(examples=requeued)


async def measure_quality(daemon: Daemon, request: msg.QualityRequest) -> msg.Answer:
    """Request a measurement; answered when it is recorded, with the number of that event, after which the measurement
    follows, and the reason why it waits."""
    loop = daemon.loop
    own = loop.state.quality
    if (incident := own.incident) is not None and not (request.baseline and takes_baseline(own)):
        return msg.Failure(
            f"alarm {incident.number} of the quality guard is not settled, and nothing is measured before it is",
            f"`apollod ctl quality incident show {incident.number}` tells of it, `apollod ctl resume` goes on",
            retryable=True,
        )
    recorded = await loop.submit(input_of(inp.QualityWanted, request))
    return reply(
        baseline=request.baseline,
        after=recorded[0].seq,
        step=loop.state.training.version,
        reason=blocked(Activity.MEASUREMENT, loop.state) if loop.state.quality.open is None else "",
    )


async def environment(daemon: Daemon, request: msg.EnvironmentRequest) -> msg.Answer:
    """Pause or resume an environment; answered when it is recorded. `already`: nothing changes; `withdrawn`: groups
    that are not learned any more."""
    name, known = request.environment, daemon.loop.state.environments.named
    if name not in known:
        which = ", ".join(known) or "there is none"
        return msg.Failure(f"there is no environment {name[:40]}: {which}", "`apollod ctl environment list` has them")
    wanted: inp.Input
    if request.action == "pause":
        wanted = inp.EnvironmentPaused(name, request.by, request.reason)
    else:
        wanted = inp.EnvironmentResumed(name, request.by)
    waited = len(known[name].waiting)
    recorded = [one.event for one in await daemon.loop.submit(wanted)]
    done = any(isinstance(one, ev.EnvironmentPaused | ev.EnvironmentResumed) for one in recorded)
    return reply(environment=name, already=not done, withdrawn=waited if done and request.action == "pause" else 0)
