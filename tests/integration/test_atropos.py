"""The trainer's side of Atropos, against the real run-api of its package (`make env` installs it without what it needs
besides), and what a group may hold."""

import importlib.util
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from apollod.adapters.environments.atropos_service import AtroposService, rollouts_of
from apollod.errors import EnvironmentFailed, RecordRefused
from apollod.testing.daemon import free_port
from apollod.wire.rollouts import Group, check

GROUP: dict[str, Any] = {
    "tokens": [[5, 6, 7, 8], [5, 6, 9]], "masks": [[-100, -100, 7, 8], [-100, -100, 9]], "scores": [1.0, 0.0],
    "inference_logprobs": [[1.0, 1.0, -0.5, -0.25], [1.0, 1.0, -2.0]],
}  # fmt: skip


class Service:
    """A run-api that may be killed and started again at the same port."""

    def __init__(self, log: Path) -> None:
        self.port, self._log = free_port(), log
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", str(self.port)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            try:
                self.get("/info")
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(self._log.read_text())

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10.0) as answer:
            return msgspec.json.decode(answer.read())

    def post(self, path: str, body: bytes) -> Any:
        asked = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=10.0) as answer:
            return msgspec.json.decode(answer.read())

    def reset(self) -> None:
        urllib.request.urlopen(f"{self.url}/reset_data", timeout=10.0).close()

    def scored(self, **change: Any) -> None:
        """As an environment posts a group."""
        self.post("/scored_data", msgspec.json.encode({**GROUP, **change}))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    if importlib.util.find_spec("atroposlib") is None:
        pytest.skip("there is no atroposlib in this environment: pip install --no-deps atroposlib==0.4.0")
    made = Service(tmp_path / "api.log")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_groups_come_from_the_service_one_by_one_and_after_its_restart(service: Service) -> None:
    async def run() -> list[Any]:
        trainer, found = AtroposService(service.url, 2, 64, poll_s=0.05), list[Any]()
        async with anyio.create_task_group() as tasks:

            async def take() -> None:
                found.append(await trainer.next_group())

            tasks.start_soon(take)  # registers, and waits
            while service.get("/info")["batch_size"] != 2:
                await anyio.sleep(0.05)
            assert await anyio.to_thread.run_sync(service.get, "/info") == {"batch_size": 2, "max_token_len": 64}
            await anyio.to_thread.run_sync(service.scored)
        service.stop()
        with pytest.raises(EnvironmentFailed) as gone:
            await trainer.next_group()
        assert gone.value.outside and "look whether run-api runs" in gone.value.line()
        await anyio.to_thread.run_sync(service.start)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            while service.get("/info")["batch_size"] != 2:
                await anyio.sleep(0.05)
            await anyio.to_thread.run_sync(lambda: service.scored(scores=[0.0, 0.5]))
        await trainer.close()
        return found

    first, second = anyio.run(run)
    assert [one.tokens for one in first] == GROUP["tokens"] and [one.score for one in second] == [0.0, 0.5]
    assert first[0].learned == [False, False, True, True] and first[1].learned == [False, False, True]
    assert memoryview(first[0].logprobs).cast("f").tolist() == [-0.5, -0.25]
    check(Group(first))


def test_a_reset_service_is_registered_at_again_also_where_an_environment_posted_first(service: Service) -> None:
    """A group that comes before any trainer makes the service refuse all trainers, until it is reset."""

    async def run() -> list[Any]:
        trainer, found = AtroposService(service.url, 2, 64, poll_s=0.05), list[Any]()
        for is_first in (False, True):
            if is_first:
                await anyio.to_thread.run_sync(service.reset)
                await anyio.to_thread.run_sync(service.scored)
            async with anyio.create_task_group() as tasks:

                async def take() -> None:
                    found.append(await trainer.next_group())

                tasks.start_soon(take)
                await anyio.sleep(0.5)
                await anyio.to_thread.run_sync(lambda: service.scored(scores=[0.0, 0.5]))
        await trainer.close()
        return found

    for group in anyio.run(run):
        assert [one.score for one in group] == [0.0, 0.5]


