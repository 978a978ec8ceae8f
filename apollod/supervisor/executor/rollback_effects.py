"""Plans rollbacks and forgetting, from the journal."""

from collections.abc import Mapping
from functools import partial

import anyio

from apollod.adapters.journal import rollback_plan
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.supervisor.executor.context import Background, Context, Handler


async def _plan_rollback(context: Context, effect: fx.PlanRollback) -> inp.RollbackPlanned:
    journal, checkpoints = context.config.journal_path, effect.checkpoints
    work = partial(rollback_plan.plan_way_back, journal, effect.to, effect.version, checkpoints)
    return await anyio.to_thread.run_sync(work)


async def _plan_forget(context: Context, effect: fx.PlanForget) -> inp.ForgetPlanned:
    journal, wanted = context.config.journal_path, effect.examples
    work = partial(rollback_plan.plan_forget, journal, wanted, effect.version, effect.most)
    return await anyio.to_thread.run_sync(work)


HANDLERS: Mapping[type, Handler] = {
    fx.PlanRollback: Background(_plan_rollback),
    fx.PlanForget: Background(_plan_forget),
}
