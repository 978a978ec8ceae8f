"""Environments in processes of their own and behind HTTP: what they may do, and what they cannot do to the caller."""

import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from apollod.adapters.environments.environment_interface import Environment, Score, score_of
from apollod.adapters.environments.http_environment import HttpEnvironment
from apollod.adapters.environments.python_environment import PythonEnvironment, entry_of
from apollod.errors import ConfigError, EnvironmentFailed

GOOD = """
import asyncio, os, subprocess

def prompt(number):
    print("asked for", number)
    os.write(1, b"to the terminal")
    subprocess.run(["echo", "from a child"])
    return f"prompt {number}"

async def score(number, answer):
    await asyncio.sleep(0)
    return len(answer) / number
"""

Asking = Callable[[Environment], Awaitable[Any]]


def asking(environment: Environment, *questions: Asking) -> list[Any]:
    """The answers, or errors, of one environment, which is closed afterwards."""

    async def ask() -> list[Any]:
        found = list[Any]()
        for question in questions:
            try:
                found.append(await question(environment))
            except EnvironmentFailed as error:
                found.append(error)
        await environment.close()
        return found

    return anyio.run(ask)


def prompt(number: int) -> Asking:
    return lambda environment: environment.prompt(number)


def score(number: int, *answers: str) -> Asking:
    return lambda environment: environment.score(number, [{"role": "user", "content": "?"}], answers)


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., PythonEnvironment]:
    def made(source: str, name: str = "", **how: float) -> PythonEnvironment:
        (tmp_path / "sums.py").write_text(source)
        return PythonEnvironment(f"{tmp_path}/sums.py{name}", **how)

    return made


# --- in a process -----------------------------------------------------------------------------------------------------


def test_a_file_with_two_functions_is_an_environment_whatever_it_prints(python: Callable[..., Any]) -> None:
    found = asking(python(GOOD), prompt(3), score(2, "abc", ""), prompt(4))
    assert found == [
        [{"content": "prompt 3", "role": "user"}], [Score(1.5, ""), Score(0.0, "")],
        [{"content": "prompt 4", "role": "user"}],
    ]  # fmt: skip


def test_a_class_is_instantiated_and_a_module_is_imported(python: Callable[..., Any], tmp_path: Path) -> None:
    source = """
class Sums:
    def __init__(self): self.asked = 0
    def prompt(self, number): return [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1"}]
    def score(self, number, answer): self.asked += 1; return self.asked
"""
    prompts, scores = asking(python(source, ":Sums"), prompt(1), score(1, "2", "3"))
    assert [one["content"] for one in prompts] == ["Add.", "1 + 1"] and [one.value for one in scores] == [1.0, 2.0]
    ((of_module,),) = asking(PythonEnvironment("apollod.demo.naming"), prompt(1))
    assert of_module["role"] == "user"


def test_an_answer_that_cannot_be_scored_says_why_and_the_others_have_their_scores(python: Callable[..., Any]) -> None:
    source = """
def prompt(number): return "?"
def score(number, answer):
    given = {"nan": float("nan"), "none": None, "yes": True, "text": "1", "good": 1}
    return given.get(answer) if answer != "bad" else 1 / 0
"""
    ((*odd, good),) = asking(python(source), score(1, "nan", "none", "yes", "text", "bad", "good"))
    assert good == Score(1.0, "") and all(one.value is None and one.why for one in odd)
    assert "ZeroDivisionError" in odd[-1].why and "bool" in odd[2].why


def test_one_that_hangs_is_killed_and_started_again(python: Callable[..., Any], tmp_path: Path) -> None:
    source = f"""
import os, time
def prompt(number):
    open({str(tmp_path / "pids")!r}, "a").write(f"{{os.getpid()}}\\n")
    time.sleep(60 * (number == 1))
    return "?"
score = prompt
"""
    began = time.monotonic()
    failed, answered = asking(python(source, timeout_s=1.0), prompt(1), prompt(2))
    assert isinstance(failed, EnvironmentFailed) and "1 s" in str(failed) and answered[0]["content"] == "?"
    assert time.monotonic() - began < 30.0
    assert len(set((tmp_path / "pids").read_text().split())) == 2


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import os\ndef prompt(number): os._exit(3)\nscore = prompt", "3"),
        ("def prompt(number): raise KeyError('lost')\nscore = prompt", "KeyError"),
        ("def prompt(number): return 'x' * 3_000_000\nscore = prompt", "bytes"),
        ("def prompt(number): return [{'role': 'assistant', 'content': 'x'}]\nscore = prompt", "assistant"),
        ("def prompt(number): return ''\nscore = prompt", "empty"),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        ("x = 1", "there is no function prompt"),
        ("print('x' * 1_000_000)\nraise SystemExit('no data')", "no data"),
    ],
)
def test_a_failure_is_one_clear_line(python: Callable[..., Any], source: str, said: str) -> None:
    (failed,) = asking(python(source), prompt(1))
    assert isinstance(failed, EnvironmentFailed) and said in failed.line() and not failed.outside
    assert "\n" not in failed.line() and "sums.py" in failed.line()