def test_groups_that_no_batch_can_be_made_of_are_told_with_their_size(service: Service) -> None:
    async def run() -> EnvironmentFailed:
        trainer = AtroposService(service.url, 3, 64, poll_s=0.01)
        with anyio.move_on_after(0.5):
            await trainer.next_group()
        await anyio.to_thread.run_sync(service.scored)
        with pytest.raises(EnvironmentFailed) as refused, anyio.fail_after(30.0):
            await trainer.next_group()
        await trainer.close()
        return refused.value

    refused = anyio.run(run)
    assert refused.outside and "groups of 2 sequences, and hands out 3" in refused.line()
    assert "set [[environment]] group = 2" in refused.line()


def test_a_service_that_works_for_another_trainer_is_refused_with_the_way_out(service: Service) -> None:
    other = AtroposService(service.url, 4, 64, poll_s=0.05)

    async def run() -> EnvironmentFailed:
        with anyio.move_on_after(1.0):
            await other.next_group()
        mine = AtroposService(service.url, 2, 64, poll_s=0.05)
        with pytest.raises(EnvironmentFailed) as refused:
            await mine.next_group()
        await other.close()
        await mine.close()
        return refused.value

    refused = anyio.run(run)
    assert refused.outside and "batches of 4 sequences, not 2" in refused.line() and "/reset_data" in refused.line()


def test_a_score_that_is_no_number_loses_its_batch_and_not_the_daemon(service: Service) -> None:
    async def run() -> EnvironmentFailed:
        trainer = AtroposService(service.url, 2, 64, poll_s=0.05)
        with anyio.move_on_after(1.0):
            await trainer.next_group()
        body = msgspec.json.encode(GROUP).replace(b'"scores":[1.0,', b'"scores":[NaN,')
        await anyio.to_thread.run_sync(service.post, "/scored_data", body)
        with pytest.raises(EnvironmentFailed) as refused:
            await trainer.next_group()
        await trainer.close()
        return refused.value

    refused = anyio.run(run)
    assert refused.outside and "500" in refused.line() and "its batch is lost" in refused.line()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: g.pop("inference_logprobs"), "no inference_logprobs"),
        (lambda g: g.update(inference_logprobs=None), "no inference_logprobs"),
        (lambda g: g["inference_logprobs"][0].__setitem__(3, 1.0), "no log-probability for sampled token 2 of 2"),
        (lambda g: g["inference_logprobs"][1].__setitem__(2, -9999.0), "sequence 2 has no log-probability"),
        (lambda g: g["inference_logprobs"][1].__setitem__(2, None), "sequence 2 has no log-probability"),
        (lambda g: g["inference_logprobs"][0].pop(), "a mask of 4 and 3 log-probabilities"),
        (lambda g: g["scores"].pop(), "2 masks, 1 scores"),
        (lambda g: g["scores"].__setitem__(0, None), "the score of sequence 1 is null"),
        (lambda g: g["tokens"][0].__setitem__(0, -1), "tokens that are no ids"),
        (lambda g: g.update(masks=3), "its masks are no lists"),
    ],
)
def test_a_group_that_cannot_be_learned_is_refused_with_its_place(change: Callable[[Any], Any], said: str) -> None:
    group = msgspec.json.decode(msgspec.json.encode(GROUP))
    change(group)
    with pytest.raises(RecordRefused, match=said):
        rollouts_of(group)


def test_a_sequence_may_count_for_others_alone() -> None:
    assert [one.neutral for one in rollouts_of({**GROUP, "overrides": [{}, {"set_advantage_to_zero": True}]})] == [
        False, True
    ]  # fmt: skip
    assert not any(one.neutral for one in rollouts_of(GROUP))


def test_the_temperature_of_a_sequence_goes_before_that_of_its_group() -> None:
    group = {**GROUP, "group_overrides": {"temperature": 0.5}}
    assert [one.temperature for one in rollouts_of(group)] == [0.5, 0.5]
    group["generation_params"] = {"temperature": 0.7}
    assert [one.temperature for one in rollouts_of(group)] == [0.7, 0.7]
    group["overrides"] = [{}, {"temperature": 1.1}]
    assert [one.temperature for one in rollouts_of(group)] == [0.7, 1.1]
    assert [one.temperature for one in rollouts_of({**group, "overrides": [{"temperature": 1.1}]})] == [1.1, 0.7]
    assert [one.temperature for one in rollouts_of(GROUP)] == [1.0, 1.0]
