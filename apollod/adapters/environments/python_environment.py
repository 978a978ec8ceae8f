"""Environments that run in a process of their own: kind `python`, a module or a file, and kind `verifiers`."""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from apollod.adapters.environments import python_child, verifiers_child
from apollod.adapters.environments.child_process import ChildCommand, KeptProcess
from apollod.adapters.environments.environment_interface import WHY_MAX, Messages, Score, messages_of, score_of
from apollod.errors import ConfigError, EnvironmentFailed
from apollod.wire.rollouts import Rollout, rollout

ANSWER_S = 60.0
IMPORT_S = 120.0

_ENTRY = re.compile(r"(?P<place>.+\.py|[^:/]+)(?::(?P<name>[^:/]+))?")


class Entry(NamedTuple):
    """Place of an environment: a module, or the absolute path of a file that ends in `.py`; and its name there, empty
    for the module itself."""

    place: str
    name: str


def entry_of(text: str) -> Entry:
    """Parse `package.module:name` or `/path/to/file.py:name`; `:name` may be left out. Raises ConfigError."""
    match = _ENTRY.fullmatch(text)
    place, name = (match["place"], match["name"] or "") if match else ("", "")
    file = place.endswith(".py")
    if not (file or _dotted(place)) or (name and not _dotted(name)):
        raise ConfigError(
            f"{text!r} does not name an environment", "write package.module:name or /path/to/file.py:name"
        )
    return Entry(os.path.abspath(os.path.expanduser(place)) if file else place, name)


def directory_of(place: str) -> Path | None:
    """Directory of an entry's file; None for a module."""
    return Path(place).parent if place.endswith(".py") else None


def interpreter_of(python: str) -> str:
    """The program of a configured interpreter, the daemon's own if empty. Raises ConfigError where there is none."""
    if found := shutil.which(os.path.expanduser(python or sys.executable)):
        return os.path.abspath(found)
    raise ConfigError(f"there is no program {python}", "write the path of an interpreter: /path/to/venv/bin/python")


def _dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


class PythonEnvironment:
    """Functions `prompt(number)`, which returns a text or chat messages, and `score(number, answer)`, which returns a
    number, of a module or an object in it; either may be a coroutine function. A class is instantiated without
    arguments.

    The process is started by the first call, which has to come from the main thread. Calls run one after the other. A
    process that takes too long, dies or writes nonsense is killed with all that it started, as is one whose call is
    cancelled, and the next call starts another. Its working directory is `cwd`, else that of the file, else the
    daemon's.
    """

    def __init__(
        self, entry: str, timeout_s: float = ANSWER_S, cwd: Path | None = None, import_s: float = IMPORT_S,
        python: str = "", variables: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """`timeout_s`: limit for a prompt, and for the score of each answer; `import_s`: for the import, before the
        first of them; `python`: the interpreter, the daemon's if empty; `variables`: see `ChildCommand`. Raises
        ConfigError for an entry that cannot be parsed, and for an interpreter that is none."""
        (place, name), named = entry_of(entry), python or "the daemon's Python"
        command = ChildCommand(
            interpreter_of(python), Path(python_child.__file__), (place, name), cwd or directory_of(place), variables
        )
        self._entry, self._timeout_s = entry, timeout_s
        self._process = KeptProcess(entry, command, None, import_s, f"try to import it with {named}")

    async def prompt(self, number: int) -> Messages:
        """Return the messages of a prompt. Raises EnvironmentFailed, also for an exception of the environment, which
        its process survives."""
        (reply,) = await self._process.ask([{"prompt": number}], "messages", self._timeout_s)
        if "error" in reply:
            happened = f"has no prompt {number}: {reply['error'][:WHY_MAX]}"
            raise EnvironmentFailed(self._entry, happened, "repair its prompt()")
        return messages_of(reply["messages"], self._entry, number)

    async def score(self, number: int, messages: Sequence[dict[str, Any]], answers: Sequence[str]) -> list[Score]:
        """Return the scores of the answers, asked for one by one; the environment does not see `messages`. An exception
        is the reason why its answer has no score. Raises EnvironmentFailed where the process fails at any of them."""
        questions = [{"score": number, "answer": answer} for answer in answers]
        replies = await self._process.ask(questions, "score", self._timeout_s)
        return [
            Score(None, reply["error"][:WHY_MAX]) if "error" in reply else score_of(reply["score"]) for reply in replies
        ]

    async def close(self) -> None:
        """End the process, after the calls that came before; those that are not to be waited for have to be cancelled
        first."""
        await self._process.close()


# An environment of kind `verifiers`: a taskset of the verifiers library, run in a process of its own, whose rollouts
# come from the served model.

TASKSET_S = 600.0  # a taskset may download its data
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
        self._process = KeptProcess(entry, command, terms, TASKSET_S, hint, longest)

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
