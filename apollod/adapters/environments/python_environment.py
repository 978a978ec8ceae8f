"""An environment of kind `python`: a module or a file, run in a process of its own."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from apollod.adapters.environments import python_child
from apollod.adapters.environments.child_process import ChildCommand, KeptProcess
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
