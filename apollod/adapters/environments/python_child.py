"""Runs a Python environment in a process of its own: `python_child.py PARENT PLACE NAME`. Reads a JSON object a line on
stdin and writes one for each to stdout.

    {"prompt": 7}                 {"messages": "text"} or {"messages": [...]}
    {"score": 7, "answer": "x"}   {"score": 0.5}

The first line, {"ready": true}, is written without a question, once the environment is imported. Any reply may be
{"error": "type and message"} instead. No exception of the environment ends this process.

Rule for this file: it is run by its path, and imports only the standard library. `own_process` follows the same rule
and is loaded by its path, since apollod itself need not be importable here.
"""

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

ERROR_MAX = 10_000  # characters


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies."""
    module = _module(Path(__file__).parents[1] / "system" / "own_process.py")
    module.die_with_parent(lambda: os.getppid() == parent)


def take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Move stdin and stdout to other descriptors, which programs started from here do not inherit, and return them.
    What the environment prints then goes to stderr, and it reads the end of a file."""
    questions, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return open(questions, "rb"), open(replies, "wb")


def load(place: str, name: str) -> Any:
    """Import a module, or a file that ends in `.py`, and return what is called `name` there: the module itself without
    a name, an instance for a class.

    Raises whatever the import does, and TypeError for an object without `prompt` and `score`.
    """
    # as Python does it for a script and for `-m`
    sys.path.insert(0, str(Path(place).parent) if place.endswith(".py") else os.getcwd())
    module = _module(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    found: Any = reduce(getattr, filter(None, name.split(".")), module)
    environment = found() if inspect.isclass(found) else found
    if missing := [one for one in ("prompt", "score") if not callable(getattr(environment, one, None))]:
        raise TypeError(f"there is no function {' and no function '.join(missing)}")
    return environment


def reply_to(question: Mapping[str, Any], environment: Any, wait: Callable[[Any], Any]) -> dict[str, Any]:
    """Ask the environment for a prompt or a score. `wait` returns the result of a coroutine."""

    def called(function: Callable[..., Any], *given: Any) -> Any:
        result = function(*given)
        return wait(result) if inspect.isawaitable(result) else result

    if "prompt" in question:
        return {"messages": called(environment.prompt, question["prompt"])}
    score = called(environment.score, question["score"], question["answer"])
    # numbers of NumPy are Real; so is a bool, which is more likely a mistake than a score
    if isinstance(score, bool) or not isinstance(score, Real):
        raise TypeError(f"score() gave a {type(score).__name__}, not a number")
    return {"score": float(score)}


def told(error: BaseException) -> str:
    """Type and message of an error, even of one whose message cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"[:ERROR_MAX]
    except Exception:  # noqa: BLE001 - the environment's own __str__
        return type(error).__name__


def serve(questions: Iterable[bytes], replies: BinaryIO, place: str, name: str) -> None:
    """Import the environment, and reply to questions until there are no more."""
    environment: Any = None

    def start() -> dict[str, Any]:
        nonlocal environment
        environment = load(place, name)
        return {"ready": True}

    def wait(result: Any) -> Any:
        return runner.run(_awaited(result))

    # one event loop for all calls: the environment may keep connections between them
    with asyncio.Runner() as runner:
        _say(replies, start)
        for line in questions:
            _say(replies, reply_to, json.loads(line), environment, wait)


def _say(replies: BinaryIO, make: Callable[..., dict[str, Any]], *given: Any) -> None:
    """Write the reply that `make` returns, or its error."""
    try:
        reply = json.dumps(make(*given))
    except BaseException as error:  # noqa: BLE001 - sys.exit() too: it must not end this process
        reply = json.dumps({"error": told(error)})
    replies.write(reply.encode() + b"\n")
    replies.flush()


async def _awaited(result: Any) -> Any:
    return await result


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)  # dataclasses and pickle look for it there
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    serve(*take_streams(), *sys.argv[2:4])
