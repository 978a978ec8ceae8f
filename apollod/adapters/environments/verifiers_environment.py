"""An environment of kind `verifiers`: a taskset of the verifiers library, run in a process of its own, whose rollouts
come from the served model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from apollod.adapters.environments import verifiers_child
from apollod.adapters.environments.child_process import ChildCommand, KeptProcess
from apollod.adapters.environments.environment_interface import WHY_MAX, score_of
from apollod.adapters.environments.python_environment import directory_of, entry_of, interpreter_of
from apollod.errors import ConfigError, EnvironmentFailed
from apollod.wire.rollouts import Rollout, rollout

IMPORT_S = 600.0  # a taskset may download its data
GRACE_S = 30.0  # from the end of the last rollout to the reply
TOKEN_BYTES = 64  # of a reply: id, mask and log-probability of a token as JSON


class _Told(msgspec.Struct):
    """A rollout as the process writes it, or the reason why there is none."""

    tokens: list[Annotated[int, Meta(ge=0, lt=1 << 32)]] = []
    learned: list[bool] = []
    logprobs: list[float] = []
    score: Any = None
    versions: tuple[int, int] = (-1, -1)
    error: str = ""


class _Reply(msgspec.Struct):
    rollouts: list[_Told]
    broken: str


class Sampler(NamedTuple):
    """How rollouts are sampled. `engine`: see `SamplingRelay`; `model`: directory of the tokenizer; `group`: rollouts
    of a task; `rollout_s`: limit for one, its score included; `temperature`: that of the engine's fields."""

    engine: Mapping[str, Any]
    model: str
    group: int
    rollout_s: float
    temperature: float


class Sampled(NamedTuple):
    """Rollouts with their scores. `left_out`: others, which have none."""

    rollouts: tuple[Rollout, ...]
    left_out: int


class VerifiersEnvironment:
    """A taskset by the name of its package, or `/path/to/file.py`, with the environment that it brings or the settings
    name. Its process is started by the first call, which has to come from the main thread; see `KeptProcess`."""

    def __init__(
        self, entry: str, settings: Mapping[str, Any], sampler: Sampler, python: str = "",
        variables: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """`settings`: those that verifiers has below `[env]`, and `renderer`. Raises ConfigError for an entry that
        names no taskset, and for an interpreter that is none."""
        place, directory = entry, None
        if entry.partition(":")[0].endswith(".py"):
            path, name = entry_of(entry)
            place, directory = Path(path).stem, directory_of(path)
            if name or not place.isidentifier():
                raise ConfigError(f"{entry!r} does not name a taskset", "write its package, or /path/to/taskset.py")
        self._entry, self._sampler = entry, sampler
        terms = {
            "engine": sampler.engine, "settings": settings, "group": sampler.group, "rollout_s": sampler.rollout_s,
            "model": sampler.model,
        }  # fmt: skip
        command = ChildCommand(
            interpreter_of(python), Path(verifiers_child.__file__), (place, str(directory or "")), directory, variables
        )
        hint = f"look at its settings and its package in {command.python}"
        longest = TOKEN_BYTES * sampler.group * int(sampler.engine["room"]) + (sampler.group + 1) * WHY_MAX * 6
        self._process = KeptProcess(entry, command, terms, IMPORT_S, hint, longest)

    async def group(self, number: int) -> Sampled:
        """Return the rollouts of a task that have a score, at least two. Raises EnvironmentFailed."""
        (reply,) = await self._process.ask([{"group": number}], "rollouts", self._sampler.rollout_s + GRACE_S)
        if "error" in reply:
            happened = f"has no rollouts of task {number}: {reply['error'][:WHY_MAX]}"
            raise EnvironmentFailed(self._entry, happened, "look at its taskset")
        try:
            told = msgspec.convert(reply, _Reply)
        except msgspec.ValidationError as error:
            raise EnvironmentFailed(self._entry, f"wrote nonsense: {error}", "report this") from error
        scores = [score_of(one.score) for one in told.rollouts]
        both = list(zip(told.rollouts, scores, strict=True))
        found = tuple(self._rollout(one, score.value) for one, score in both if score.value is not None)
        if len(found) < 2:
            why = next((one.error or score.why for one, score in both if one.error or score.why), "no reason given")
            happened = f"has {len(found)} of {len(both)} rollouts of task {number} ({(told.broken or why)[:WHY_MAX]})"
            hint = "look whether the engine runs" if told.broken else "a group needs at least two with a score"
            raise EnvironmentFailed(self._entry, happened, hint, outside=bool(told.broken))
        return Sampled(found, len(both) - len(found))

    async def close(self) -> None:
        """End the process, after the calls that came before."""
        await self._process.close()

    def _rollout(self, one: _Told, score: float) -> Rollout:
        return rollout(one.tokens, one.learned, one.logprobs, score, self._sampler.temperature, one.versions)
