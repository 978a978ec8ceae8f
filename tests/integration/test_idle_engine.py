"""Real vLLM while we ask it something long: a user is noticed, ours is given up and aborted, the user is answered. And
a daemon looks at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from support.daemon import Daemon
from support.engine_host import Engine

from apollod.adapters.llm.answer import Completion
from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint_use import Counts, EndpointUse
from apollod.adapters.llm.engine_counters import EngineCounters
from apollod.adapters.llm.request import Sampling
from apollod.core import inputs as inp
from apollod.supervisor.config import load_config
from apollod.supervisor.dreaming.idle_watch import IdleWatch
from apollod.supervisor.executor.own_engine import own_endpoint
from apollod.supervisor.executor.under_way import UnderWay


def endless(tokens: int) -> Sampling:
    return Sampling(max_tokens=tokens, extra={"ignore_eos": True})


@pytest.mark.engine
def test_a_user_ends_what_we_ask_and_is_answered(vllm: Engine) -> None:
    config = load_config(
        None, ["model.path=/m", f"engine.port={vllm.port}", "engine.served_name=tiny", "dream.idle_s=0"], environ={}
    )  # fmt: skip
    own, posted, answers = EndpointUse(), list[inp.Input](), list[Completion]()
    metrics = own_endpoint(config, EndpointUse())

    async def until(there: Callable[[], Any]) -> None:
        with anyio.fail_after(60):
            while not there():
                await anyio.sleep(0.01)

    async def ask(use: EndpointUse, tokens: int) -> None:
        async with HttpLlm(own_endpoint(config, use)) as llm:
            answers.append(await llm.complete([5, 6, 7], endless(tokens)))

    async def main() -> None:
        async with anyio.create_task_group() as tasks, EngineCounters(metrics) as counters:
            watch = IdleWatch(config, own, posted.append, lambda: True, lambda: True)
            under_way = UnderWay(tasks)
            tasks.start_soon(watch.run)
            await until(lambda: posted)
            began = await counters.read()
            assert (began.running, began.waiting) == (0, 0) and began.finished is not None
            await ask(own, 3)
            under_way.begin("dream", lambda: ask(own, 500))
            with anyio.fail_after(60):
                while not (await counters.read()).running:
                    await anyio.sleep(0.01)
            await anyio.sleep(0.6)
            assert posted == [inp.EngineUse(False)], "ours alone, the short one and the long one"
            tasks.start_soon(ask, EndpointUse(), 150)
            await until(lambda: len(posted) == 2)
            under_way.cancel("dream")
            await until(lambda: len(answers) == 2)
            await until(lambda: len(posted) == 3)
            ended = await counters.read()
            assert (ended.running, ended.waiting) == (0, 0)
            assert ended.finished == began.finished + 2, "the long one was aborted"
            tasks.cancel_scope.cancel()

    anyio.run(main)
    assert [cast(inp.EngineUse, one).users for one in posted] == [False, True, False]
    assert [answer.completion_tokens for answer in answers] == [3, 150]
    assert own.counts == Counts(asked=2, answered=1, lost=1)
    assert "GET /metrics" not in vllm.tail()


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
