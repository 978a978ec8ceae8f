"""The parts of the daemon that effects use, and the two ways in which effects run."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from apollod.adapters.journal.writer import Journal
from apollod.core import inputs as inp
from apollod.supervisor.children import Children, Post
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.dreaming.surrounder import Surrounder
from apollod.supervisor.executor.under_way import UnderWay
from apollod.supervisor.judge import Judge
from apollod.supervisor.quality.leak_watch import LeakWatch
from apollod.supervisor.quality.reference_files import ReferenceFiles
from apollod.supervisor.quality.window_replays import WindowReplays

EffectT = TypeVar("EffectT")


@dataclass(frozen=True)
class Context:
    """Parts of the daemon that an effect may use."""

    config: Config
    journal: Journal
    children: Children
    post: Post
    """takes an input to the loop and returns at once"""
    tasks: TaskGroup
    """for tasks that live as long as a child"""
    under_way: UnderWay
    judge: Judge | None = None
    """asked about examples as `[judge]` says, and about dreams; None: effects that ask it are not run"""
    dreamer: Dreamer | None = None
    """None: effects that ask it are not run"""
    leaks: LeakWatch | None = None
    """None: examples are not compared with the probes"""
    surrounder: Surrounder | None = None
    """for dreams; None without a dreamer"""
    replays: WindowReplays = field(default_factory=WindowReplays)
    """for a search for culprits"""
    references: ReferenceFiles = field(default_factory=ReferenceFiles)
    """references that probes are compared with"""
    exit: anyio.Event = field(default_factory=anyio.Event)
    """set when the daemon is to leave"""


@dataclass(frozen=True)
class Inline(Generic[EffectT]):
    """An effect that the loop waits for: `run` returns soon, with the inputs known at once."""

    run: Callable[[Context, EffectT], Awaitable[Sequence[inp.Input] | None]]


@dataclass(frozen=True)
class Background(Generic[EffectT]):
    """An effect that runs beside the loop, under its key, until the input that it returns has taken effect.

    An effect is dropped if its key is under way, or if `limit` (0: no limit) of its type are. So either the core
    repeats it until it knows the result, or the one under way answers for both.
    """

    run: Callable[[Context, EffectT], Awaitable[inp.Input | None]]
    limit: int = 0


Handler = Inline[Any] | Background[Any]