def test_what_it_started_ends_with_it(python: Callable[..., Any], tmp_path: Path) -> None:
    source = f"""
import subprocess
def prompt(number):
    open({str(tmp_path / "pid")!r}, "w").write(str(subprocess.Popen(["sleep", "300"]).pid))
    return "?"
score = prompt
"""
    asking(python(source), prompt(1))
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline and _runs(pid):
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_it_does_not_see_our_secrets(python: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APOLLOD_ENGINE__API_KEY", "secret")
    source = "import os\ndef prompt(number): return str(sorted(os.environ))\nscore = prompt"
    ((asked,),) = asking(python(source), prompt(1))
    assert "APOLLOD_ENGINE__API_KEY" not in asked["content"]


def test_a_call_that_is_cancelled_leaves_no_reply_for_the_next_one(python: Callable[..., Any]) -> None:
    source = (
        "import time\ndef prompt(number):\n    time.sleep(0.5 * (number == 1))\n    return str(number)\nscore = prompt"
    )
    environment = python(source)

    async def ask() -> str:
        await environment.prompt(3)
        with anyio.move_on_after(0.1):
            await environment.prompt(1)
        answer = await environment.prompt(2)
        await environment.close()
        return str(answer[0]["content"])

    assert anyio.run(ask) == "2"


@pytest.mark.parametrize("entry", ["", "no such", "a:b:c", "/tmp/x.txt:f"])
def test_an_entry_that_is_none_is_refused_at_once(entry: str) -> None:
    with pytest.raises(ConfigError):
        entry_of(entry)


@pytest.mark.parametrize("value", [None, True, "1", [], math.nan, math.inf, 10**400])
def test_what_is_no_finite_number_is_no_score(value: Any) -> None:
    assert score_of(value).value is None and score_of(value).why


# --- behind HTTP ------------------------------------------------------------------------------------------------------

REPLIES: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "/good/prompt": (200, b'{"prompt": "1 + 1"}', {}),
    "/good/score": (200, b'{"scores": [1, null]}', {}),
    "/fewer/score": (200, b'{"scores": [1]}', {}),
    "/words/score": (200, b'{"scores": "no"}', {}),
    "/bad/prompt": (500, b"broken", {}),
    "/html/prompt": (200, b"<html>", {}),
    "/none/prompt": (200, b"{}", {}),
    "/moved/prompt": (302, b"", {"Location": "/good/prompt"}),
    "/large/prompt": (200, b'{"prompt": "' + b"x" * 3_000_000 + b'"}', {}),
}


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """Its address, and what it was asked: path, authorization, body."""
    asked = list[tuple[str, str, Any]]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers.get("Authorization", ""), msgspec.json.decode(body)))
            status, reply, headers = REPLIES[self.path]
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(reply))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()
        thread.join()


def test_a_service_gives_prompts_and_scores(server: Any) -> None:
    url, asked = server
    prompts, scores = asking(HttpEnvironment(f"{url}/good", api_key="k"), prompt(7), score(7, "2", "3"))
    assert prompts == [{"content": "1 + 1", "role": "user"}]
    assert scores[0] == Score(1.0, "") and scores[1].value is None
    assert asked[0] == ("/good/prompt", "Bearer k", {"number": 7})
    assert asked[1][2] == {"number": 7, "messages": [{"role": "user", "content": "?"}], "answers": ["2", "3"]}


@pytest.mark.parametrize(
    ("place", "question", "said"),
    [
        ("fewer", score(1, "2", "3"), "1 scores for 2 answers"), ("words", score(1, "2"), "without a list of scores"),
        ("bad", prompt(1), "500"), ("html", prompt(1), "no JSON object"), ("none", prompt(1), "no prompt 1"),
        ("moved", prompt(1), "redirects are not followed"), ("large", prompt(1), "bytes"),
    ],
)  # fmt: skip
def test_a_service_that_answers_otherwise_is_told_so(server: Any, place: str, question: Asking, said: str) -> None:
    (failed,) = asking(HttpEnvironment(f"{server[0]}/{place}"), question)
    assert isinstance(failed, EnvironmentFailed) and said in failed.line() and not failed.outside


def test_a_service_that_is_not_there_says_nothing_about_the_prompt() -> None:
    (failed,) = asking(HttpEnvironment("http://127.0.0.1:9"), prompt(1))
    assert isinstance(failed, EnvironmentFailed) and failed.outside


def test_no_descriptor_stays_open(python: Callable[..., Any]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        asking(python(GOOD), prompt(1))
    assert len(os.listdir("/proc/self/fd")) <= before
