"""The children: start, attach, stop and watch them."""

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import structlog

from apollod.adapters import checkpoint_recovery
from apollod.adapters.ipc import listening
from apollod.adapters.llm import engine_watch
from apollod.adapters.llm.engine_watch import until_hung
from apollod.adapters.system import model_dir, semaphores
from apollod.adapters.system.files import make_empty
from apollod.adapters.system.processes import ChildProcess, describe_exit
from apollod.bridges.facts import facts_of
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.kernel.composing import composed
from apollod.errors import ApolloError, ModelRefused
from apollod.model.memory_plan import MemoryPlan
from apollod.store.access import WeightsLock, check_writable, interrupted
from apollod.supervisor import memory_budget
from apollod.supervisor.child_commands import (
    engine_command,
    engine_environment,
    engine_module,
    engine_tmp_dir,
    semaphore_prefix,
    trainer_environment,
)
from apollod.supervisor.children import EngineChild, TrainerChild
from apollod.supervisor.config import Config
from apollod.supervisor.executor.context import Context, Handler, Inline, own_endpoint
from apollod.wire import messages as msg

log = structlog.get_logger()

HEALTH_POLL_S = 0.2


async def _spawn_engine(context: Context, effect: fx.SpawnEngine) -> Sequence[inp.Input]:
    """Check everything that would fail later, then start it. A refusal is reported as the exit of a process that was
    not started."""
    config, children = context.config, context.children
    if children.engine is not None:
        return ()
    try:
        reading, plan = await _make_ready(config, effect.model_dir)
    except ApolloError as error:
        log.error("engine.refused", reason=error.line())
        return [inp.EngineExited(0, None, error.line(), refused=True)]
    command = engine_command(config, effect.model_dir, plan.kv if plan else None)
    process = await ChildProcess.spawn(
        engine_module(config), command, engine_environment(config), config.state_dir / "log" / "engine.log"
    )
    child = children.engine = EngineChild(process, effect.model_dir, reading, context.post, plan)
    context.tasks.start_soon(_watch_engine, context, child)
    return [inp.EngineStarted(process.pid, effect.model_dir)]


async def _make_ready(config: Config, directory: str) -> tuple[WeightsLock, MemoryPlan | None]:
    """Return the lock under which the engine reads the weight files, and the memory plan. Raises ApolloError if the
    engine cannot start."""
    e = config.engine
    model_dir.check_model_dir(directory)
    await anyio.to_thread.run_sync(_prepare_model_dir, config, Path(directory))
    if engine_watch.port_in_use(e.host, e.port):
        raise ModelRefused(
            f"port {e.port} on {e.host} is in use",
            f"stop what listens there (`ss -ltnp sport = :{e.port}`) or set [engine] port",
        )
    if (listen := config.control.address) is not None:
        listening.try_out(listen)
    plan = await anyio.to_thread.run_sync(memory_budget.fitted, config, Path(directory))
    await _empty_tmp_dir(config)
    reading = WeightsLock(Path(directory), shared=True)
    reading.__enter__()
    return reading, plan


def _prepare_model_dir(config: Config, path: Path) -> None:
    """Make sure that the directory is ours, finish what a crash interrupted, and leave our address. Raises ApolloError.
    Blocking."""
    check_writable(path)
    if interrupted(path):
        log.info("checkpoint.recovering", model_dir=str(path))
        checkpoint_recovery.recover(path)
    model_dir.leave_address(path, config.socket_path)


async def _empty_tmp_dir(config: Config) -> None:
    """Remove leftovers of an earlier engine. Raises ModelRefused if the directory cannot be used."""
    directory = engine_tmp_dir(config)
    await _remove_semaphores(config)
    try:
        await anyio.to_thread.run_sync(make_empty, directory)
    except OSError as error:
        raise ModelRefused(
            f"the engine's temporary directory {directory} cannot be used: {error}", "remove it, or set TMPDIR"
        ) from error


async def _remove_semaphores(config: Config) -> None:
    """Remove semaphores of a killed engine. Leftovers do no harm."""
    try:
        left = await anyio.to_thread.run_sync(semaphores.remove_left, semaphore_prefix(config))
    except OSError as error:
        log.warning("engine.semaphores_left", error=str(error))
        return
    if left:
        log.info("engine.semaphores_removed", count=len(left))


async def _await_engine(context: Context, child: EngineChild) -> None:
    """Wait until the manifest is here and /health answers; from then on end the engine if it hangs."""
    e = context.config.engine
    with anyio.move_on_after(e.start_timeout_s) as scope:
        await child.loaded_event.wait()
        while True:
            if child.loaded is None or await engine_watch.healthy(e.host, e.port):
                break
            await anyio.sleep(HEALTH_POLL_S)
    if scope.cancelled_caught:
        child.refusal = f"not ready after {e.start_timeout_s:g} s; raise [engine] start_timeout_s"
        await child.process.stop(5.0)
    elif child.loaded is not None:  # else it ended first
        context.post(engine_ready(context.config, child, child.loaded))
        if e.stall_s:
            child.last_words = await until_hung(partial(own_endpoint, context.config), e.stall_s)
            await child.process.stop(0.0)


