"""Bridge `lora` over real sockets and files: what an engine has after it is what was said, in the order that keeps
requests on the weights they began with. The engine is `support.engine_elsewhere`; `test_stock_lora.py` has a real one.
"""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.engine_elsewhere import EngineElsewhere

from apollod.engine.gateway.bridges import RECORD
from apollod.engine.gateway.lora import CONFIG, FILE, Lora
from apollod.engine.gateway.proxy import replaced
from apollod.engine.gateway.receivers import Receiver
from apollod.engine.gateway.weights import Weights
from apollod.errors import ModelRefused, SendFailed
from apollod.store.access import TABLE
from apollod.store.fingerprint import directory_fingerprint
from apollod.wire.engine_terms import Dialect, ReceiverTerms, SendTerms

Q, UP = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight"
STARTS = (
    "import json, os, urllib.request\n"
    "place = os.environ['APOLLOD_WEIGHTS']\n"
    "body = json.dumps({'lora_name': os.path.basename(place), 'lora_path': place}).encode()\n"
    "urllib.request.urlopen(urllib.request.Request(os.environ['APOLLOD_RECEIVER'] + '/started_with', body))\n"
)


class Way:
    """A gateway's bridge and one engine."""

    def __init__(self, root: Path, dialect: Dialect = "vllm", command: tuple[str, ...] = (), base: str = "") -> None:
        torch.manual_seed(0)
        self.model = root / "model"
        self.model.mkdir()
        tensors = {Q: torch.randn(40, 30), UP: torch.randn(50, 40), "model.norm.weight": torch.randn(30)}
        self.base = {name: one.bfloat16() for name, one in tensors.items()}
        save_file(self.base, self.model / "model.safetensors")
        self.weights = Weights(self.model, "lora")
        self.weights.load(memoryview(bytearray(self.weights.manifest.storages[0].bytes)))
        self.engine = EngineElsewhere(self.model)
        self.engine.adapters = {}
        to = ReceiverTerms(self.engine.url, dialect)
        self.terms = SendTerms("lora", (to,), str(root / "sent"), command, 10.0, 4, base, str(root / "kept"))
        self.receiver = Receiver(to, 10.0)
        self.receiver.model = "there"
        self.bridge = Lora(self.terms, self.weights)

    def learn(self, name: str, rank: int, seed: int = 1) -> None:
        """Change a tensor by something of this rank; 0: of any."""
        now = self.tensor(name)
        torch.manual_seed(seed)
        rows, columns = (*now.shape, 1)[:2]
        change = torch.randn(rows, rank) @ torch.randn(rank, columns) if rank else torch.randn(rows, columns)
        now += change.view(now.shape).to(now.dtype)

    def tensor(self, name: str) -> torch.Tensor:
        return self.weights.tensor(name)

    def there(self) -> dict[str, torch.Tensor]:
        """The weights that the engine computes with: those it loaded at its start, and the named adapter's products."""
        assert self.engine.adapters is not None
        found = load_file(self.engine.loaded)
        parts = load_file(self.engine.adapters[self.receiver.adapter] / FILE)
        for name in (Q, UP):
            a, b = (parts[f"base_model.model.{name[:-7]}.lora_{one}.weight"].float() for one in "AB")
            found[name] = found[name].float() + b @ a
        return found

    async def send(self, version: int) -> float:
        staged = await asyncio.to_thread(self.bridge.stage, self.weights, version)
        self.staged = staged
        return await self.bridge.deliver(staged, self.receiver, lambda: None)

    @property
    def written(self) -> list[str]:
        return [path.name for path in Path(self.terms.directory).iterdir()]

    @property
    def names(self) -> list[str]:
        return [*(self.engine.adapters or {})]


@pytest.fixture
def way(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Way]:
    made = Way(tmp_path, **getattr(request, "param", {}))
    yield made
    made.engine.end()


async def until_unloaded(way: Way, count: int = 1) -> None:
    async with asyncio.timeout(30):
        while len(way.names) > count:
            await asyncio.sleep(0.02)


