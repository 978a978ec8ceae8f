"""An environment of kind `python`: a module or a file, run in a process of its own."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from apollod.adapters.environments.child_process import EnvironmentProcess
from apollod.adapters.environments.environment_interface import WHY_MAX, Messages, Score, messages_of, score_of
from apollod.errors import ConfigError, EnvironmentFailed

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


def _dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


class PythonEnvironment:
    """Functions `prompt(number)`, which returns a text or chat messages, and `score(number, answer)`, which returns a
    number, of a module or an object in it; either may be a coroutine function. A class is instantiated without
    arguments.

    The process is started by the first call, which has to come from the main thread. Calls run one after the other. A
    process that takes too long, dies or writes nonsense is killed with its group, as is one whose call is cancelled,
    and the next call starts another. Its working directory is `cwd`, else that of the file, else the daemon's.
    """

    def __init__(
        self, entry: str, timeout_s: float = ANSWER_S, cwd: Path | None = None, import_s: float = IMPORT_S
    ) -> None:
        """`timeout_s`: limit for a prompt, and for the score of each answer; `import_s`: for the import, before the
        first of them. Raises ConfigError for an entry that cannot be parsed."""
        self._entry, (self._place, self._name) = entry, entry_of(entry)
        self._timeout_s, self._import_s = timeout_s, import_s
        self._cwd = cwd or (Path(self._place).parent if self._place.endswith(".py") else None)
        self._process: EnvironmentProcess | None = None
        self._one_at_a_time = anyio.Lock()

    async def prompt(self, number: int) -> Messages:
        """Return the messages of a prompt. Raises EnvironmentFailed, also for an exception of the environment, which
        its process survives."""
        async with self._one_at_a_time:
            reply = await self._ask({"prompt": number}, "messages")
        if "error" in reply:
            happened = f"has no prompt {number}: {reply['error'][:WHY_MAX]}"
            raise EnvironmentFailed(self._entry, happened, "repair its prompt()")
        return messages_of(reply["messages"], self._entry, number)

    async def score(self, number: int, messages: Sequence[dict[str, Any]], answers: Sequence[str]) -> list[Score]:
        """Return the scores of the answers, asked for one by one; the environment does not see `messages`. An exception
        is the reason why its answer has no score. Raises EnvironmentFailed where the process fails at any of them."""
        async with self._one_at_a_time:
            replies = [await self._ask({"score": number, "answer": answer}, "score") for answer in answers]
        return [
            Score(None, reply["error"][:WHY_MAX]) if "error" in reply else score_of(reply["score"]) for reply in replies
        ]

    async def close(self) -> None:
        """End the process, after the calls that came before; those that are not to be waited for have to be cancelled
        first."""
        with anyio.CancelScope(shield=True):
            async with self._one_at_a_time:
                process, self._process = self._process, None
                if process is not None:
                    await process.close()

    async def _ask(self, question: dict[str, Any], wanted: str) -> dict[str, Any]:
        try:
            if self._process is None:
                self._process = await EnvironmentProcess.start(self._entry, self._place, self._name, self._cwd)
                imported = await self._process.ask(None, "ready", self._import_s)
                if "error" in imported:
                    happened = f"cannot be imported: {imported['error'][:WHY_MAX]}"
                    hint = "try to import it with the daemon's Python"
                    raise EnvironmentFailed(self._entry, happened, hint, outside=True)
            return await self._process.ask(question, wanted, self._timeout_s)
        except BaseException:  # cancellation too: the reply to this question may be under way
            process, self._process = self._process, None
            if process is not None:
                await process.end()
            raise
