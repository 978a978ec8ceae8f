"""An environment in a process of its own: whatever it does, there is a score, or an error within its time, and no
process is left."""

import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from apollod.adapters.environments.environment_interface import Score, messages_of
from apollod.adapters.environments.python_environment import PythonEnvironment, entry_of
from apollod.errors import ConfigError, EnvironmentFailed

ResultT = TypeVar("ResultT")

GOOD = """\
def prompt(number):
    return f"What is {number} + 1?"

def score(number, answer):
    return float(answer == str(number + 1))
"""
USER = [{"role": "user", "content": "What is 7 + 1?"}]


def ran(environment: PythonEnvironment, use: Callable[[Any], Awaitable[ResultT]]) -> ResultT:
    """Use an environment in an event loop, and close it."""

    async def main() -> ResultT:
        try:
            return await use(environment)
        finally:
            await environment.close()

    return anyio.run(main)


def prompted(environment: PythonEnvironment, number: int = 7) -> Any:
    return ran(environment, lambda it: it.prompt(number))


def scored(environment: PythonEnvironment, *answers: str) -> list[Score]:
    return ran(environment, lambda it: it.score(7, USER, answers))


def failed(environment: PythonEnvironment, use: Callable[[Any], Awaitable[object]] | None = None) -> str:
    with pytest.raises(EnvironmentFailed) as caught:
        ran(environment, use or (lambda it: it.prompt(7)))
    return caught.value.line()


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., PythonEnvironment]:
    """An environment by the text of its file."""

    def made(text: str, name: str = "", **limits: Any) -> PythonEnvironment:
        (path := tmp_path / "sums.py").write_text(text)
        return PythonEnvironment(f"{path}:{name}" if name else str(path), **limits)

    return made


Made = Callable[..., PythonEnvironment]


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Any:
    """Others are the server that forks daemons for tests, and what was there before."""
    before = children()
    yield
    assert children() - before == set()


def children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter: it ended between open and read
        return False


def gone(pid: int, limit_s: float = 10.0) -> bool:
    """True as soon as the process has ended."""
    end = time.monotonic() + limit_s
    while lives(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not lives(pid)


# --- prompts and scores ----------------------------------------------------------------------------------------------


def test_a_file_gives_prompts_and_scores(python: Made) -> None:
    async def use(it: PythonEnvironment) -> None:
        assert await it.prompt(7) == [{"content": "What is 7 + 1?", "role": "user"}] == await it.prompt(7)
        assert await it.score(7, USER, ["8", "9", "\u00fc\ud800"]) == [Score(1.0, ""), Score(0.0, ""), Score(0.0, "")]
        assert await it.score(7, USER, []) == []

    ran(python(GOOD), use)


def test_a_module_a_class_and_coroutine_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "__init__.py").touch()
    (tmp_path / "world" / "sums.py").write_text("""\
import asyncio, world

class Outer:
    class Sums:
        def __init__(self):
            self.asked = asyncio.Queue()

        async def prompt(self, number):
            self.asked.put_nowait(number)
            parts = [{"type": "text", "text": "?"}]
            return [{"role": "system", "content": "Be short."}, {"role": "user", "content": parts}]

        async def score(self, number, answer):
            await asyncio.sleep(0.01)
            return await asyncio.wait_for(self.asked.get(), 1) + len(answer)

ready = Outer.Sums()
""")

    async def use(it: PythonEnvironment) -> None:
        assert (await it.prompt(7))[0] == {"role": "system", "content": "Be short."}
        assert await it.score(7, USER, ["abc"]) == [Score(10.0, "")]

    ran(PythonEnvironment("world.sums:Outer.Sums", cwd=tmp_path), use)
    ran(PythonEnvironment("world.sums:ready", cwd=tmp_path), use)
    monkeypatch.chdir(tmp_path)
    ran(PythonEnvironment("world.sums:ready"), use)


def test_files_beside_it_are_imported_and_read(tmp_path: Path, python: Made) -> None:
    (tmp_path / "beside.py").write_text("TEXT = open('told.txt').read()")
    (tmp_path / "told.txt").write_text("from beside")
    assert prompted(python("from beside import TEXT\n" + GOOD.replace('f"What is {number} + 1?"', "TEXT")))[0] == {
        "role": "user", "content": "from beside",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("package.module:name", ("package.module", "name")),
        ("module", ("module", "")),
        ("module:Outer.inner", ("module", "Outer.inner")),
        ("/a:b/file.py", ("/a:b/file.py", "")),
        ("/a/my-file.py:name", ("/a/my-file.py", "name")),
    ],
)
def test_entries(text: str, found: tuple[str, str]) -> None:
    assert entry_of(text) == found


