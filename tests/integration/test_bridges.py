"""Bridges between two real processes: the memory file of `shared`, and one that transfers, to prove the seam."""

import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from anyio.abc import UNIXSocketStream
from support.bridge_conformance import SIZE, BridgeConformance, End, Way
from support.sent_way import SentWay

from apollod.adapters.ipc.sockets import Connection
from apollod.bridges.facts import BRIDGES, BridgeFacts, facts
from apollod.bridges.memory_file import SharedMemory
from apollod.core import effects as fx
from apollod.errors import ShareRefused
from apollod.supervisor.children import EngineChild
from apollod.supervisor.executor.child_effects import HANDLERS
from apollod.wire import messages as msg
from apollod.wire.engine_terms import SentBy
from apollod.wire.framing import FrameDecoder, encode_frame
from apollod.wire.manifest import Manifest, MemoryFile

_decoder = msgspec.msgpack.Decoder(msg.ToSupervisor)


class ByMemoryFile(Way):
    """What the supervisor does: it makes the memory that the engine asks for, and hands it to whoever trains."""

    def __init__(self, kind: str, its_facts: BridgeFacts) -> None:
        self.facts, self._kind = its_facts, kind
        here, there = socket.socketpair()
        with here, there:
            self.engine = End("engine", kind, str(there.fileno()), str(SIZE), descriptors=[there.fileno()])
            frames: list[bytes] = []
            framing = FrameDecoder()
            while not frames:
                frames += framing.feed(here.recv(4096))
            reserve = _decoder.decode(frames[0])
            assert isinstance(reserve, msg.Reserve)
            self._memory: SharedMemory | None = SharedMemory(reserve.bytes)
            self._share(here)
            assert self.engine.read() == {"ready": True}
        self.trainer = self.another_trainer()

    def another_trainer(self) -> End:
        here, there = socket.socketpair()
        with here, there:
            trainer = End("trainer", self._kind, str(there.fileno()), str(SIZE), descriptors=[there.fileno()])
            self._share(here)
            assert trainer.read() == {"ready": True}
        return trainer

    def release(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _share(self, connection: socket.socket) -> None:
        assert self._memory is not None
        share = msg.Share(self._memory.size)
        socket.send_fds(connection, [encode_frame(msg.encode(share))], [self._memory.fd])

    def close(self) -> None:
        self.release()
        for end in (self.engine, self.trainer):
            end.kill()


class TestMemoryFile(BridgeConformance):
    bridge = "memfd"

    @pytest.fixture
    def way(self) -> Iterator[Way]:
        way = ByMemoryFile(self.bridge, facts(self.bridge))
        yield way
        way.close()


class TestCopied(BridgeConformance):
    """A bridge of these tests alone."""

    @pytest.fixture
    def way(self) -> Iterator[Way]:
        way = ByMemoryFile("copied", BridgeFacts(in_place=False, outlives_engine=True, needs_pause=True))
        yield way
        way.close()


class Sent(BridgeConformance):
    """A bridge to an engine elsewhere."""

    @pytest.fixture
    def way(self, tmp_path: Path) -> Iterator[Way]:
        way = SentWay(cast(SentBy, self.bridge), tmp_path)
        yield way
        way.close()


class TestDisk(Sent):
    bridge = "disk"


class TestMemmap(Sent):
    bridge = "memmap"


class TestRestart(Sent):
    bridge = "restart"


def test_every_bridge_of_the_table_passes_the_conformance_suite() -> None:
    import_module("gpu.test_bridge")  # its suite is skipped without a GPU
    suites = {suite.bridge for suite in (*BridgeConformance.__subclasses__(), *Sent.__subclasses__())}
    suites |= {"gloo", "tensor"}  # test_weight_transfer.py: their engine is another apollod
    suites.add("lora")  # unit/engine/test_lora.py, test_stock_lora.py: what arrives is an approximation
    suites.add("nccl")  # test_nccl_sending.py, but for NCCL's own calls: they take two GPUs
    assert suites - {""} == set(BRIDGES)


def test_an_unknown_bridge_is_refused_by_name() -> None:
    with pytest.raises(ShareRefused, match="no bridge is called 'pigeon'"):
        facts("pigeon")


def test_an_engine_of_an_unknown_bridge_is_refused_before_anybody_binds_to_it() -> None:
    child = EngineChild(cast(Any, None), "/m", cast(Any, None), lambda input_: None)

    async def serve() -> None:
        here, there = socket.socketpair()
        with there:
            there.sendall(encode_frame(msg.encode(msg.Loaded(Manifest("/m", "pigeon", (), ()), 1.0))))
        async with await UNIXSocketStream.from_socket(here) as stream:
            await child.serve_worker(Connection(stream))

    with pytest.raises(ShareRefused, match="'pigeon'"):
        anyio.run(serve)
    assert child.loaded is None


def test_no_trainer_binds_to_an_engine_that_ended() -> None:
    """A daemon that was stopped in this moment left with a traceback: the engine's memory was gone, its manifest was
    not, and a trainer was told to attach."""
    child = EngineChild(cast(Any, None), "/m", cast(Any, None), lambda input_: None)
    child._files_lock, child.memory = None, SharedMemory(4096)
    child.loaded = msg.Loaded(Manifest("/m", "shared", (MemoryFile(4096),), ()), 1.0)
    assert [storage.bytes for storage, _ in child.descriptors()] == [4096]
    context: Any = SimpleNamespace(children=SimpleNamespace(engine=child), config=None)
    child.close()
    anyio.run(HANDLERS[fx.AttachTrainer].run, context, fx.AttachTrainer(False))
