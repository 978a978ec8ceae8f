"""Request for a checkpoint now."""

from apollod.core import inputs as inp
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg


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
    return msg.Reply(
        {
            "schema_version": 1,
            "step": c.step,
            "fingerprint": c.fingerprint,
            "path": c.path,
            "model_dir": state.daemon.model_path,
        }
    )
