"""Shared by all demos: the directory in which one runs, removed afterwards; progress lines; questions to the served
model over HTTP, and log-probabilities of given answers."""

import json
import math
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from apollod.errors import ApolloError
from apollod.testing.daemon import Daemon, Status

POLL_S = 0.5
STOP_S = 30.0
ANSWER_TOKENS = 48

Table = Callable[[Sequence[str], Sequence[Sequence[Any]]], str]
"""Column names and rows as text."""


class Stage:
    """`with Stage(args.dir, "apollod-demo-") as stage:` and `stage.daemon = Daemon(stage.root, ...)`.

    At the end the daemon is stopped, and the directory removed, unless the user chose it, `keep` is set, or an error
    needs the logs in it, which are named then. SIGTERM ends the block, too.
    """

    def __init__(self, directory: str | None, prefix: str) -> None:
        """Raises ApolloError for a directory with an earlier demo in it."""
        self.keep = bool(directory)
        self.daemon: Daemon | None = None
        if directory and (Path(directory).expanduser() / "state" / "journal.db").exists():
            raise ApolloError(f"{directory} holds an earlier demo", "remove it, or choose another --dir")
        self.root = Path(directory).expanduser().absolute() if directory else Path(tempfile.mkdtemp(prefix=prefix))
        self.root.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Stage":
        signal.signal(signal.SIGTERM, _terminated)
        return self

    def __exit__(self, kind: object, error: object, where: object) -> None:
        if self.daemon is not None:
            self.daemon.end(STOP_S)
        if isinstance(error, Exception) and (self.root / "daemon.log").exists():
            say(f"apollod: the logs are in {self.root}/daemon.log and {self.root}/state/log")
        elif not self.keep:
            shutil.rmtree(self.root, ignore_errors=True)


def say(text: str) -> None:
    """Print progress to stderr: stdout is for the table and the JSON line; with --json for that alone."""
    print(text, file=sys.stderr, flush=True)


def wait(daemon: Daemon, done: Callable[[Status], bool], timeout_s: float, what: str) -> Status:
    """Poll status until `done`, showing progress. Raises ApolloError for a daemon that cannot go on."""
    line = Line()

    def look(status: Status) -> None:
        if status:
            line.show(progress_of(status))

    status = daemon.wait(done, what, timeout_s, POLL_S, look)
    line.clear()
    return status


def progress_of(status: Status) -> str:
    """One line of progress. Raises ApolloError for a daemon that is degraded."""
    if status["state"] == "degraded":
        raise ApolloError(f"the daemon is degraded: {status['error']}", "see daemon.log and state/log")
    q = status["queue"]
    return f"    {status['state']}: step {status['step']}" + (f", {q['pending']} pending" if q["accepted"] else "")


class Line:
    """A line that is updated on a terminal; elsewhere a new line per change."""

    def __init__(self) -> None:
        self._last = ""
        self._changes = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the shown text."""
        if self._changes:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif text != self._last:
            say(text)
        self._last = text

    def clear(self) -> None:
        """Clear the line for one that stays."""
        if self._changes:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _terminated(number: int, frame: object) -> None:
    raise SystemExit(128 + number)  # so that the daemon is stopped too


# --- the served model -------------------------------------------------------------------------------------------------


def data(name: str) -> list[str]:
    """Lines of a shipped file."""
    return (resources.files("apollod") / "data" / name).read_text(encoding="utf-8").splitlines()


def post(daemon: Daemon, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a POST of JSON. Raises ApolloError for any status but 200."""
    try:
        status, answer = daemon.post(path, body)
    except (OSError, ValueError) as error:
        raise ApolloError(f"POST {path} failed: {error}", "see the engine's log") from error
    if status != 200:
        raise ApolloError(f"POST {path} was answered with {status}: {answer}", "see the engine's log")
    return dict(answer)


def chat(daemon: Daemon, model: str, question: str) -> str:
    """The greedy answer to a question, at most `ANSWER_TOKENS` long."""
    messages = [{"role": "user", "content": question}]
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": ANSWER_TOKENS}
    return str(post(daemon, "/v1/chat/completions", body)["choices"][0]["message"]["content"]).strip()


def mean_logprob(daemon: Daemon, model: str, directory: Path, records: Iterable[Mapping[str, Any]]) -> float:
    """Mean log-probability per token of the last turns of conversations (natural logarithm).

    Computed by the engine with `prompt_logprobs`, which never reads the prefix cache. Counts the tokens behind the
    prompt up to the end of the turn, which are the learned ones.
    """
    end = json.loads((directory / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    total = count = 0.0
    for record in records:
        messages = record["messages"]
        prompt = _tokens(daemon, model, messages[:-1], True)
        full = _tokens(daemon, model, messages, False)
        full = full[: len(full) - full[::-1].index(end)]
        body = {"model": model, "prompt": full, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
        scored = post(daemon, "/v1/completions", body)["choices"][0]["prompt_logprobs"]
        for token, choices in zip(full[len(prompt) :], scored[len(prompt) :], strict=True):
            value = choices[str(token)]["logprob"]
            total += value if math.isfinite(value) else -100.0
            count += 1
    return total / count


def _tokens(daemon: Daemon, model: str, messages: list[Any], prompt: bool) -> list[int]:
    body = {"model": model, "messages": messages, "add_generation_prompt": prompt}
    return list(post(daemon, "/tokenize", body)["tokens"])