@pytest.mark.parametrize("text", ["", ":name", "module:", "a b", "a/b:c", "a.py:b:c", "module:1x", "a..b", "rm -rf"])
def test_an_entry_that_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="does not name an environment"):
        PythonEnvironment(text)


def test_what_it_prints_and_reads_does_not_disturb(python: Made) -> None:
    noisy = """\
import os, subprocess, sys
print("imported")
def prompt(number):
    print("to stdout", flush=True)
    os.write(1, b'{"messages": "a lie"}\\n')
    subprocess.run(["sh", "-c", "echo from a shell; cat"], check=True)
    return "true" + sys.stdin.read()
def score(number, answer):
    for _ in range(200):
        print("x" * 10_000, file=sys.stderr)
        print("y" * 10_000)
    return 1
"""

    async def use(it: PythonEnvironment) -> None:
        assert (await it.prompt(7))[0]["content"] == "true"
        assert await it.score(7, USER, ["a", "b"]) == [Score(1.0, "")] * 2

    ran(python(noisy, timeout_s=20.0), use)


def test_printing_between_calls_does_not_stop_it(tmp_path: Path, python: Made) -> None:
    chatty = f"""\
import pathlib, sys, threading
def print_a_lot():
    for _ in range(500):
        print("x" * 10_000)
    pathlib.Path({str(tmp_path / "done")!r}).touch()
def prompt(number):
    threading.Thread(target=print_a_lot).start()
    return "?"
score = prompt
"""

    async def use(it: PythonEnvironment) -> None:
        await it.prompt(7)
        with anyio.fail_after(20):
            while not (tmp_path / "done").exists():
                await anyio.sleep(0.01)

    ran(python(chatty), use)


def test_no_secret_is_passed(python: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("APOLLOD_JUDGE__API_KEY", "HF_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "for nobody else")
    seen = prompted(python("import os, json\ndef prompt(number): return json.dumps(dict(os.environ))\nscore = prompt"))
    assert "for nobody else" not in seen[0]["content"] and "PATH" in seen[0]["content"]


# --- what cannot be scored or asked ----------------------------------------------------------------------------------


def test_an_answer_that_cannot_be_scored_has_a_reason_and_no_other_is_affected(python: Made) -> None:
    scores = """\
import fractions, sys
class Mute(Exception):
    def __str__(self): raise RuntimeError
class NumberOfALibrary(float): pass
def prompt(number): return "?"
def score(number, answer):
    return eval(answer)
"""
    asked = ["1", "fractions.Fraction(1, 2)", "NumberOfALibrary(2)", "1/0", "float('nan')", "float('-inf')", "None",
             "True", "'0.5'", "[1]", "10**400", "sys.exit(4)", "(_ for _ in ()).throw(Mute)", "int('x' * 50000)", "3",
             ]  # fmt: skip
    found = scored(python(scores), *asked)
    assert [one.value for one in found] == [1.0, 0.5, 2.0, *[None] * 11, 3.0]
    whys = [one.why for one in found[3:-1]]
    assert whys[:8] == [
        "ZeroDivisionError: division by zero", "the score is nan, no finite number",
        "the score is -inf, no finite number", "TypeError: score() gave a NoneType, not a number",
        "TypeError: score() gave a bool, not a number",
        "TypeError: score() gave a str, not a number", "TypeError: score() gave a list, not a number",
        "OverflowError: int too large to convert to float",
    ]  # fmt: skip
    assert whys[8:10] == ["SystemExit: 4", "Mute"] and "invalid literal" in whys[10] and len(whys[10]) <= 10_000
    assert {one.why for one in found if one.value is not None} == {""}


def test_long_reasons_are_cut(python: Made) -> None:
    (one,) = scored(
        python("def prompt(number): pass\ndef score(number, answer): raise ValueError('\U0001f600' * 99999)"), ""
    )
    assert one.value is None and len(one.why) == 10_000


def test_a_prompt_that_fails_names_the_error_and_keeps_the_process(python: Made) -> None:
    picky = "import os\ndef prompt(number): return {1: str(os.getpid()), 2: {object()}}[number]\nscore = prompt"

    async def use(it: PythonEnvironment) -> None:
        before = (await it.prompt(1))[0]["content"]
        with pytest.raises(EnvironmentFailed, match=r"sums\.py has no prompt 3: KeyError: 3") as caught:
            await it.prompt(3)
        assert caught.value.hint == "repair its prompt()"
        with pytest.raises(EnvironmentFailed, match="TypeError: Object of type set is not JSON serializable"):
            await it.prompt(2)
        assert (await it.prompt(1))[0]["content"] == before

    ran(python(picky), use)


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("", "it is empty"), ([], "it is empty"), (7, "it is a JSON number"), (None, "it is a JSON null"),
        (["x"], "message 1 is a JSON string, not an object"),
        ([{"role": "robot", "content": "x"}], "message 1 has the role 'robot'"),
        ([{"role": "user", "content": 7}], "the content of message 1 is a JSON number"),
        ([*USER, {"role": "assistant", "content": "8"}], "its last turn has the role assistant"),
        ("half \ud800 a pair", "half of a surrogate pair"),
    ],
)  # fmt: skip
def test_a_prompt_of_another_form_is_refused(prompt: object, why: str) -> None:
    with pytest.raises(EnvironmentFailed, match=f"the environment sums gave a prompt 7 that cannot be asked: .*{why}"):
        messages_of(prompt, "sums", 7)


