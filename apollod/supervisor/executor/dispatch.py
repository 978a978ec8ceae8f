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
from apollod.supervisor.executor import (
    checkpoint_effects,
    child_effects,
    dreaming_effects,
    environment_effects,
    holding_effects,
    judging_effects,
    lesson_effects,
    quality_effects,
    scoring_effects,
    training_effects,
)
from apollod.supervisor.executor.context import AnyEnvironment, Background, Context, Handler, UnderWay
from apollod.supervisor.judge import Judge
from apollod.supervisor.quality.leak_watch import LeakWatch

Submit = Callable[[inp.Input], Awaitable[object]]

SUBJECTS = (
    child_effects, training_effects, checkpoint_effects, scoring_effects, judging_effects, dreaming_effects,
    quality_effects, lesson_effects, holding_effects, environment_effects,
)  # fmt: skip
HANDLERS: Mapping[type, Handler] = {kind: one for subject in SUBJECTS for kind, one in subject.HANDLERS.items()}
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
