"""Checkpoints: written, observed after a crash, passed to the user's command, removed; the base weights, kept; and
rollbacks, planned from the journal."""

import os
import shutil
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import structlog

from apollod.adapters import base_model, checkpoint_recovery
from apollod.adapters.journal import examples
from apollod.adapters.journal.journal_connection import read_again
from apollod.adapters.system.files import set_aside
from apollod.adapters.system.processes import run_hook, without_settings
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.errors import ApolloError
from apollod.supervisor.executor.context import TO_TRAINER, Background, Context, Handler, Inline

log = structlog.get_logger()


async def _observe(context: Context, effect: fx.ObserveCheckpoint) -> inp.CheckpointWritten:
    model_path = Path(context.config.settings().model_path)
    try:
        fingerprint = await anyio.to_thread.run_sync(checkpoint_recovery.observe, model_path, Path(effect.path))
    except ApolloError as failure:
        return inp.CheckpointWritten(effect.step, effect.path, "", 0, 0.0, failure.line())
    return inp.CheckpointWritten(effect.step, effect.path, fingerprint, 0, 0.0)


async def _run_hook(context: Context, effect: fx.RunHook) -> inp.HookCompleted | inp.HookFailed:
    c, began = context.config.checkpoint, time.monotonic()
    environment = {
        **without_settings(os.environ),
        "APOLLOD_CHECKPOINT_STEP": str(effect.step), "APOLLOD_CHECKPOINT_PATH": effect.path,
        "APOLLOD_CHECKPOINT_FINGERPRINT": effect.fingerprint, "APOLLOD_MODEL_DIR": context.config.settings().model_path,
    }  # fmt: skip
    error = await run_hook(c.hook, environment, c.hook_timeout_s)
    seconds = time.monotonic() - began
    if error:
        return inp.HookFailed(effect.step, seconds, error, effect.path)
    return inp.HookCompleted(effect.step, seconds, effect.path)


async def _keep_base(context: Context, effect: fx.KeepBase) -> inp.BaseKept | inp.BaseLost:
    """Keep the base in a thread, since a copy takes minutes. The thread ends with the daemon."""
    began, stopped = time.monotonic(), threading.Event()
    work = partial(base_model.keep, Path(effect.model_dir), Path(effect.path), effect.how, stopped.is_set)
    try:
        kept = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except OSError as error:
        return inp.BaseLost(effect.path, f"{effect.model_dir} could not be kept: {error}")
    finally:
        stopped.set()
    return inp.BaseKept(effect.path, kept.how, kept.bytes, time.monotonic() - began)


async def _remove(context: Context, effect: fx.RemoveCheckpoint) -> None:
    """Free the path before the next effect runs, since the state names only the checkpoint removed last; delete the
    bytes later, with those of removals that an earlier life did not finish."""
    try:
        for aside in await anyio.to_thread.run_sync(set_aside, Path(effect.path)):
            context.under_way.begin(f"remove {aside}", partial(_remove_bytes, aside))
    except OSError as error:
        log.warning("checkpoint.not_removed", path=effect.path, error=str(error))


async def _remove_bytes(aside: Path) -> None:
    try:
        await anyio.to_thread.run_sync(shutil.rmtree, os.fspath(aside))
    except OSError as error:
        log.warning("checkpoint.not_removed", path=str(aside), error=str(error))


async def _plan_rollback(context: Context, effect: fx.PlanRollback) -> inp.RollbackPlanned:
    journal, checkpoints = context.config.journal_path, effect.checkpoints
    work = partial(examples.plan_way_back, journal, effect.to, effect.version, checkpoints)
    return await read_again(partial(anyio.to_thread.run_sync, work))


async def _plan_forget(context: Context, effect: fx.PlanForget) -> inp.ForgetPlanned:
    journal, wanted = context.config.journal_path, effect.examples
    work = partial(examples.plan_forget, journal, wanted, effect.version, effect.most)
    return await read_again(partial(anyio.to_thread.run_sync, work))


HANDLERS: Mapping[type, Handler] = {
    fx.WriteCheckpoint: TO_TRAINER,
    fx.ObserveCheckpoint: Background(_observe),
    fx.RunHook: Background(_run_hook, limit=1),  # two copies to one place would collide
    fx.KeepBase: Background(_keep_base),
    fx.RemoveCheckpoint: Inline(_remove),
    fx.PlanRollback: Background(_plan_rollback),
    fx.PlanForget: Background(_plan_forget),
}
