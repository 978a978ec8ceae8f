"""Real vLLM while we ask it something long: a user is noticed, ours is given up and aborted, the user is answered. And
a daemon looks at all."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from support.daemon import Daemon
from support.engine_host import Engine

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.engine_watch import UserCounts, UserRequests
from apollod.adapters.llm.openai_api import Completion, Sampling
from apollod.core import inputs as inp
from apollod.supervisor.config import load_config
from apollod.supervisor.dreaming.idle_watch import IdleWatch
from apollod.supervisor.executor.context import UnderWay, own_endpoint

SHORT = 10
"""users who ask for one token each, beside us"""


def endless(tokens: int) -> Sampling:
    return Sampling(max_tokens=tokens, extra={"ignore_eos": True})


@pytest.mark.engine
def test_a_user_ends_what_we_ask_and_is_answered(vllm: Engine) -> None:
    config = load_config(
        None, ["model.path=/m", f"engine.port={vllm.port}", "engine.served_name=tiny", "dream.idle_s=0"], environ={}
    )  # fmt: skip
    posted, answers, ours = list[inp.Input](), list[Completion](), own_endpoint(config)
    theirs = replace(ours, ours=False)

    async def until(there: Callable[[], Any]) -> None:
        with anyio.fail_after(120):
            while not there():
                await anyio.sleep(0.01)

    async def ask(endpoint: Endpoint, tokens: int) -> None:
        async with HttpLlm(endpoint) as llm:
            answers.append(await llm.complete([5, 6, 7], endless(tokens)))

    async def main() -> None:
        async with anyio.create_task_group() as tasks, UserCounts(ours) as counts:
            watch = IdleWatch(config, posted.append, lambda: True, lambda: True)
            under_way = UnderWay(tasks)
            tasks.start_soon(watch.run)
            await until(lambda: posted)
            began = await counts.read()
            assert began.begun == began.ended
            await ask(ours, 3)
            under_way.begin("dream", lambda: ask(ours, 500))
            await anyio.sleep(0.6)
            assert posted == [inp.EngineUse(False)], "ours alone, the short one and the long one"
            tasks.start_soon(ask, theirs, 150)
            await until(lambda: len(posted) == 2)
            under_way.cancel("dream")
            await until(lambda: len(answers) == 2)
            await until(lambda: len(posted) == 3)
            for number in range(SHORT):
                under_way.begin(f"dream {number}", lambda: ask(ours, 30))
                await ask(theirs, 1)
                await until(lambda told=4 + 2 * number: len(posted) >= told)
                await until(lambda told=5 + 2 * number: len(posted) >= told)
            assert await counts.read() == UserRequests(began.begun + 1 + SHORT, began.ended + 1 + SHORT)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    assert [cast(inp.EngineUse, one).users for one in posted] == [False, True] * (1 + SHORT) + [False]
    assert [answer.completion_tokens for answer in answers][:2] == [3, 150], "the long one of ours was aborted"
    assert "GET /metrics" not in vllm.tail()


@pytest.mark.engine
def test_the_next_user_is_told_of_when_the_request_comes(vllm: Engine) -> None:
    config = load_config(None, ["model.path=/m", f"engine.port={vllm.port}", "engine.served_name=tiny"], environ={})
    ours, came = replace(own_endpoint(config), try_s=120.0), list[bool]()
    theirs = replace(ours, ours=False)

    async def main() -> None:
        async with UserCounts(ours) as counts, HttpLlm(ours) as we, HttpLlm(theirs) as they:

            async def wait() -> None:
                came.append(await counts.next_user(60.0))

            assert not await counts.next_user(0.05)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.sleep(0.3)
                await we.complete([5, 6, 7], endless(1))
                assert not came
                await they.complete([5, 6, 7], endless(1))
            assert came == [True]

    anyio.run(main)
    assert "GET /apollod/users/next" not in vllm.tail()


PATTERN = """
[[dream.pattern]]
name = "greeting"
instruction = "Say hello first."
check = {regex = "^Hello"}
"""


def test_a_daemon_with_a_pattern_looks_and_says_why_it_does_not_dream(tmp_path: Path, tiny_model: Path) -> None:
    """The stub engine has no /metrics."""
    daemon = Daemon(tmp_path, tiny_model, PATTERN).start()
    try:
        busy = "SELECT body ->> 'reason' FROM events WHERE kind = 'engine.busy'"
        daemon.wait(lambda _: daemon.query(busy), "the use of the engine is unknown", 60.0)
        assert "cannot be read" in daemon.query(busy)[0][0] and "answered 404" in daemon.query(busy)[0][0]
    finally:
        daemon.end()
