"""Maps an effect to the coroutine that carries it out."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
from anyio.abc import TaskGroup

from apollod.adapters.journal.writer import Journal
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.failpoints import failpoint
from apollod.supervisor.children import Children, Post
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import Dreamer, Surrounder
from apollod.supervisor.executor.checkpoint_effects import HANDLERS as CHECKPOINTS
from apollod.supervisor.executor.child_effects import HANDLERS as CHILDREN
from apollod.supervisor.executor.context import AnyEnvironment, Background, Context, Handler, UnderWay
from apollod.supervisor.executor.dreaming_effects import HANDLERS as DREAMING
from apollod.supervisor.executor.environment_effects import HANDLERS as ENVIRONMENTS
from apollod.supervisor.executor.holding_effects import HANDLERS as HOLDING
from apollod.supervisor.executor.judging_effects import HANDLERS as JUDGING
from apollod.supervisor.executor.lesson_effects import HANDLERS as LESSONS
from apollod.supervisor.executor.quality_effects import HANDLERS as QUALITY
from apollod.supervisor.executor.scoring_effects import HANDLERS as SCORING
from apollod.supervisor.executor.training_effects import HANDLERS as TRAINING
from apollod.supervisor.judge import Judge
from apollod.supervisor.quality.leak_watch import LeakWatch

Submit = Callable[[inp.Input], Awaitable[object]]

HANDLERS: Mapping[type, Handler] = {
    **CHILDREN, **TRAINING, **CHECKPOINTS, **SCORING, **JUDGING, **DREAMING, **QUALITY, **LESSONS,
    **HOLDING, **ENVIRONMENTS,
}  # fmt: skip
"""Effect type -> its handler."""


class Executor:
    """Runs effects. `post` takes an input and returns at once; `submit` returns when the input has taken effect."""

    def __init__(
        self,
        config: Config,
        journal: Journal,
        children: Children,
        post: Post,
        submit: Submit,
        tasks: TaskGroup,
        judge: Judge | None = None,
        dreamer: Dreamer | None = None,
        leaks: LeakWatch | None = None,
        environments: Mapping[str, AnyEnvironment] | None = None,
    ) -> None:
        under_way = UnderWay(tasks)
        self.context = Context(
            config, journal, children, post, tasks, under_way, judge, dreamer, leaks,
            Surrounder(config, dreamer) if dreamer is not None else None, environments=environments or {},
        )  # fmt: skip
        self._submit = submit

    @property
    def exit(self) -> anyio.Event:
        """Set when the daemon is to leave."""
        return self.context.exit

    async def run(self, effect: fx.Effect) -> Sequence[inp.Input]:
        """Carry out or begin one effect. Returns the inputs known at once; others reach the loop later."""
        name = type(effect).__name__
        failpoint(f"effect.{name}.before")
        results = await self._run(effect)
        failpoint(f"effect.{name}.after")
        return results

    async def _run(self, effect: fx.Effect) -> Sequence[inp.Input]:
        handler = HANDLERS[type(effect)]
        if not isinstance(handler, Background):
            return await handler.run(self.context, effect) or ()

        async def work() -> None:
            result = await handler.run(self.context, effect)
            if result is not None:
                await self._submit(result)

        self.context.under_way.begin(effect.key(), work, type(effect).__name__, handler.limit)
        return ()