def test_the_engine_has_a_change_of_low_rank_to_rounding_and_of_another_as_much_as_is_said(way: Way) -> None:
    async def live() -> None:
        assert await way.send(0) == 0.0, "generation is not held"
        assert all(torch.equal(one.float(), way.base[name].float()) for name, one in way.there().items())
        way.learn(Q, 3)
        await way.send(1)
        lacking = torch.dist(way.there()[Q], way.tensor(Q).float()) / (way.tensor(Q) - way.base[Q]).float().norm()
        assert lacking < 0.02 and way.staged.carried == pytest.approx(1.0 - float(lacking), abs=1e-3)
        way.learn(UP, 0)
        way.learn("model.norm.weight", 0)
        await way.send(2)
        there = way.there()
        missing = sum(float((there[name].float() - way.tensor(name).float()).square().sum()) for name in there)
        whole = sum(float((way.tensor(name) - way.base[name]).float().square().sum()) for name in there)
        assert way.staged.carried == pytest.approx(1.0 - (missing / whole) ** 0.5, abs=1e-4)
        assert way.staged.carried < 0.9 and way.staged.left_out == 1
        assert way.staged.fingerprint == way.weights.fingerprint()

    asyncio.run(live())


def test_the_files_are_those_of_peft_with_a_record(way: Way, tmp_path: Path) -> None:
    way.learn(Q, 2)
    staged = way.bridge.stage(way.weights, 7)
    place = tmp_path / "sent" / staged.name
    assert staged.name.startswith("apollo-v7-") and staged.bytes == (place / FILE).stat().st_size
    config, record = json.loads((place / CONFIG).read_text()), json.loads((place / RECORD).read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 4)
    assert config["target_modules"] == ["q_proj", "up_proj"]
    assert record == {
        "version": 7, "fingerprint": way.weights.fingerprint(), "base": directory_fingerprint(way.model), "rank": 4,
        "carried": staged.carried, "left_out": [],
    }  # fmt: skip
    assert way.bridge.stage(way.weights, 7).name == staged.name, "the same bits have the same name"
    way.learn(Q, 2, seed=2)
    assert way.bridge.stage(way.weights, 7).name != staged.name, "other bits of the same number have another one"


@pytest.mark.parametrize("way", [{"dialect": "vllm"}, {"dialect": "sglang"}], indirect=True)
def test_an_adapter_goes_when_its_requests_have_ended_and_no_more_than_two_are_there(way: Way) -> None:
    prefix = "/v1" if way.receiver.terms.dialect == "vllm" else ""

    async def live() -> None:
        await way.send(0)
        (zero,) = way.names
        way.receiver.running[zero] = 1
        way.learn(Q, 1)
        await way.send(1)
        one = way.receiver.adapter
        await asyncio.sleep(0.5)
        assert way.names == [zero, one], "a request still uses it"
        way.learn(Q, 1)
        await way.send(2)
        await until_unloaded(way)
        assert way.names == [way.receiver.adapter] and way.receiver.adapter.startswith("apollo-v2-")
        way.learn(Q, 1)
        await way.send(3)
        assert zero in way.written, "vLLM may read an adapter again that a request uses"
        way.receiver.running.clear()
        way.learn(Q, 1)
        await way.send(4)
        await until_unloaded(way)
        assert len(way.written) == 2
        called = [call.removeprefix(prefix) for call in way.engine.calls]
        assert called[:4] == ["/load_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter", "/load_lora_adapter"]
        assert not {"/pause", "/pause_generation", "/reset_prefix_cache", "/flush_cache"} & set(way.engine.calls)

    asyncio.run(live())


def test_what_an_earlier_life_left_is_unloaded_and_what_is_there_is_used(way: Way) -> None:
    async def live() -> None:
        await way.send(0)
        (zero,) = way.names
        assert way.engine.adapters is not None
        way.engine.adapters |= {"apollo-v9-00000000": Path("/gone"), "theirs": Path("/theirs")}
        way.receiver, way.bridge = Receiver(way.terms.receivers[0], 10.0), Lora(way.terms, way.weights)
        await way.send(0)
        assert way.names == [zero, "theirs"] and way.receiver.adapter == zero
        assert way.engine.calls.count("/v1/load_lora_adapter") == 1

    asyncio.run(live())


