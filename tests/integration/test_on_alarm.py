"""`[quality] on_alarm` over real HTTP and with real commands: told, whatever the other side does, and nothing is left
running."""

import json
import os
import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from support import llm_server as behave
from support.llm_server import Behaviour, serving

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.cli.main import main
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core import schedules
from apollod.core.facts.quality.state import Message
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.errors import ConfigError
from apollod.supervisor import app
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.executor import Executor
from apollod.supervisor.executor.quality_effects import HANDLERS
from apollod.supervisor.loop import Loop
from apollod.supervisor.quality import teller

NONE = cast(Any, None)
SECRET = "T0PSECRET"
MESSAGE = Message(
    7, "alarmed", 1_700_000_000_000_000_000, 6, 3, ("facts.passed",), {"facts.passed": ev.Drop(0.5, 0.25, 0.75)}
)


def config(wanted: str | Sequence[str], state: Path | str = "/s") -> Config:
    given = wanted if isinstance(wanted, str) else json.dumps(list(wanted))
    return load_config(None, ["model.path=/m", f"state.dir={state}", f"quality.on_alarm={given}"], {})


def tell(wanted: str | Sequence[str], message: Message = MESSAGE) -> str:
    """The effect, carried out; what went wrong."""

    async def work() -> str:
        context = cast(Any, SimpleNamespace(config=config(wanted)))
        found = await HANDLERS[fx.TellAlarm].run(context, fx.TellAlarm(message.incident, message.about, message))
        assert isinstance(found, inp.AlarmTold) and (found.incident, found.about) == (7, "alarmed")
        return found.error

    return anyio.run(work)


def post(*script: Behaviour, path: str = f"/services/{SECRET}") -> tuple[str, list[behave.Request], int]:
    """What is said of a server that behaves so, what it was asked, and how many clients it saw leave."""

    async def work() -> tuple[str, list[behave.Request], int]:
        async with serving(*script) as server:
            error = await teller.tell(config(f"http://127.0.0.1:{server.port}{path}"), MESSAGE)
            with anyio.move_on_after(2):
                while server.active:
                    await anyio.sleep(0.01)
            return error.replace(str(server.port), "PORT"), server.requests, server.left

    return anyio.run(work)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teller, "LIMIT_S", 2.0)


# --- a URL -----------------------------------------------------------------------------------------------------------


def test_what_is_posted() -> None:
    error, (request,), _ = post(behave.answers(b"thanks", 204))
    assert (
        error == "" and request.path == f"/services/{SECRET}" and request.headers["content-type"] == "application/json"
    )
    assert request.body == {
        "schema_version": 1, "event": "alarmed", "incident": 7, "at": "2023-11-14T22:13:20.000000Z", "step": 6, "to": 3,
        "metrics": ["facts.passed"], "drops": {"facts.passed": {"drop": 0.5, "low": 0.25, "high": 0.75}},
        "taken_back": None, "how": None, "by": None, "model": "apollo", "host": os.uname().nodename,
        "journal": "/s/journal.db",
    }  # fmt: skip


def test_a_rate_that_has_to_be_lowered_is_told_with_how_before_the_end() -> None:
    message = msgspec.structs.replace(MESSAGE, about="rate", how="use [trainer] lr = 1e-05")
    found = teller.message_of(config("/bin/true"), message)
    assert (found["event"], found["how"], found["by"], found["taken_back"]) == (
        "rate", "use [trainer] lr = 1e-05", None, None,
    )  # fmt: skip


