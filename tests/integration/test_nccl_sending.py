"""The bridge `nccl`: the order of calls to a stock engine, and what is announced beside the broadcasts. NCCL's own
calls take two GPUs; here gloo is in their place at both ends (`support.engine_by_broadcast`), all else is what runs."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from support.daemon import Daemon
from support.engine_by_broadcast import LIMIT, EngineByBroadcast, GlooChannel

from apollod.engine.gateway.nccl_sending import Nccl
from apollod.engine.gateway.receivers import Receiver
from apollod.engine.gateway.weights import Weights
from apollod.errors import SendFailed
from apollod.wire.engine_terms import Dialect, ReceiverTerms, SendTerms

VLLM = [
    "/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache", "/resume",
]  # fmt: skip
SGLANG = [
    "/pause_generation", "/begin_weight_update", "/update_weights_from_distributed", "/flush_cache",
    "/end_weight_update", "/update_weight_version", "/continue_generation",
]  # fmt: skip
OLDER = [call for call in SGLANG if "n_weight_update" not in call and "d_weight_update" not in call]


@pytest.fixture
def there(tiny_model: Path, tmp_path: Path) -> Iterator[EngineByBroadcast]:
    engine = EngineByBroadcast(tiny_model, tmp_path)
    engine.tells = {"/get_world_size": {"world_size": 1}, "/server_info": {"version": "0.5.23", "tp_size": 1}}
    yield engine
    engine.end()


class Way:
    """A gateway's bridge to an engine, over a model in host memory."""

    def __init__(self, engine: EngineByBroadcast, model: Path, dialect: Dialect) -> None:
        self.weights = Weights(model, "nccl")
        self.weights.load(memoryview(bytearray(self.weights.manifest.storages[0].bytes)))
        self.terms = ReceiverTerms(engine.url, dialect)
        self.channels: list[GlooChannel] = []
        self.bridge = Nccl(SendTerms("nccl", (self.terms,), "", timeout_s=30.0), self.weights, self._channel)
        self.engine, self.loaded, self.limit = engine, 0, LIMIT

    def _channel(self, receiver: ReceiverTerms, world_size: int) -> GlooChannel:
        self.channels.append(GlooChannel(receiver, world_size, self.limit, self.engine.leave))
        return self.channels[-1]

    def change(self, value: int) -> None:
        self.weights.tensor(self.weights.changing[0]).view(-1)[:4] = value

    def send(self, version: int) -> str:
        """Returns the fingerprint of what was sent."""

        def loaded() -> None:
            self.loaded = version

        async def deliver() -> str:
            receiver = Receiver(self.terms, 30.0)
            staged = self.bridge.stage(self.weights, version)
            try:
                assert await self.bridge.deliver(staged, receiver, loaded) >= 0.0
            finally:
                await receiver.close()
            return staged.fingerprint

        return anyio.run(deliver)


@pytest.mark.parametrize(
    ("dialect", "join", "order"),
    [("vllm", "/init_weight_transfer_engine", VLLM), ("sglang", "/init_weights_update_group", SGLANG)],
)
def test_versions_arrive_in_the_order_that_a_stock_engine_wants(
    there: EngineByBroadcast, tiny_model: Path, dialect: Dialect, join: str, order: list[str]
) -> None:
    way = Way(there, tiny_model, dialect)
    before = there.fingerprint
    for version in (1, 2):
        way.change(version)
        assert way.send(version) == there.fingerprint != before, "bit for bit"
        assert (way.loaded, there.label, there.paused) == (version, str(version), False)
        before = there.fingerprint
    assert there.calls == [join, *order, *order], "the group is joined once, before generation is held"
    bodies = dict(there.posted)
    if dialect == "vllm":
        info = bodies[join]["init_info"]
        assert (info["rank_offset"], info["world_size"], info["packed"]) == (1, 2, False)
        assert set(info) == {"nccl_unique_id_b64", "rank_offset", "world_size", "packed"}, "vLLM refuses other fields"
        assert set(bodies["/update_weights"]["update_info"]) == {"names", "dtype_names", "shapes"}
        assert bodies["/finish_weight_update"] == {"weight_version": "2"}
    else:
        assert bodies[join]["backend"] == "nccl" and bodies[join]["group_name"] == "apollod"
        assert bodies["/pause_generation"] == {"mode": "retract"}
        assert bodies["/update_weights_from_distributed"]["flush_cache"] is False


def test_an_older_sglang_is_not_asked_to_begin(there: EngineByBroadcast, tiny_model: Path) -> None:
    for told in ({"version": "0.5.9"}, {"version": "0.5.22.post1", "tp_size": 1}, {}):
        there.calls.clear()
        there.tells["/server_info"] = told
        way = Way(there, tiny_model, "sglang")
        assert way.send(1) == there.fingerprint
        assert there.calls == ["/init_weights_update_group", *OLDER]


@pytest.mark.parametrize("step", ["/start_weight_update", "/update_weights", "/finish_weight_update"])
def test_a_failure_leaves_the_group_and_generation_goes_on(
    there: EngineByBroadcast, tiny_model: Path, step: str
) -> None:
    way = Way(there, tiny_model, "vllm")
    way.send(1)
    there.refuses.add(step)
    way.change(2)
    with pytest.raises(SendFailed, match="out of memory"):
        way.send(2)
    assert way.loaded == 1 and way.channels[0].ended and not there.paused and there.calls[-1] == "/resume"
    there.refuses.clear()
    assert way.send(2) == there.fingerprint and len(way.channels) == 2, "a new group"


@pytest.mark.parametrize("late", [False, True])
def test_an_engine_that_does_not_join_is_told_and_holds_nothing(
    there: EngineByBroadcast, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """`late`: the engine has refused before we begin to wait for it."""
    if late:
        complete = GlooChannel.complete

        def when_left(channel: GlooChannel) -> None:
            while not channel.ended:
                time.sleep(0.01)
            complete(channel)

        monkeypatch.setattr(GlooChannel, "complete", when_left)
    way = Way(there, tiny_model, "vllm")
    there.tells["/get_world_size"] = {"world_size": "many"}
    with pytest.raises(SendFailed, match="world_size is many"):
        way.send(1)
    assert not way.channels
    there.tells["/get_world_size"] = {"world_size": 1}
    there.refuses.add("/init_weight_transfer_engine")
    way.limit = timedelta(seconds=1)
    with pytest.raises(SendFailed, match=r"init_weight_transfer_engine answered 500: .*out of memory"):
        way.send(1)
    assert [one.ended for one in way.channels] == [True]
    assert there.calls == ["/init_weight_transfer_engine"], "generation was not held"


def test_without_a_gpu_the_configuration_is_refused_in_one_line(
    tmp_path: Path, tiny_model: Path, there: EngineByBroadcast
) -> None:
    extra = f'[weights]\nbridge = "nccl"\n[[weights.receiver]]\nurl = "{there.url}"\n'
    daemon = Daemon(tmp_path / "d", tiny_model, extra, engine="")
    try:
        daemon.start()
        deadline = time.monotonic() + 120
        while "needs a GPU here, and there is none" not in (log := daemon.log() + daemon.child_logs()):
            assert time.monotonic() < deadline, log
            time.sleep(0.1)
        assert "Traceback" not in log and 'bridge = "gloo"' in log
    finally:
        daemon.end()
