"""Order of what a gateway sends, and what it makes up for; over real sockets and files."""

import asyncio
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engine_elsewhere import EngineElsewhere

from apollod.core.inputs import WeightsSentReport
from apollod.engine.gateway import sending as module
from apollod.engine.gateway.bridges import Disk
from apollod.engine.gateway.receivers import Receiver
from apollod.engine.gateway.sending import Sending
from apollod.engine.gateway.weights import Weights
from apollod.engine.http.versions import Served
from apollod.wire.engine_terms import ReceiverTerms


class Gateway:
    def __init__(self, root: Path, *engines: EngineElsewhere) -> None:
        self.weights = Weights(root / "model", "disk")
        self.weights.load(memoryview(bytearray(self.weights.manifest.storages[0].bytes)))
        self.reports: list[WeightsSentReport] = []
        self.served = Served()
        self.receivers = [Receiver(ReceiverTerms(one.url), 10.0) for one in engines]
        self.sending = Sending(
            "disk", Disk(root / "sent"), self.weights, self.receivers, self.served, self.reports.append
        )

    def write(self, byte: int) -> str:
        self.weights.bytes_of("w")[:1] = bytes([byte])
        return self.weights.fingerprint()


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[list[EngineElsewhere]]:
    model = tmp_path / "model"
    model.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    made = [EngineElsewhere(model), EngineElsewhere(model, "other")]
    yield made
    for one in made:
        one.end()


async def watched(gateway: Gateway) -> None:
    """Until all receivers have what is in memory."""
    watch = asyncio.create_task(gateway.sending.watch())
    try:
        async with asyncio.timeout(120):
            while any(one.version != gateway.served.version for one in gateway.receivers):
                await asyncio.sleep(0.02)
    finally:
        watch.cancel()


def test_a_version_that_could_not_be_written_is_told_and_written_later(
    tmp_path: Path, engines: list[EngineElsewhere], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.1)
    monkeypatch.setattr(module, "WATCH_S", 0.05)

    async def live() -> None:
        gateway = Gateway(tmp_path, *engines)
        (tmp_path / "sent").rename(tmp_path / "away")
        (tmp_path / "sent").write_text("no directory")
        fingerprint = gateway.write(1)
        error = await gateway.sending.refresh(1, True)
        assert "version 1 cannot be written" in error
        assert [(one.step, one.error) for one in gateway.reports] == [(1, error)] * 2
        assert gateway.served.version is None and not gateway.sending.of_now()
        (tmp_path / "sent").unlink()
        (tmp_path / "away").rename(tmp_path / "sent")
        gateway.served.announce(1, False)  # so that `watched` waits for it
        await watched(gateway)
        assert [one.fingerprint for one in engines] == [fingerprint] * 2
        assert {(one.step, one.fingerprint, one.error) for one in gateway.reports[2:]} == {(1, fingerprint, "")}

    asyncio.run(live())


def test_nothing_is_sent_while_the_trainer_may_write(
    tmp_path: Path, engines: list[EngineElsewhere], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    monkeypatch.setattr(module, "WATCH_S", 0.02)

    async def live() -> None:
        gateway = Gateway(tmp_path, *engines)
        engines[1].refuses.add("/collective_rpc")
        first = gateway.write(1)
        assert await gateway.sending.refresh(1, True) == "", "one of them has it"
        assert [bool(one.error) for one in gateway.reports] == [False, True]
        assert gateway.sending.of_now() == gateway.receivers[:1]
        await gateway.sending.hold()
        gateway.write(77)  # half a step
        engines[1].refuses.clear()
        watch = asyncio.create_task(gateway.sending.watch())
        await asyncio.sleep(0.3)
        assert [one.fingerprint for one in engines] == [first, engines[1].fingerprint]
        assert engines[1].calls.count("/collective_rpc") == 1, "torn weights were sent"
        watch.cancel()
        second = gateway.write(2)
        assert await gateway.sending.refresh(2, True) == ""
        assert [one.fingerprint for one in engines] == [second] * 2 and gateway.served.version == 2
        assert [one.version for one in gateway.receivers] == [2, 2]

    asyncio.run(live())


def test_a_request_waits_for_a_version_on_its_way_and_for_nothing_else(
    tmp_path: Path, engines: list[EngineElsewhere], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        gateway = Gateway(tmp_path, *engines)
        waiting = asyncio.create_task(gateway.sending.ready())
        await asyncio.sleep(0.1)
        assert not waiting.done(), "nothing was announced yet"
        gateway.write(1)
        await gateway.sending.refresh(1, True)
        assert await waiting == gateway.receivers[: len(await waiting)] != []
        for one in gateway.receivers:
            one.lost()
        async with asyncio.timeout(60):
            assert await gateway.sending.ready() == []

    asyncio.run(live())


def test_a_hold_waits_for_what_is_being_sent(tmp_path: Path, engines: list[EngineElsewhere]) -> None:
    async def live() -> None:
        gateway = Gateway(tmp_path, *engines)
        fingerprint = gateway.write(1)
        sent = asyncio.create_task(gateway.sending.refresh(1, True))
        await asyncio.sleep(0)
        await gateway.sending.hold()
        assert sent.done() and [one.fingerprint for one in engines] == [fingerprint] * 2

    asyncio.run(live())


def test_an_engine_that_was_restarted_is_not_asked_until_it_has_the_weights(
    tmp_path: Path, engines: list[EngineElsewhere], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    monkeypatch.setattr(module, "WATCH_S", 0.05)

    async def live() -> None:
        gateway = Gateway(tmp_path, *engines)
        fingerprint = gateway.write(1)
        await gateway.sending.refresh(1, True)
        engines[0].end()
        engines[0].serve()
        gateway.receivers[0].lost()  # as the proxy says of a connection that broke
        assert gateway.sending.of_now() == gateway.receivers[1:]
        await watched(gateway)
        assert engines[0].fingerprint == fingerprint
        engines[1].end()  # and nobody asks it
        watch = asyncio.create_task(gateway.sending.watch())
        async with asyncio.timeout(120):
            while gateway.receivers[1].version is not None:
                await asyncio.sleep(0.02)
        engines[1].serve()
        watch.cancel()
        await watched(gateway)
        assert engines[1].fingerprint == fingerprint

    asyncio.run(live())
