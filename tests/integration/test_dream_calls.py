"""Calls for dreams, over real HTTP."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
import structlog
from anyio.abc import SocketStream
from support.llm_server import LlmServer, Request, good_answer, send, serving, well

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.settings import Check, PatternSettings
from apollod.supervisor.config import load_config
from apollod.supervisor.dreaming import tested_answers
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.executor import Executor

SECRET = "sk-ant-api03-" + "aB3dE6gH9" * 11
NONE = cast(Any, None)
PATTERN = PatternSettings("greet", "Greet.", check=Check(regex="text"))


def one_test(mode: ev.Mode) -> fx.TestScenario:
    return fx.TestScenario("d1", "", mode, "", 1, PATTERN, "Greet.", "", (Turn("user", "Hello!"),))


def test_what_follows_from_an_answer_begins_with_it_and_not_with_the_next_tick(tmp_path: Path) -> None:
    """Whoever submits an answer waits until it has taken effect, and what follows is often a call of the same sort."""
    inputs: list[inp.Input] = []

    async def run() -> None:
        async with serving() as server, anyio.create_task_group() as tasks:
            given = ["model.path=/m", f"state.dir={tmp_path}", f"engine.port={server.port}"]
            config = load_config(None, given, {})

            async def submit(input_: inp.Input) -> Sequence[ev.Recorded]:
                inputs.append(input_)
                if len(inputs) == 1:
                    await executor.run(one_test("contrast"))
                    await executor.run(one_test("contrast"))
                return []

            executor = Executor(config, NONE, NONE, NONE, submit, tasks, NONE, Dreamer(config))
            await executor.run(one_test("bare"))
            with anyio.move_on_after(5):
                while len(inputs) < 2:
                    await anyio.sleep(0.003)
            await anyio.sleep(0.05)
            assert len(server.requests) == 2, "the same call is not made twice"

    anyio.run(run)
    assert [(type(one).__name__, getattr(one, "mode", "")) for one in inputs] == [
        ("DreamTested", "bare"), ("DreamTested", "contrast"),
    ]  # fmt: skip


def test_a_test_counts_what_is_there_of_an_answer_that_is_cut_off(tmp_path: Path) -> None:
    """Of a model that writes long, few answers end within `answer_tokens`."""
    inputs: list[inp.Input] = []

    async def cut(server: LlmServer, stream: SocketStream, request: Request) -> None:
        said = good_answer(request)
        said["choices"][0]["finish_reason"] = "length"
        await send(stream, json.dumps(said).encode())

    async def run() -> None:
        async with serving(cut) as server, anyio.create_task_group() as tasks:
            config = load_config(None, ["model.path=/m", f"state.dir={tmp_path}", f"engine.port={server.port}"], {})

            async def submit(input_: inp.Input) -> Sequence[ev.Recorded]:
                inputs.append(input_)
                return []

            executor = Executor(config, NONE, NONE, NONE, submit, tasks, NONE, Dreamer(config))
            for mode in ("bare", "contrast"):
                await executor.run(one_test(mode))
            with anyio.fail_after(20):
                while len(inputs) < 2:
                    await anyio.sleep(0.01)

    anyio.run(run)
    tested = sorted((one.mode, one.passed, one.answer) for one in inputs if isinstance(one, inp.DreamTested))
    assert tested == [("bare", True, "text 0"), ("contrast", False, "text 0")]


def test_no_bug_in_a_dream_ends_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> tuple[bool, str]:
        raise KeyError(f"what nobody thought of, {SECRET}")

    monkeypatch.setattr(tested_answers, "by_check", broken)
    inputs: list[inp.Input] = []

    async def run() -> None:
        async with serving() as server, anyio.create_task_group() as tasks:
            config = load_config(None, ["model.path=/m", f"state.dir={tmp_path}", f"engine.port={server.port}"], {})

            async def submit(input_: inp.Input) -> Sequence[ev.Recorded]:
                inputs.append(input_)
                return []

            executor = Executor(config, NONE, NONE, NONE, submit, tasks, NONE, Dreamer(config))
            with structlog.testing.capture_logs() as logged:
                await executor.run(one_test("bare"))
                with anyio.move_on_after(5):
                    while not inputs:
                        await anyio.sleep(0.003)
            (line,) = [one for one in logged if one["event"] == "dream.call_broke"]
            assert line["log_level"] == "error" and line["exc_info"]

    anyio.run(run)
    (failed,) = inputs
    assert isinstance(failed, inp.DreamCallFailed)
    assert (failed.dream, failed.stage, failed.cause) == ("d1", "testing", "nonsense")
    assert failed.reason.startswith("KeyError: 'what nobody thought of, [redacted ")


def test_a_call_to_our_own_engine_has_the_time_that_all_beside_it_take_too(tmp_path: Path) -> None:
    """On a slow machine eight answers of a thousand tokens each take longer than one of them alone."""
    inputs: list[inp.Input] = []

    async def slow(server: LlmServer, stream: SocketStream, request: Request) -> None:
        await anyio.sleep(0.6)
        await well(server, stream, request)

    async def run() -> None:
        async with serving(slow) as server, anyio.create_task_group() as tasks:
            given = ["model.path=/m", f"state.dir={tmp_path}", f"engine.port={server.port}", "dream.timeout_s=0.3"]
            config = load_config(None, given, {})

            async def submit(input_: inp.Input) -> Sequence[ev.Recorded]:
                inputs.append(input_)
                return []

            executor = Executor(config, NONE, NONE, NONE, submit, tasks, NONE, Dreamer(config))
            await executor.run(one_test("bare"))
            with anyio.fail_after(20):
                while not inputs:
                    await anyio.sleep(0.01)

    anyio.run(run)
    assert [type(one) for one in inputs] == [inp.DreamTested]