def test_a_turn_of_a_tool_may_be_last() -> None:
    call = {"function": {"name": "add", "arguments": '{"a": 7}'}, "type": "function", "id": "1"}
    messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "content": "8", "tool_call_id": "1"}]  # fmt: skip
    assert messages_of(messages, "sums", 7) == messages


# --- processes that fail ---------------------------------------------------------------------------------------------


def test_one_that_hangs_is_killed_and_started_again(python: Made) -> None:
    slow = """\
import os, time
def prompt(number):
    return str(os.getpid())
def score(number, answer):
    time.sleep(float(answer))
    return 1
"""

    async def use(it: PythonEnvironment) -> None:
        before = int((await it.prompt(7))[0]["content"])
        began = time.monotonic()
        with pytest.raises(EnvironmentFailed, match=r"sums\.py took longer than 1 s to answer and was killed") as error:
            await it.score(7, USER, ["0", "600"])
        assert "allow it more time" in error.value.line()
        assert time.monotonic() - began < 10 and not lives(before)
        assert int((await it.prompt(7))[0]["content"]) != before
        assert await it.score(7, USER, ["0"]) == [Score(1.0, "")]

    ran(python(slow, timeout_s=1.0), use)


def test_a_cancelled_call_leaves_no_reply_for_the_next(python: Made) -> None:
    slow = "import time\ndef prompt(number):\n    time.sleep(number)\n    return str(number)\nscore = prompt"

    async def use(it: PythonEnvironment) -> None:
        assert (await it.prompt(0))[0]["content"] == "0"
        with anyio.move_on_after(0.1):
            await it.prompt(1)
        assert (await it.prompt(0))[0]["content"] == "0"

    ran(python(slow), use)


def test_cancelled_while_it_starts(python: Made) -> None:
    async def use(it: PythonEnvironment) -> None:
        for wait in (0.0, 0.001, 0.01, 0.05):
            with anyio.move_on_after(wait):
                await it.prompt(7)
        assert (await it.prompt(7))[0]["content"] == "What is 7 + 1?"

    ran(python(GOOD), use)


def test_calls_at_one_time_get_their_own_replies(python: Made) -> None:
    async def use(it: PythonEnvironment) -> None:
        async def one(number: int) -> None:
            assert (await it.prompt(number))[0]["content"] == f"What is {number} + 1?"
            assert [score.value for score in await it.score(number, USER, [str(number + 1), "x"])] == [1.0, 0.0]

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(one, number)

    ran(python(GOOD), use)


def test_one_that_dies_tells_its_exit_status_and_last_words(python: Made) -> None:
    dying = """\
import os, signal, sys
def prompt(number):
    return "?"
def score(number, answer):
    print("first line"); print("out of \\x1b luck")
    os._exit(3) if answer == "3" else os.kill(os.getpid(), signal.SIGKILL)
"""

    async def use(it: PythonEnvironment) -> None:
        for answer, how in (("3", "exit code 3"), ("x", "killed by SIGKILL")):
            with pytest.raises(EnvironmentFailed) as caught:
                await it.score(7, USER, [answer])
            assert f"sums.py died ({how}): out of \ufffd luck; repair what ends it" in caught.value.line()
            assert (await it.prompt(7))[0]["content"] == "?"

    ran(python(dying), use)


