"""Shared by all effects: the parts of the daemon, the two ways in which effects run, and causes of failed questions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup

from apollod.adapters.environments.atropos_service import AtroposService
from apollod.adapters.environments.environment_interface import Environment
from apollod.adapters.environments.python_environment import VerifiersEnvironment
from apollod.adapters.journal.writer import Journal
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.sources.record_stream import batch_of_lines
from apollod.core import inputs as inp
from apollod.core.facts.intake.inputs import Line
from apollod.curation.redaction import redact_text
from apollod.errors import (
    ApolloError,
    DreamCheckFailed,
    DreamCut,
    DreamNonsense,
    EnvironmentFailed,
    LlmError,
    LlmRefused,
    RecordRefused,
    ScoreRefused,
    SeedsUnreadable,
    VerdictNonsense,
)
from apollod.explain import line_of, reason
from apollod.supervisor.children import Children, Post
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import Dreamer, Surrounder
from apollod.supervisor.judge import Judge
from apollod.supervisor.quality.leak_watch import LeakWatch
from apollod.supervisor.quality.reference_files import ReferenceFiles
from apollod.supervisor.quality.window_replays import WindowReplays

log = structlog.get_logger()

EffectT = TypeVar("EffectT")

AnyEnvironment = Environment | AtroposService | VerifiersEnvironment
"""Its answers are sampled for it, or it has the model asked by itself."""

SHARE = 0.05
"""largest share of the time in which the engine computes scores"""
SCORE_S = 60.0  # for a question about log-probabilities, which waits for its turn on a busy server

AnswerT = TypeVar("AnswerT")
FailedT = TypeVar("FailedT")

_OF_THIS_QUESTION = (400, 413, 422)
"""HTTP statuses of an endpoint that rejects this question: too long, or asking for a missing feature"""

REASON_MAX = 2_000  # characters; the error of a bug may quote any text


class UnderWay:
    """Work in the background. A key that is under way is not begun a second time; different keys run in parallel."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._running: dict[str, tuple[str, anyio.CancelScope]] = {}

    def begin(self, key: str, work: Callable[[], Awaitable[object]], group: str = "", limit: int = 0) -> bool:
        """Start `work`. Returns False, without starting it, if its key is under way, or `limit` (0: no limit) tasks of
        its group are."""
        if key in self._running or (limit and self.count(group) >= limit):
            return False
        scope = anyio.CancelScope()
        self._running[key] = (group, scope)
        self._tasks.start_soon(self._run, key, work, scope, name=key)
        return True

    def cancel(self, key: str) -> None:
        """End the work with this key, if there is any. The key is free once the work has cleaned up."""
        if key in self._running:
            self._running[key][1].cancel()

    def cancel_group(self, group: str) -> None:
        """End all work of this group, as `cancel` does."""
        for of, scope in self._running.values():
            if of == group:
                scope.cancel()

    def count(self, group: str) -> int:
        """The number of tasks of this group that are under way."""
        return sum(of == group for of, _ in self._running.values())

    async def _run(self, key: str, work: Callable[[], Awaitable[object]], scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await work()
        finally:
            del self._running[key]


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
    environments: Mapping[str, AnyEnvironment] = field(default_factory=dict)
    """by name; those that are not there are not asked"""
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


async def _tell_trainer(context: Context, effect: Any) -> None:
    context.children.tell_trainer(effect)


async def _order_engine(context: Context, effect: Any) -> None:
    context.children.order_engine(effect)


TO_TRAINER, TO_ENGINE = Inline[Any](_tell_trainer), Inline[Any](_order_engine)
"""Handlers of effects that are messages to the trainer, and orders to the engine's API process."""


def own_endpoint(config: Config, limit_s: float = SCORE_S) -> Endpoint:
    """One attempt: retries are the core's decision."""
    engine = config.engine
    return Endpoint(
        config.api_url, engine.served_name, engine.api_key, attempts=1, try_s=limit_s, total_s=limit_s, ours=True
    )


async def given_line(context: Context, record: bytes, source: str) -> Line | None:
    """A canonical record as a line from `source`, redacted like any other. Raises OSError if a bad one cannot be
    kept."""
    kept_in, longest = context.config.state_dir / "quarantine", context.config.inbox.max_line_bytes
    batch = await anyio.to_thread.run_sync(batch_of_lines, [record], source, kept_in, longest)
    return next(iter(batch.lines), None)


class Failure(NamedTuple):
    """`retry_after_s`: wait that the endpoint requests."""

    cause: Literal["endpoint", "nonsense", "refused", "cut", "seeds", "check", "teacher"]
    reason: str
    retry_after_s: float = 0.0


async def answered(
    work: Awaitable[AnswerT], failed: Callable[[Failure], FailedT], bug: str, **about: object
) -> AnswerT | FailedT:
    """The answer to a question, or the result of `failed` for its failure. A bug of ours ends the question, not the
    daemon: it is logged as `bug`, with `about`."""
    try:
        return await work
    except Exception as error:
        if not isinstance(error, ApolloError | OSError):
            log.exception(bug, **about)
        return failed(failure_of(error))


def asking(
    work: Callable[[Context, EffectT], Awaitable[inp.Input | None]], failed: Callable[[EffectT, Failure], inp.Input],
    bug: str, *about: str, limit: int = 0,
) -> Background[EffectT]:  # fmt: skip
    """The handler of a question whose every failure is an input as well, made by `failed`. `bug`, `about`: name of a
    bug of ours in the log, and the fields of the effect beside it."""

    async def run(context: Context, effect: EffectT) -> inp.Input | None:
        fields = {name: getattr(effect, name) for name in about}
        return await answered(work(context, effect), lambda failure: failed(effect, failure), bug, **fields)

    return Background(run, limit)


def failure_of(error: Exception) -> Failure:
    """Cause and text of an error, without secrets, since it may quote a model or an endpoint. Errors of journal and
    network count as the endpoint's, which is asked again. Errors that are neither ours nor the system's are bugs."""
    found = _failure_of(error)
    return found._replace(reason=redact_text(found.reason)[:REASON_MAX])


def _failure_of(error: Exception) -> Failure:
    match error:
        case OSError():
            return Failure("endpoint", reason(error))
        case VerdictNonsense() | DreamNonsense():
            return Failure("nonsense", error.line())
        case LlmRefused():
            cause: Literal["refused", "endpoint"] = "refused" if error.status in _OF_THIS_QUESTION else "endpoint"
            return Failure(cause, error.line(), error.retry_after_s or 0.0)
        case LlmError():
            return Failure("endpoint", error.line())
        case ScoreRefused():
            return Failure("teacher", error.line())
        case RecordRefused():
            return Failure("refused", error.line())
        case DreamCut():
            return Failure("cut", error.line())
        case SeedsUnreadable():
            return Failure("seeds", error.line())
        case DreamCheckFailed():
            return Failure("check", error.line())
        case EnvironmentFailed(outside=False):
            return Failure("nonsense", error.line())
        case ApolloError():
            return Failure("endpoint", error.line())
    return Failure("nonsense", line_of(error))
