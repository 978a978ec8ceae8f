"""A pattern's check: passes, does not, or cannot be told, always within its time."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from apollod.adapters import check_child, checks
from apollod.adapters.checks import check, problem
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.settings import Check
from apollod.errors import DreamCheckFailed

SCENARIO = (Turn("user", "Could you open the d\u00f6or?"),)


def checked(asked: Check, answer: str, timeout_s: float = 10.0) -> tuple[bool, str]:
    return anyio.run(check, asked, SCENARIO, answer, timeout_s)


@pytest.fixture
def command(tmp_path: Path) -> Callable[[str], Check]:
    """A check by a shell script."""

    def made(script: str) -> Check:
        (path := tmp_path / "check").write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        return Check(command=(str(path), "argument with a space"))

    return made


def schema(tmp_path: Path, value: object) -> Check:
    (path := tmp_path / "schema.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return Check(schema=str(path))


# --- regex -----------------------------------------------------------------------------------------------------------


def test_a_regex_is_searched_for() -> None:
    asked = Check(regex=r"(?i)^good day\b")
    assert checked(asked, "Good day! I open the d\u00f6or.") == (True, "")
    passed, why = checked(asked, "I open it. Good day!")
    assert not passed and "does not match" in why
    assert checked(Check(regex="\ud800?x"), "\udfffx")[0]


def test_a_regex_that_takes_for_ever_is_killed() -> None:
    began = time.monotonic()
    with pytest.raises(DreamCheckFailed, match=r"took longer than 0\.3 s"):
        checked(Check(regex="(a+)+$"), "a" * 40 + "b", timeout_s=0.3)
    assert time.monotonic() - began < 30
    assert _children() == set()


def test_of_many_checks_one_that_takes_for_ever_or_cannot_be_used_leaves_the_others_alone() -> None:
    asked = [("a", "cab"), ("(a+)+$", "a" * 40 + "b"), ("b", "ccc"), ("(", "x"), ("c", "c")]
    found = anyio.run(checks.check_all, "regex", asked, 0.3)
    assert [one if isinstance(one, tuple) else type(one) for one in found] == [
        (True, ""), DreamCheckFailed, (False, "the answer does not match 'b'"), DreamCheckFailed, (True, ""),
    ]  # fmt: skip
    assert "took longer than 0.3 s" in str(found[1]) and "cannot be checked" in str(found[3])
    many = anyio.run(checks.check_all, "regex", [(str(n), "17") for n in range(40)], 5.0)
    assert [n for n, one in enumerate(many) if one == (True, "")] == [1, 7, 17] and len(many) == 40
    assert _children() == set()


def test_long_reasons_of_many_checks_are_all_read() -> None:
    """Each sign of such a pattern takes twelve bytes in JSON."""
    asked = [("\U0001f600" * 5000, "x")] * checks.CHECKS_MAX
    found = anyio.run(checks.check_all, "regex", asked, 5.0)
    assert len(found) == checks.CHECKS_MAX and all(isinstance(one, tuple) and not one[0] for one in found)


@pytest.mark.parametrize("printed", ["'the answer does not", "[" * 100_000, "7"])
def test_a_reason_that_cannot_be_read_is_no_verdict(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (child := tmp_path / "child.py").write_text(f"print({printed!r})\n")
    monkeypatch.setattr(check_child, "__file__", str(child))
    with pytest.raises(DreamCheckFailed, match="the regex cannot be checked"):
        checked(Check(regex="a"), "x")


def test_it_ends_also_where_nobody_is_left_to_kill_it() -> None:
    told = {"kind": "regex", "checks": [["(a+)+$", "a" * 40 + "b"]], "limit_s": 0.1}
    ended = subprocess.run(
        [sys.executable, "-I", "-S", check_child.__file__], input=json.dumps(told).encode(), timeout=120, check=False
    )
    assert ended.returncode == -signal.SIGALRM


# --- schema ----------------------------------------------------------------------------------------------------------


def test_a_schema_is_followed_or_not(tmp_path: Path) -> None:
    asked = schema(tmp_path, {"type": "object", "required": ["answer"], "properties": {"answer": {"$ref": "#/$defs/a"}},
                              "$defs": {"a": {"type": "string"}}})  # fmt: skip
    assert checked(asked, '{"answer": "I open it."}') == (True, "")
    passed, why = checked(asked, '{"answer": 1}')
    assert not passed and "$.answer" in why and "'string'" in why
    passed, why = checked(asked, "Sure: {}")
    assert not passed and "no JSON" in why


def test_nothing_is_fetched_for_a_schema(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(DreamCheckFailed, match=f"Unresolvable: http://127.0.0.1:{port}"):
            checked(schema(tmp_path, {"$ref": f"http://127.0.0.1:{port}/schema.json"}), "{}", 5.0)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_schema_that_is_gone_later_is_no_verdict(tmp_path: Path) -> None:
    asked = schema(tmp_path, {"type": "object"})
    Path(asked.schema).unlink()
    with pytest.raises(DreamCheckFailed, match="cannot be read: No such file"):
        checked(asked, "{}")


def test_a_schema_that_is_no_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    began = time.monotonic()
    with pytest.raises(DreamCheckFailed, match="is no file"):
        checked(Check(schema=str(pipe)), "{}", 2.0)
    assert "is no file" in problem(Check(schema=str(pipe)))
    assert time.monotonic() - began < 30


def test_a_schema_that_takes_long_to_read_stops_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(path: str) -> object:
        time.sleep(1)
        return {}

    monkeypatch.setattr(checks, "_schema", slow)
    ticks = 0

    async def ticking() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.02)
            ticks += 1

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ticking)
            with pytest.raises(DreamCheckFailed, match=r"took longer than 0\.3 s to read"):
                await check(schema(tmp_path, {}), SCENARIO, "{}", 0.3)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    assert ticks > 5


# --- command ---------------------------------------------------------------------------------------------------------


def test_a_command_reads_scenario_and_answer(command: Callable[[str], Check], tmp_path: Path) -> None:
    assert checked(command(f'cat > {tmp_path}/told; echo "$@" >> {tmp_path}/args'), "Good d\u00e4y!") == (True, "")
    assert json.loads((tmp_path / "told").read_text()) == {
        "messages": [{"role": "user", "content": "Could you open the d\u00f6or?"}], "answer": "Good d\u00e4y!",
    }  # fmt: skip
    assert (tmp_path / "args").read_text() == "argument with a space\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'no greeting \x1b[31m'; echo more; exit 1", "no greeting \ufffd[31m"),
        ("exit 1", "says no"),
        ("exec 0<&-; head -c 3000000 /dev/zero | tr '\\0' x; exit 1", "x" * 300),
    ],
)
def test_a_command_that_says_no_says_why(command: Callable[[str], Check], script: str, said: str) -> None:
    passed, why = checked(command(script), "x" * 300_000)
    assert not passed and why.endswith(said) and len(why) <= 300


@pytest.mark.parametrize(
    ("script", "timeout_s", "why"),
    [
        ("echo oh dear >&2; exit 2", 60.0, "exit code 2, neither 0 nor 1: oh dear"),
        ("kill -9 $$", 60.0, "killed by SIGKILL"),
        ("sleep 60 & sleep 60", 0.5, r"took longer than 0\.5 s and was killed"),
    ],
)
def test_a_command_that_does_neither_is_no_verdict(
    command: Callable[[str], Check], script: str, timeout_s: float, why: str
) -> None:
    with pytest.raises(DreamCheckFailed, match=why):
        checked(command(script), "x", timeout_s=timeout_s)
    assert _children() == set()


def test_a_command_that_leaves_somebody_behind_is_not_waited_for(
    command: Callable[[str], Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "PIPES_S", 60.0)
    began = time.monotonic()
    seconds = f"90.{os.getpid()}"  # no other process of this machine has them
    assert checked(command(f"sleep {seconds} & echo no; exit 1"), "x") == (False, "no")
    assert time.monotonic() - began < 30
    assert not _running(f"sleep\0{seconds}")


def test_what_a_command_prints_is_not_kept_for_ever(command: Callable[[str], Check]) -> None:
    printing = command("head -c 3000000 /dev/zero").command
    ended = anyio.run(checks._run, printing, b"", 10.0, "check")
    assert (ended.code, len(ended.said)) == (0, checks.SAID_BYTES_MAX)


def test_somebody_who_got_away_is_not_waited_for(
    command: Callable[[str], Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "PIPES_S", 0.1)
    began = time.monotonic()
    assert checked(command("echo no; setsid sleep 40 & sleep 0.1; exit 1"), "x") == (False, "no")
    assert time.monotonic() - began < 30


def test_a_command_that_is_not_there_is_no_verdict() -> None:
    with pytest.raises(DreamCheckFailed, match="cannot be started: No such file"):
        checked(Check(command=("/nowhere/check",)), "x")
    with pytest.raises(DreamCheckFailed, match="cannot be started"):
        checked(Check(command=("a\0b",)), "x")


def test_a_command_sees_no_secret(
    command: Callable[[str], Check], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("APOLLOD_JUDGE__API_KEY", "HF_TOKEN", "OPENAI_API_KEY", "CREDENTIALS_DIRECTORY"):
        monkeypatch.setenv(name, "for nobody else")
    assert checked(command(f"env > {tmp_path}/env"), "x")[0]
    seen = (tmp_path / "env").read_text()
    assert "for nobody else" not in seen and "PATH=" in seen


# --- before there is an answer ---------------------------------------------------------------------------------------


def test_what_cannot_be_used_is_said_at_once(tmp_path: Path, command: Callable[[str], Check]) -> None:
    good = [Check(), Check(regex="a+"), Check(rubric="Kind?"), Check(command=("sh", "-c", "true")), command("true"),
            schema(tmp_path, {"type": "string"})]  # fmt: skip
    assert [problem(one) for one in good] == [""] * len(good)
    assert "no regular expression: missing )" in problem(Check(regex="(a"))
    assert "no regular expression" in problem(Check(regex="a{99999999999999999999}"))
    assert "is not there" in problem(Check(command=("/nowhere/check",)))
    (plain := tmp_path / "plain").write_text("#!/bin/sh")
    assert "may not be run" in problem(Check(command=(str(plain),)))
    assert "cannot be read" in problem(Check(schema=str(tmp_path / "none.json")))
    assert "is no JSON:" in problem(schema(tmp_path, "{"))
    assert "is no JSON object" in problem(schema(tmp_path, [1]))
    assert "is no JSON schema: $.type" in problem(schema(tmp_path, {"type": "sting"}))
    assert "larger than 1 MiB" in problem(schema(tmp_path, " " * (1 << 20) + "{}"))


def _children() -> set[int]:
    """Of this process, without those that were there before the test: the server that forks daemons for others."""
    return _all_children() - _before


def _all_children() -> set[int]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(map(int, task.read_text().split()))


_before: set[int] = set()


@pytest.fixture(autouse=True)
def _known_children() -> None:
    _before.clear()
    _before.update(_all_children())


def _running(command: str) -> bool:
    me = os.getuid()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid == me and (path / "cmdline").read_text().strip("\0") == command:
                return True
        except OSError:
            continue
    return False
