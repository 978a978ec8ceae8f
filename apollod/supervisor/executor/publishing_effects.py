"""Carries out publishing: orders to the engine's API process."""

from collections.abc import Mapping

import anyio

from apollod.core import effects as fx
from apollod.supervisor.executor.context import Background, Context, Handler, Inline
from apollod.wire import messages as msg


async def _refresh(context: Context, effect: fx.RefreshEngine) -> None:
    context.children.order_engine(msg.Refresh(effect.version, effect.forget))


async def _pause(context: Context, effect: fx.PauseEngine) -> None:
    """Give the order after its wait; the engine's answer is an input of its own."""
    if effect.wait_s:
        await anyio.sleep(effect.wait_s)
    context.children.order_engine(effect)


async def _resume(context: Context, effect: fx.ResumeEngine) -> None:
    context.children.order_engine(msg.Resume())


HANDLERS: Mapping[type, Handler] = {
    fx.RefreshEngine: Inline(_refresh),
    fx.PauseEngine: Background(_pause),
    fx.ResumeEngine: Inline(_resume),
}