def engine_ready(config: Config, child: EngineChild, loaded: msg.Loaded) -> ev.EngineReady:
    """The facts of a loaded engine."""
    m = loaded.manifest
    return composed(
        ev.EngineReady, facts_of(m),
        pid=child.process.pid, url=config.url, model=config.engine.served_name, bridge=m.bridge,
        parameters=len(m.tensors), live=m.count("live"), cast=m.count("cast"), rederive=m.count("rederive"),
        frozen=m.count("frozen"), bytes=sum(s.bytes for s in m.storages), seconds=loaded.seconds,
        versions=child.versions, step_tokens=child.plan.step_tokens if child.plan else 0,
    )  # fmt: skip


async def _watch_engine(context: Context, child: EngineChild) -> None:
    """Report its exit, and end it if it does not come up, or hangs."""
    async with anyio.create_task_group() as watching:
        watching.start_soon(_await_engine, context, child)
        code = await child.process.wait()
        watching.cancel_scope.cancel()
    reason = child.refusal or describe_exit(code)
    last = child.last_words or ("" if child.process.stopping else child.process.last_error())
    if not child.refusal and last:
        reason = f"{reason}: {last}"
    child.loaded_event.set()  # it will not be loaded any more
    child.close()
    await anyio.to_thread.run_sync(partial(shutil.rmtree, engine_tmp_dir(context.config), ignore_errors=True))
    await _remove_semaphores(context.config)
    context.children.engine = None
    context.post(inp.EngineExited(child.process.pid, code, reason, refused=bool(child.refusal)))


async def _spawn_trainer(context: Context, effect: fx.SpawnTrainer) -> Sequence[inp.Input]:
    config, children = context.config, context.children
    if children.trainer is not None:
        return ()
    process = await ChildProcess.spawn(
        "apollod.trainer", (), trainer_environment(config), config.state_dir / "log" / "trainer.log"
    )
    child = children.trainer = TrainerChild(process)
    context.tasks.start_soon(watch_trainer, context, child)
    return [inp.TrainerStarted(process.pid)]


async def watch_trainer(context: Context, child: TrainerChild) -> None:
    """Report its exit, and end it if it stalls."""
    stall_s = context.config.trainer.stall_s
    async with anyio.create_task_group() as watching:
        if stall_s:
            watching.start_soon(_end_if_stalled, child, stall_s)
        code = await child.process.wait()
        watching.cancel_scope.cancel()
    child.outbox.close()
    reason = describe_exit(code)
    words = child.last_words or ("" if child.process.stopping else child.process.last_error())
    context.children.trainer = None
    context.post(inp.TrainerExited(child.process.pid, code, f"{reason}: {words}" if words else reason))


async def _end_if_stalled(child: TrainerChild, limit_s: float) -> None:
    """End a stalled trainer. This counts as a crash: the next trainer goes on from there."""
    question = await child.questions.overdue(limit_s)
    child.last_words = f"no answer to {question!r} for {limit_s:g} s, the longest that [trainer] stall_s allows"
    await child.process.stop(0.0)


async def _stop_child(context: Context, effect: fx.StopChild) -> None:
    child = context.children.engine if effect.role == "engine" else context.children.trainer
    if child is None or (child.process.stopping and effect.grace_s > 0):
        return
    child.process.stopping = True
    context.tasks.start_soon(child.process.stop, effect.grace_s)


async def _attach_trainer(context: Context, effect: fx.AttachTrainer) -> None:
    engine, c = context.children.engine, context.config
    if engine is None or engine.loaded is None:
        return  # it died meanwhile; its exit is on the way
    plan = engine.plan
    again = plan.gradient_checkpointing if plan else c.trainer.gradient_checkpointing is True
    undo = memory_budget.ring(c, plan)
    log.info("undo.sized", bytes=undo.bytes, steps=undo.steps, reason=undo.refused)
    for storage, fd in engine.descriptors():
        context.children.tell_trainer(msg.Share(storage.bytes), fd)
    attach = msg.Attach(
        engine.manifest,
        c.optimizer(),
        effect.fresh,
        undo.bytes,
        c.trainer.kernels,
        again,
        undo.refused,
        c.trainer.products,
    )
    context.children.tell_trainer(attach)


async def _exit(context: Context, effect: fx.Exit) -> None:
    context.exit.set()


HANDLERS: Mapping[type, Handler] = {
    fx.SpawnEngine: Inline(_spawn_engine),
    fx.SpawnTrainer: Inline(_spawn_trainer),
    fx.StopChild: Inline(_stop_child),
    fx.AttachTrainer: Inline(_attach_trainer),
    fx.Exit: Inline(_exit),
}