ANSWERS: dict[str, tuple[Behaviour, str]] = {
    "200": (behave.answers(b"ok"), ""),
    "404": (behave.answers(b"no_team", 404), "http://127.0.0.1:PORT answered 404"),
    "500": (behave.answers({"error": SECRET}, 500), "http://127.0.0.1:PORT answered 500"),
    "a body without an end": (behave.never_ends, ""),
    "a body that comes slowly": (behave.slow_body, ""),
    "nothing": (behave.slow_headers, "http://127.0.0.1:PORT did not answer within 2 s"),
    "hangs up": (behave.closes_at_once, "http://127.0.0.1:PORT did not answer (RemoteProtocolError: "),
    "no HTTP": (behave.not_http, "http://127.0.0.1:PORT did not answer (RemoteProtocolError: "),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.usefixtures("quick")
def test_whatever_a_server_answers_is_one_line_soon(name: str) -> None:
    behaviour, said = ANSWERS[name]
    began = time.monotonic()
    error, requests, _ = post(behaviour)
    assert error.startswith(said) if said else error == ""
    assert len(requests) == 1 and SECRET not in error and "\n" not in error and time.monotonic() - began < 10


def test_a_redirect_is_not_followed() -> None:
    async def work() -> None:
        async with serving() as other, serving() as server:
            away = f"http://127.0.0.1:{other.port}/x"
            server.otherwise = behave.answers(b"", 307, Location=away)
            error = await teller.tell(config(f"http://127.0.0.1:{server.port}/"), MESSAGE)
            assert error.endswith("answered 307, and redirects are not followed") and not other.requests

    anyio.run(work)


@pytest.mark.parametrize("url", [f"http://127.0.0.1:1/{SECRET}", f"https://u:{SECRET}@no-such-host.invalid/"])
def test_nobody_there_is_one_line_without_what_may_be_a_secret(url: str) -> None:
    error = tell(url)
    assert "did not answer (ConnectError: " in error and SECRET not in error and "\n" not in error


# --- a command -------------------------------------------------------------------------------------------------------


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_command_has_the_message_on_its_standard_input(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    alarm = script(tmp_path / "alarm with spaces", f'cat > "{told}"', f'echo "$APOLLOD_ALARM_EVENT $*" >> "{told}"')
    assert tell(str(alarm)) == ""
    body, rest = told.read_text().rsplit("}", 1)
    assert json.loads(body + "}")["incident"] == 7 and rest == "alarmed \n"
    assert tell([str(alarm), "a b", "c"]) == ""
    assert told.read_text().endswith("alarmed a b c\n")


def test_a_command_sees_no_key_of_the_daemons_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_API_KEY", "APOLLOD_ENGINE__API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    assert tell(str(script(tmp_path / "alarm", f"env > {tmp_path}/seen"))) == ""
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert SECRET not in seen.values() and {"PATH", "HOME"} <= seen.keys() and seen["LC_TIME"] == "C.UTF-8"
    assert (seen["APOLLOD_ALARM_EVENT"], seen["APOLLOD_ALARM_INCIDENT"]) == ("alarmed", "7")


def test_a_long_message_need_not_be_read(tmp_path: Path) -> None:
    metrics = tuple(f"metric{n}.passed" for n in range(20_000))
    long = Message(7, "alarmed", 0, 6, 3, metrics, dict.fromkeys(metrics, ev.Drop(0.5, 0.25, 0.75)))
    assert tell(str(script(tmp_path / "deaf", "exit 0")), long) == ""
    assert tell(str(script(tmp_path / "reads", f"wc -c > {tmp_path}/bytes")), long) == ""
    assert int((tmp_path / "bytes").read_text()) > 1_000_000


FAILING = {
    "exit 1": (["echo first", "echo 'mail: no route to host' >&2", "exit 1"], " ended with 1: mail: no route to host"),
    "killed": (["kill -9 $$"], " ended with -9"),
    "a secret": (["echo password=sk-ant-api03-aB3dE6gH9aB3dE6gH9aB3dE6gH9aB3dE6gH9aB3dE6gH9", "exit 3"], "[redacted "),
    "huge output": (["head -c 5000000 /dev/zero | tr '\\0' x", "exit 2"], " ended with 2: x"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_command_that_fails_is_one_line(name: str, tmp_path: Path) -> None:
    lines, said = FAILING[name]
    error = tell(str(script(tmp_path / "alarm", *lines)))
    assert said in error and "\n" not in error and len(error) < 2200 and "aB3dE6gH9" not in error


@pytest.mark.usefixtures("quick")
def test_one_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    error = tell(str(script(tmp_path / "alarm", f"sleep 60 & echo $! > {tmp_path}/pid", "wait")))
    assert error.endswith("took longer than 2 s and was killed") and time.monotonic() - began < 10
    assert gone(int((tmp_path / "pid").read_text()))


def test_one_that_is_gone_since_the_start_is_a_failure(tmp_path: Path) -> None:
    assert tell(str(tmp_path / "gone")).endswith("gone cannot be started: No such file or directory")
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    assert tell(str(tmp_path / "text")).endswith("cannot be started: Exec format error")


# --- bad values ------------------------------------------------------------------------------------------------------

BAD = {
    "no host": (f"https:///{SECRET}", "on_alarm is a URL without a host"),
    "a space": (f"https://host/ {SECRET}", "on_alarm is a URL with a space"),
    "a port": (f"http://host:{SECRET}/", "on_alarm is no URL: its host or port is malformed"),
    "brackets": (f"http://[{SECRET}/", "on_alarm is no URL: its host or port is malformed"),
    "no program": ("/none/alarm.sh", "on_alarm: the command '/none/alarm.sh' is not there, or may not be run"),
    "arguments": ("mail -s alarm root", "arguments: a list of strings"),
    "an empty name": ([""], "on_alarm: the command '' is not there"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_refused_with_the_reason(name: str) -> None:
    wanted, said = BAD[name]
    refused = teller.refused(config(wanted))
    assert refused is not None and said in refused.line() and SECRET not in refused.line()


@pytest.mark.parametrize("name", ["no host", "no program"])
def test_a_bad_value_is_found_by_the_check_and_keeps_the_daemon_from_starting(
    name: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, said = BAD[name]
    state = tmp_path / "state"
    value = wanted if isinstance(wanted, str) else json.dumps(wanted)
    settings = [f"model.path={tiny_model}", f"state.dir={state}", f"quality.on_alarm={value}"]
    assert main(["config", "check", *(part for one in settings for part in ("--set", one))]) == 1
    err = capsys.readouterr().err
    assert said in err and SECRET not in err
    with pytest.raises(ConfigError) as refused:
        anyio.run(app.run, load_config(None, settings, {}))
    assert said in refused.value.line() and not state.exists()


@pytest.mark.parametrize(
    "wanted", ["", "[]", "https://hooks.example/x", "http://[::1]:8080", '["sh", "-c", "cat"]', "sh"]
)
def test_a_good_value_is_accepted(wanted: str) -> None:
    assert teller.refused(config(wanted)) is None
    assert config(wanted).settings().on_alarm == (wanted not in ("", "[]"))


def test_the_path_of_a_url_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'[model]\npath = "/m"\n[quality]\non_alarm = "https://u:{SECRET}@hooks.example/{SECRET}"\n')
    for form in ([], ["--json"]):
        assert main(["config", "show", "--config", str(file), *form]) == 0
        shown = capsys.readouterr().out
        assert SECRET not in shown and "https://hooks.example/..." in shown


# --- a daemon's loop -------------------------------------------------------------------------------------------------


class OnlyTelling(Executor):
    """A daemon without children."""

    async def run(self, effect: fx.Effect) -> Sequence[inp.Input]:
        return await super().run(effect) if isinstance(effect, fx.TellAlarm) else ()


@asynccontextmanager
async def life(config: Config, *happened: ev.Event) -> AsyncIterator[Loop]:
    """On a journal in which this `happened` before; ends as by a kill."""
    config.state_dir.mkdir(exist_ok=True)
    journal = await Journal.open(config.journal_path)
    try:
        if happened:
            await journal.append(list(happened), time.time_ns())
        state = State()
        for item, _ in journal_reader.recorded(config.journal_path):
            fold(state, item)
        loop = Loop(state, journal)
        async with anyio.create_task_group() as tasks:
            executor = OnlyTelling(config, journal, NONE, loop.post, loop.submit, tasks)
            loop.post(inp.Started(1, "test", config.settings(), str(config.state_dir)))
            tasks.start_soon(loop.run, executor)

            async def tick() -> None:
                while True:
                    await loop.submit(inp.Tick())
                    await anyio.sleep(0.01)

            tasks.start_soon(tick)
            yield loop
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await journal.close()


async def until(what: Any) -> None:
    with anyio.fail_after(120):
        while not what():
            await anyio.sleep(0.003)


def happened(config: Config) -> list[ev.Event]:
    """An alarm that was settled, in an earlier life."""
    drops = {"facts.passed": ev.Drop(0.5, 0.25, 0.75)}
    return [
        ev.DaemonStarted(1, "test", config.settings(), str(config.state_dir)),
        ev.QualityAlarmed(1, 6, 6, ("facts.passed",), drops), ev.QualitySettled(1, "resumed by p", "p"),
    ]  # fmt: skip


def test_a_kill_while_it_is_told_tells_it_once_more_and_a_failure_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "BACKOFF_FIRST_S", 0.02)

    async def work() -> None:
        async with serving(behave.slow_headers) as server:
            one = config(f"http://127.0.0.1:{server.port}/{SECRET}", tmp_path / "state")
            async with life(one, *happened(one)) as loop:
                await until(lambda: server.active)
                with anyio.fail_after(20):  # the loop takes inputs meanwhile
                    await loop.submit(inp.TrainingPaused("p"))
            await until(lambda: not server.active)
            server.script = [behave.answers(b"", 503), behave.answers(b"ok"), behave.answers(b"ok")]
            async with life(one) as loop:
                await until(lambda: not loop.state.quality.telling.waiting)
                assert loop.state.quality.telling.error == ""
            assert [request.body["event"] for request in server.requests] == ["alarmed"] * 3 + ["settled"]
            last = server.requests[-1].body
            assert (last["how"], last["by"], last["taken_back"], last["step"]) == ("resumed by p", "p", 0, 6)
            async with life(one) as loop:
                await loop.submit(inp.Tick())
                await anyio.sleep(0.1)
            assert len(server.requests) == 4, "what was told is not told again"

    anyio.run(work)
    sql = "SELECT key, body ->> '$.event', body ->> '$.ok', body ->> '$.reason' FROM events WHERE kind = 'quality.told'"
    rows = journal_reader.query(tmp_path / "state" / "journal.db", f"{sql} ORDER BY seq").rows
    assert [row[:3] for row in rows] == [("1", "alarmed", 0), ("1", "alarmed", 1), ("1", "settled", 1)]
    assert rows[0][3].endswith("answered 503")
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET.encode() not in kept