def test_one_that_died_since_the_last_call(python: Made) -> None:
    dying = """\
import os, threading
def prompt(number):
    threading.Timer(0.5, os._exit, [3]).start()
    return str(os.getpid())
score = prompt
"""

    async def use(it: PythonEnvironment) -> None:
        pid = int((await it.prompt(7))[0]["content"])
        await anyio.to_thread.run_sync(gone, pid)
        with pytest.raises(EnvironmentFailed, match=r"died \(exit code 3\)"):
            await it.prompt(7)
        await it.prompt(7)

    ran(python(dying), use)


FORKING = """\
import os, subprocess, sys, time
pids = [os.fork()]
if pids[0] == 0:
    time.sleep(600)
pids.append(subprocess.Popen(["sleep", "600"]).pid)
def prompt(number):
    return " ".join(map(str, pids))
def score(number, answer):
    os._exit(3) if answer == "die" else time.sleep(600)
"""


@pytest.mark.parametrize("how", ["close", "die", "hang"])
def test_the_processes_that_it_started_end_with_it(how: str, python: Made) -> None:
    """The forked one holds the stream of replies open."""

    async def use(it: PythonEnvironment) -> list[int]:
        pids = [int(pid) for pid in (await it.prompt(7))[0]["content"].split()]
        assert all(map(lives, pids))
        if how != "close":
            with pytest.raises(EnvironmentFailed, match=r"exit code 3" if how == "die" else "took longer than 1 s"):
                await it.score(7, USER, [how])
            assert all(gone(pid, 2.0) for pid in pids)
        return pids

    assert all(gone(pid, 2.0) for pid in ran(python(FORKING, timeout_s=1.0), use))


def test_they_end_too_where_it_died_between_two_calls(python: Made) -> None:
    async def use(it: PythonEnvironment) -> None:
        pids = [int(pid) for pid in (await it.prompt(7))[0]["content"].split()]
        assert all([await anyio.to_thread.run_sync(gone, pid) for pid in pids])

    dying = FORKING.replace("import os,", "import threading, os,")
    dying = dying.replace("def prompt(number):", "def prompt(number):\n    threading.Timer(0.5, os._exit, [0]).start()")
    ran(python(dying), use)


def test_it_may_clean_up_before_it_is_closed(tmp_path: Path, python: Made) -> None:
    prompted(
        python(f"import atexit, pathlib\natexit.register(pathlib.Path({str(tmp_path / 'clean')!r}).touch)\n{GOOD}")
    )
    assert (tmp_path / "clean").exists()


def test_closing_one_that_does_not_end_takes_seconds(python: Made) -> None:
    began = time.monotonic()
    prompted(python(f"import atexit, time\natexit.register(time.sleep, 600)\n{GOOD}"))
    assert time.monotonic() - began < 20


def test_a_closed_one_can_be_asked_again(python: Made) -> None:
    async def use(it: PythonEnvironment) -> None:
        await it.close()
        await it.prompt(7)
        await it.close()
        await it.close()
        await it.prompt(7)

    ran(python(GOOD), use)


def test_it_is_closed_by_a_task_that_was_cancelled_too(python: Made) -> None:
    async def use(it: PythonEnvironment) -> None:
        before = children()
        await it.prompt(7)
        assert children() > before
        with anyio.CancelScope() as scope:
            scope.cancel()
            await it.close()
        assert children() == before

    ran(python(GOOD), use)


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("import no_such_package_here", "", "ModuleNotFoundError: No module named 'no_such_package_here'"),
        ("def prompt(", "", "SyntaxError: '(' was never closed"),
        ("raise SystemExit('no GPU')", "", "SystemExit: no GPU"),
        (GOOD, "Sums", "AttributeError: module 'sums' has no attribute 'Sums'"),
        ("class Sums:\n    def __init__(self, size): pass", "Sums", "missing 1 required positional argument: 'size'"),
        ("class Sums: pass", "Sums", "TypeError: there is no function prompt and no function score"),
        ("def prompt(number): pass", "", "TypeError: there is no function score"),
    ],
)
def test_one_that_cannot_be_imported(text: str, name: str, why: str, python: Made) -> None:
    line = failed(python(text, name))
    assert f"sums.py{name and ':'}{name} cannot be imported: " in line and why in line
    assert line.endswith("try to import it with the daemon's Python")


