"""Effects to the world: one adapter call each. What comes of them returns as inputs."""

import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from apollod.adapters import base_model, engine_http, lineage, model_dir, recovery
from apollod.adapters.files import make_empty, set_aside
from apollod.adapters.hook import run_hook
from apollod.adapters.journal import Journal
from apollod.adapters.processes import ChildProcess, describe_exit
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.errors import ApolloError, ModelRefused
from apollod.failpoints import failpoint
from apollod.store.access import check_writable
from apollod.store.lock import WeightsLock, interrupted
from apollod.supervisor.children import Children, EngineChild, Post, TrainerChild
from apollod.supervisor.config import Config
from apollod.supervisor.engine_api import Order, unanswered
from apollod.supervisor.placement import engine_command, engine_environment, engine_tmp_dir, trainer_environment
from apollod.wire import messages as msg
from apollod.wire.manifest import MemoryFile, tensor_digest

log = structlog.get_logger()

Submit = Callable[[inp.Input], Awaitable[object]]
EffectT = TypeVar("EffectT", bound=msgspec.Struct)

HEALTH_POLL_S = 0.2
SCORE_S = 60.0  # on a busy server the probe waits for its turn, and so does the next step


class Executor:
    """Runs effects. `run` returns the inputs that are known at once; later ones go to `post`, or to `submit` where the end of an
    effect has to have been taken note of before it may begin again."""

    def __init__(self, config: Config, journal: Journal, children: Children, post: Post, submit: Submit, tasks: TaskGroup) -> None:
        self._config = config
        self._journal = journal
        self._children = children
        self._post = post
        self._submit = submit
        self._tasks = tasks
        self._busy: set[type] = set()
        self._removing: set[Path] = set()
        self.exit = anyio.Event()

    async def run(self, effect: fx.Effect) -> list[inp.Input]:
        """Carry out one effect."""
        name = type(effect).__name__
        failpoint(f"effect.{name}.before")
        results = await self._run(effect)
        failpoint(f"effect.{name}.after")
        return results

    async def _run(self, effect: fx.Effect) -> list[inp.Input]:
        match effect:
            case fx.SpawnEngine():
                return await self._spawn_engine(effect)
            case fx.SpawnTrainer():
                return await self._spawn_trainer()
            case fx.StopChild():
                self._stop(effect)
            case fx.AttachTrainer(fresh=fresh):
                self._attach(fresh)
            case fx.EncodeExamples(examples=ids):
                records = await self._journal.records_of(ids)
                self._to_trainer(msg.Encode([(id_, records[id_]) for id_ in ids]))
            case fx.RunStep():
                await self._run_step(effect)
            case fx.Restore() | fx.WriteCheckpoint():
                self._to_trainer(effect)
            case fx.ObserveCheckpoint():
                self._once(effect, self._observe)
            case fx.PlanRollback():
                self._once(effect, self._plan_rollback)
            case fx.RunHook():
                self._once(effect, self._run_hook)
            case fx.RemoveCheckpoint(path=path):
                await self._remove(Path(path))
            case fx.KeepBase():
                self._once(effect, self._keep_base)
            case fx.RefreshEngine(version=version, forget=forget):
                self._to_engine(msg.Refresh(version, forget))
            case fx.PauseEngine():
                self._tasks.start_soon(self._pause, effect)
            case fx.ResumeEngine():
                self._to_engine(msg.Resume())
            case fx.ProbeTrainer(step=step, digests=digests):
                self._to_trainer(msg.Probe(step, digests))
            case fx.ScoreProbe():
                self._tasks.start_soon(self._score, effect)
            case fx.CompareWeights(step=step, digests=digests):
                self._to_engine(msg.Compare(step, digests))
            case fx.Exit():
                self.exit.set()
        return []

    async def _spawn_engine(self, effect: fx.SpawnEngine) -> list[inp.Input]:
        if self._children.engine is not None:
            return []
        e = self._config.engine
        try:
            model_dir.check_model_dir(effect.model_dir)
            await anyio.to_thread.run_sync(self._prepare_model_dir, Path(effect.model_dir))
            if engine_http.port_in_use(e.host, e.port):
                raise ModelRefused(
                    f"port {e.port} on {e.host} is in use", f"stop what listens there (`ss -ltnp sport = :{e.port}`) or set [engine] port"
                )
            await self._empty_tmp_dir()
            reading = WeightsLock(Path(effect.model_dir), shared=True)
            reading.__enter__()
        except ApolloError as error:
            log.error("engine.refused", reason=error.line())
            return [inp.ChildExited("engine", 0, None, error.line(), refused=True)]
        process = await ChildProcess.spawn(
            "apollod.engine", engine_command(self._config, effect.model_dir), engine_environment(self._config),
            self._config.state_dir / "log" / "engine.log",
        )
        child = self._children.engine = EngineChild(process, effect.model_dir, reading, self._post)
        self._tasks.start_soon(self._watch_engine, child)
        self._tasks.start_soon(self._await_engine, child)
        return [inp.EngineStarted(process.pid, effect.model_dir)]

    def _prepare_model_dir(self, path: Path) -> None:
        """It is ours, whole, and says whose it is. Raises ApolloError. Blocking."""
        check_writable(path)
        if interrupted(path):
            log.info("checkpoint.recovering", model_dir=str(path))
            recovery.recover(path)
        model_dir.leave_address(path, self._config.socket_path)

    async def _empty_tmp_dir(self) -> None:
        """What an earlier engine left is removed; raises ModelRefused where the directory cannot be ours."""
        directory = engine_tmp_dir(self._config)
        try:
            await anyio.to_thread.run_sync(make_empty, directory)
        except OSError as error:
            raise ModelRefused(
                f"the engine's temporary directory {directory} cannot be used: {error}", "remove it, or set TMPDIR"
            ) from error

    async def _await_engine(self, child: EngineChild) -> None:
        """Up: the plugin's manifest is here and /health answers."""
        with anyio.move_on_after(self._config.engine.start_timeout_s) as scope:
            await child.loaded_event.wait()
            while child.loaded is not None and not await engine_http.healthy(self._config.engine.host, self._config.engine.port):
                if self._children.engine is not child:
                    return
                await anyio.sleep(HEALTH_POLL_S)
        if scope.cancelled_caught:
            child.refusal = f"not ready after {self._config.engine.start_timeout_s:g} s; raise [engine] start_timeout_s"
            await child.process.stop(5.0)
            return
        if child.loaded is None:
            return  # it ended first
        m = child.loaded.manifest
        self._post(inp.EngineUp(
            pid=child.process.pid, url=self._config.url, model=self._config.engine.served_name, bridge=m.bridge,
            parameters=len(m.tensors), live=m.count("live"), cast=m.count("cast"), rederive=m.count("rederive"),
            frozen=m.count("frozen"), bytes=sum(s.bytes for s in m.storages), seconds=child.loaded.seconds,
            versions=child.versions,
        ))

    async def _watch_engine(self, child: EngineChild) -> None:
        code = await child.process.wait()
        reason = child.refusal or describe_exit(code)
        if not child.refusal and not child.process.stopping and (last := child.process.last_error()):
            reason = f"{reason}: {last}"
        child.loaded_event.set()  # nobody needs to wait for it any more
        child.close()
        await anyio.to_thread.run_sync(partial(shutil.rmtree, engine_tmp_dir(self._config), ignore_errors=True))
        self._children.engine = None
        self._post(inp.ChildExited("engine", child.process.pid, code, reason, refused=bool(child.refusal)))

    async def _spawn_trainer(self) -> list[inp.Input]:
        if self._children.trainer is not None:
            return []
        process = await ChildProcess.spawn(
            "apollod.trainer", (), trainer_environment(self._config), self._config.state_dir / "log" / "trainer.log"
        )
        child = self._children.trainer = TrainerChild(process)
        self._tasks.start_soon(self._watch_trainer, child)
        return [inp.TrainerStarted(process.pid)]

    async def _watch_trainer(self, child: TrainerChild) -> None:
        async with anyio.create_task_group() as watching:
            if self._config.trainer.stall_s:
                watching.start_soon(self._end_if_stalled, child, self._config.trainer.stall_s)
            code = await child.process.wait()
            watching.cancel_scope.cancel()
        child.outbox.close()
        reason = describe_exit(code)
        words = child.last_words or ("" if child.process.stopping else child.process.last_error())
        self._children.trainer = None
        self._post(inp.ChildExited("trainer", child.process.pid, code, f"{reason}: {words}" if words else reason))

    async def _end_if_stalled(self, child: TrainerChild, limit_s: float) -> None:
        """Its end is then a crash like any other, and another trainer goes on."""
        question = await child.owed.overdue(limit_s)
        child.last_words = f"no answer to {question!r} for {limit_s:g} s, the longest that [trainer] stall_s allows"
        await child.process.stop(0.0)

    def _stop(self, effect: fx.StopChild) -> None:
        child = self._children.engine if effect.role == "engine" else self._children.trainer
        if child is None or (child.process.stopping and effect.grace_s > 0):
            return
        child.process.stopping = True
        self._tasks.start_soon(child.process.stop, effect.grace_s)

    def _attach(self, fresh: bool) -> None:
        engine = self._children.engine
        if engine is None or engine.loaded is None:
            return  # it died meanwhile; its exit is on the way
        for storage in engine.manifest.storages:
            if isinstance(storage, MemoryFile):
                assert engine.memory is not None
                self._to_trainer(msg.Share(storage.bytes), engine.memory.fd)
        c = self._config
        self._to_trainer(msg.Attach(engine.manifest, c.optimizer(), fresh, c.checkpoint.undo_bytes, c.trainer.kernels))

    def _to_trainer(self, message: msgspec.Struct, fd: int | None = None) -> None:
        if self._children.trainer is not None:
            self._children.trainer.tell(message, fd)

    async def _run_step(self, effect: fx.RunStep) -> None:
        records = await self._journal.records_of(effect.examples)
        examples = [
            msg.StepExample(example, records[example], digest)
            for example, digest in zip(effect.examples, effect.digests, strict=True)
        ]
        self._to_trainer(msg.Step(effect.step, examples, effect.lr, effect.loss_limit, effect.replay))

    def _to_engine(self, order: Order) -> None:
        if self._children.engine is None:
            unanswered(order, self._post)
        else:
            self._children.engine.api.give(order)

    async def _pause(self, effect: fx.PauseEngine) -> None:
        if effect.wait_s:
            await anyio.sleep(effect.wait_s)
        self._to_engine(effect)

    async def _score(self, effect: fx.ScoreProbe) -> None:
        """The engine's half of an alignment, once it has taken over every version it was told."""
        engine, e, began = self._children.engine, self._config.engine, time.monotonic()
        scored: tuple[float, ...] = ()
        error = "the engine is gone"
        if engine is not None:
            try:
                with anyio.fail_after(SCORE_S):
                    await engine.api.settled()
                    scored = await engine_http.prompt_logprobs(e.host, e.port, e.api_key, e.served_name, effect.ids)
                error = ""
            except TimeoutError:
                error = f"the engine did not score {len(effect.ids)} tokens within {SCORE_S:g} s"
            except ApolloError as failure:
                error = failure.line()
        probe = tensor_digest(msgspec.json.encode(effect.ids))
        self._post(inp.Scored(effect.step, probe, effect.trainer, scored, effect.seconds + time.monotonic() - began, error))

    def _once(self, effect: EffectT, work: Callable[[EffectT], Awaitable[inp.Input]]) -> None:
        """Begin, unless it is under way: what takes long may be asked for again until its result has been decided on."""
        if type(effect) in self._busy:
            return
        self._busy.add(type(effect))

        async def run() -> None:
            try:
                await self._submit(await work(effect))
            finally:
                self._busy.discard(type(effect))

        self._tasks.start_soon(run)

    async def _observe(self, effect: fx.ObserveCheckpoint) -> inp.Input:
        fingerprint, error = "", ""
        try:
            model_path = Path(self._config.settings().model_path)
            fingerprint = await anyio.to_thread.run_sync(recovery.observe, model_path, Path(effect.path))
        except ApolloError as failure:
            error = failure.line()
        return inp.CheckpointObserved(effect.step, effect.path, fingerprint, error)

    async def _plan_rollback(self, effect: fx.PlanRollback) -> inp.Input:
        work = partial(lineage.plan_way_back, self._config.journal_path, effect.to, effect.version, effect.checkpoints)
        return await anyio.to_thread.run_sync(work)

    async def _run_hook(self, effect: fx.RunHook) -> inp.Input:
        c, began = self._config.checkpoint, time.monotonic()
        environment = {
            "APOLLOD_CHECKPOINT_STEP": str(effect.step), "APOLLOD_CHECKPOINT_PATH": effect.path,
            "APOLLOD_CHECKPOINT_FINGERPRINT": effect.fingerprint, "APOLLOD_MODEL_DIR": self._config.settings().model_path,
        }  # fmt: skip
        error = await run_hook(c.hook, environment, c.hook_timeout_s)
        return inp.HookDone(effect.step, effect.path, time.monotonic() - began, error)

    async def _keep_base(self, effect: fx.KeepBase) -> inp.Input:
        """In a thread: where it has to be a copy it takes minutes. The end of the daemon ends it."""
        began, stopped = time.monotonic(), threading.Event()
        work = partial(base_model.keep, Path(effect.model_dir), Path(effect.path), effect.how, stopped.is_set)
        try:
            kept = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        except OSError as error:
            return inp.BaseDone(effect.path, error=f"{effect.model_dir} could not be kept: {error}")
        finally:
            stopped.set()
        return inp.BaseDone(effect.path, kept.how, kept.bytes, time.monotonic() - began)

    async def _remove(self, path: Path) -> None:
        """Out of the way before the next one is asked for, since the journal's state names the last one only; its bytes go later,
        with what an earlier life left of others."""
        try:
            for aside in await anyio.to_thread.run_sync(set_aside, path):
                if aside not in self._removing:
                    self._removing.add(aside)
                    self._tasks.start_soon(self._remove_bytes, aside)
        except OSError as error:
            log.warning("checkpoint.not_removed", path=str(path), error=str(error))

    async def _remove_bytes(self, aside: Path) -> None:
        try:
            await anyio.to_thread.run_sync(shutil.rmtree, os.fspath(aside))
        except OSError as error:
            log.warning("checkpoint.not_removed", path=str(aside), error=str(error))
        finally:
            self._removing.discard(aside)