def test_an_engine_that_loads_none_is_told_of_or_restarted(way: Way, tmp_path: Path) -> None:
    way.engine.adapters = None

    async def live() -> None:
        with pytest.raises(SendFailed, match="no adapter while it runs: /v1/load_lora_adapter answered 404") as told:
            await way.send(0)
        assert "--max-lora-rank 4 --lora-target-modules q_proj up_proj," in told.value.hint

    asyncio.run(live())
    way.engine.end()
    (tmp_path / "another").mkdir()
    other = Way(tmp_path / "another", command=(sys.executable, "-c", STARTS))
    other.engine.adapters = None

    async def restarted() -> None:
        await other.send(0)
        assert other.names == [other.staged.name] == [other.receiver.adapter]
        other.engine.refuses.add("/started_with")
        other.engine.refuses.add("/v1/load_lora_adapter")
        other.learn(Q, 1)
        with pytest.raises(SendFailed, match="ended with 1"):
            await other.send(1)

    asyncio.run(restarted())
    other.engine.end()


def test_a_warning_says_once_that_little_is_carried(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "apollod.gateway"):
        way.learn(UP, 0)
        way.bridge.stage(way.weights, 1)
        way.bridge.stage(way.weights, 2)
        assert len(caplog.records) == 1 and "of the change of the weights" in caplog.text and "version 1" in caplog.text
        way.tensor(UP)[:] = way.base[UP]
        way.bridge.stage(way.weights, 3)
        assert len(caplog.records) == 1
        way.learn(UP, 0)
        way.bridge.stage(way.weights, 4)
    assert len(caplog.records) == 2


def test_what_is_not_finite_is_not_sent(way: Way) -> None:
    way.tensor(Q)[0, 0] = float("nan")
    with pytest.raises(SendFailed, match=r"q_proj\.weight has values that are not finite"):
        way.bridge.stage(way.weights, 1)


def kept(way: Way, root: Path, **more: torch.Tensor) -> None:
    (root / "kept").mkdir()
    save_file(way.base | more, root / "kept" / "model.safetensors")


def test_the_base_is_the_model_before_the_first_step(way: Way, tmp_path: Path) -> None:
    """At first in the model directory, then where it is kept, which a checkpoint leaves alone."""
    way.learn(Q, 2)
    first = way.bridge.stage(way.weights, 1)
    kept(way, tmp_path)
    save_file({name: way.tensor(name).clone() for name in way.base}, way.model / "model.safetensors")
    assert way.bridge.stage(way.weights, 1) == first
    (way.model / TABLE).parent.mkdir()
    (way.model / TABLE).write_bytes(b"a checkpoint wrote this directory")
    assert Lora(way.terms, way.weights).stage(way.weights, 1) == first
    (tmp_path / "kept").rename(tmp_path / "away")
    with pytest.raises(ModelRefused, match="the weights before the first step are not in"):
        Lora(way.terms, way.weights)
    with pytest.raises(SendFailed, match="the weights before the first step are not in"):
        way.bridge.stage(way.weights, 2)


def test_a_base_that_does_not_fit_is_refused(way: Way, tmp_path: Path) -> None:
    way.bridge.stage(way.weights, 0)
    kept(way, tmp_path)
    other = load_file(tmp_path / "kept" / "model.safetensors")
    save_file({**other, Q: other[Q] + 1}, tmp_path / "kept" / "model.safetensors")
    with pytest.raises(SendFailed, match="are not those before the first step"):
        way.bridge.stage(way.weights, 1)
    save_file({**other, Q: other[Q][:4].clone()}, tmp_path / "kept" / "model.safetensors")
    with pytest.raises(ModelRefused, match=f"{Q} of .* has another shape there"):
        Lora(way.terms, way.weights)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_the_name_of_an_adapter_is_hidden_wherever_a_stream_is_cut(size: int) -> None:
    text = b'data: {"model":"apollo-v1-ab","text":"\\"apollo-v1-ab\\" and apollo-v1"}\n\ndata: "apollo-v1-a'

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(text), size):
            yield text[at : at + size]

    async def shown() -> bytes:
        return b"".join([chunk async for chunk in replaced(pieces(), b'"apollo-v1-ab"', b'"tiny"')])

    assert asyncio.run(shown()) == text.replace(b'"apollo-v1-ab"', b'"tiny"', 1)