def test_its_interpreter_and_its_variables_are_chosen(python: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("HF_TOKEN", "t")
    text = "import os, sys\ndef prompt(number):\n    return repr((sys.executable, {}))\nscore = prompt"
    told = text.format("os.environ.get('OPENAI_API_KEY'), os.environ.get('HF_TOKEN'), os.environ['PATH']")
    given = python(told, python=sys.executable, variables=("OPENAI_API_KEY", "NONE"))
    name, key, other, path = ast.literal_eval(prompted(given)[0]["content"])
    assert (name, key, other) == (sys.executable, "k", None)
    assert path.split(os.pathsep)[0] == os.path.dirname(sys.executable)
    assert ast.literal_eval(prompted(python(told))[0]["content"])[1:3] == (None, None)
    with pytest.raises(ConfigError, match="there is no program /no/python"):
        python(told, python="/no/python")


def test_a_program_in_a_session_of_its_own_is_killed_as_well(python: Made) -> None:
    text = """\
import subprocess, time
def prompt(number):
    return str(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
def score(number, answer):
    time.sleep(600)
"""

    async def use(it: PythonEnvironment) -> None:
        pid = int((await it.prompt(7))[0]["content"])
        assert lives(pid)
        with pytest.raises(EnvironmentFailed):
            await it.score(7, USER, ["0"])
        assert not lives(pid)

    ran(python(text, timeout_s=1.0), use)


def test_a_file_or_directory_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "FileNotFoundError" in failed(PythonEnvironment(str(tmp_path / "empty" / "none.py")))
    line = failed(PythonEnvironment(str(tmp_path / "no" / "x.py")))
    assert f"cannot be started in {tmp_path}/no: No such file or directory; look whether" in line
    assert "No module named 'no_such_module'" in failed(PythonEnvironment("no_such_module", cwd=tmp_path))


def test_a_repaired_one_is_imported_at_the_next_call(python: Made) -> None:
    async def use(it: PythonEnvironment) -> None:
        with pytest.raises(EnvironmentFailed, match="cannot be imported"):
            await it.prompt(7)
        python(GOOD)
        assert await it.prompt(7)

    ran(python("import no_such_package_here"), use)


def test_an_import_has_a_limit_of_its_own(python: Made) -> None:
    slow = f"import time\ntime.sleep(2)\n{GOOD}"
    assert prompted(python(slow, timeout_s=1.5))
    assert "took longer than 0.2 s to import" in failed(python(slow, import_s=0.2))


def test_a_reply_that_is_too_long_is_not_kept(python: Made) -> None:
    long = "def prompt(number): return 'x' * (10 << 20 if number else 1 << 19)\nscore = prompt"

    async def use(it: PythonEnvironment) -> None:
        with pytest.raises(EnvironmentFailed, match=r"sums\.py sent a reply of more than 1048576 bytes and was killed"):
            await it.prompt(7)
        assert len((await it.prompt(0))[0]["content"]) == 1 << 19

    ran(python(long), use)


WRITING = """\
import os
def prompt(number):
    for descriptor in range(3, 30):
        try:
            os.write(descriptor, {text!r})
        except OSError:
            pass
    return "?"
score = prompt
"""


@pytest.mark.parametrize(
    "text", [b"hello\x00 \xff\n", b"[1]\n", b'{"score": 1}\n', b'{"error": 7}\n', b"[" * 100_000 + b"\n"]
)
def test_nonsense_in_place_of_a_reply(text: bytes, python: Made) -> None:
    line = failed(python(WRITING.format(text=text)))
    assert "wrote nonsense where a reply belongs and was killed: " in line and line.isprintable() and len(line) < 700


def test_one_that_closes_its_replies(python: Made) -> None:
    closing = "import os, time\ndef prompt(number):\n    os.closerange(3, 30)\n    time.sleep(600)\nscore = prompt"
    assert "closed the stream of its replies and was killed" in failed(python(closing))


def test_it_dies_with_the_daemon(tmp_path: Path) -> None:
    """Whatever kills that, and also in the middle of a call, where it does not see that its input has ended."""
    (tmp_path / "sums.py").write_text("""\
import os, pathlib, time
def prompt(number):
    pathlib.Path("part").write_text(str(os.getpid()))
    os.rename("part", "pid")
    time.sleep(600)
score = prompt
""")
    daemon = f"""\
import anyio
from apollod.adapters.environments.python_environment import PythonEnvironment
anyio.run(PythonEnvironment({str(tmp_path / "sums.py")!r}).prompt, 7)
"""
    with subprocess.Popen([sys.executable, "-c", daemon]) as process:
        while not (tmp_path / "pid").exists():
            assert process.poll() is None
            time.sleep(0.01)
        pid = int((tmp_path / "pid").read_text())
        assert lives(pid)
        process.send_signal(signal.SIGKILL)
    assert gone(pid)
