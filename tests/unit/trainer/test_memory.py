"""The engine's memory in the trainer: devices by UUID, bounds, handles as plain data, and leaving with the engine."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from ctypes.util import find_library

import msgspec
import pytest
import torch
from support.fork_server import fork_server

from apollod.adapters.system.owner import open_pidfd, this_process, when_ended
from apollod.bridges import cuda_ipc
from apollod.errors import ShareRefused
from apollod.trainer.bind import mapped_memory
from apollod.trainer.bind.mapped_memory import EXIT_OWNER_GONE, leave_with, view_of
from apollod.wire import messages as m
from apollod.wire.manifest import CudaHandle, Manifest, Process, TensorEntry

A, B = "12345678-ABCD-ef01-2345-6789abcdef01", "99999999-abcd-ef01-2345-6789abcdef01"
HANDLE = CudaHandle(512, A, bytes(range(64)), 1024, 1536, Process(1, 2))
ENTRY = TensorEntry("w", 0, 256, (4, 8), (8, 1), "bfloat16", "bfloat16", "live")
STAND_BY = "import time; time.sleep(60)"


# --- which device ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [B, f"GPU-{B}", f"gpu-{B.upper()}", f" {B} "])
@pytest.mark.parametrize("visible", [[A, B], [f"GPU-{A}", f"GPU-{B.upper()}"]])
def test_a_device_is_found_by_uuid_with_and_without_prefix(wanted: str, visible: list[str]) -> None:
    assert cuda_ipc.device_index(wanted, visible) == 1


@pytest.mark.parametrize("visible", [[], [A]])
def test_an_invisible_device_is_refused_with_what_is_visible(visible: list[str]) -> None:
    with pytest.raises(ShareRefused, match=A if visible else "no device") as refused:
        cuda_ipc.device_index(B, visible)
    assert "CUDA_VISIBLE_DEVICES" in refused.value.hint


@pytest.mark.parametrize(("least", "asked"), [(0, []), (1, [1])])
def test_a_stream_is_made_only_for_a_priority_below_the_default(
    least: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lower priorities are greater numbers. Devices have none below the default of 0 so far."""
    made: list[int] = []

    class Stream:
        def __init__(self, device: torch.device, priority: int) -> None:
            made.append(priority)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return least, -5

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    mapped_memory.give_way(torch.device("cuda:0"))
    assert made == asked


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_the_handle_may_end_where_its_allocation_does() -> None:
    HANDLE.check()


@pytest.mark.parametrize(
    "change", [{"offset_bytes": 1025}, {"offset_bytes": -1}, {"bytes": 513}, {"bytes": 0}, {"allocation_bytes": 1535}]
)
def test_a_handle_outside_its_allocation_is_refused(change: dict[str, int]) -> None:
    changed = msgspec.structs.replace(HANDLE, **change)
    with pytest.raises(ShareRefused, match="outside an allocation"):
        Manifest("/m", "cuda-ipc", (changed,), ()).check()


def test_a_view_shares_memory_and_may_end_where_the_storage_does() -> None:
    memory = torch.zeros(256 + 64, dtype=torch.uint8)
    view_of(memory, ENTRY).fill_(1.0)
    assert memory[256:].view(torch.bfloat16).eq(1).all() and not memory[:256].any()


@pytest.mark.parametrize(
    "change",
    [{"offset": 258}, {"offset": -2}, {"shape": (5, 8)}, {"stride": (9, 1)}, {"stride": (8, -1)}, {"offset": 255}],
)
def test_a_view_outside_its_storage_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ShareRefused):
        view_of(torch.zeros(256 + 64, dtype=torch.uint8), msgspec.structs.replace(ENTRY, **change))


# --- handles --------------------------------------------------------------------------------------------------------


def test_handles_survive_the_wire_as_plain_data() -> None:
    manifest = Manifest("/m", "cuda-ipc", (HANDLE,), (ENTRY,))
    loaded, attach = m.Loaded(manifest, 1.5), m.Attach(manifest, m.OptimizerSettings(), True)
    assert msgspec.msgpack.Decoder(m.ToSupervisor).decode(m.encode(loaded)) == loaded
    assert msgspec.msgpack.Decoder(m.FromSupervisor).decode(m.encode(attach)) == attach
    assert HANDLE.memory_handle in m.encode(attach)


def test_a_handle_of_another_size_is_refused() -> None:
    with pytest.raises(ShareRefused, match="64 bytes, not 63"):
        cuda_ipc.open_handle(bytes(63))


@pytest.mark.skipif(find_library("cuda") is not None, reason="this machine has a CUDA driver")
def test_without_a_driver_the_refusal_says_so() -> None:
    for call in (lambda: cuda_ipc.open_handle(bytes(64)), lambda: cuda_ipc.export(4096)):
        with pytest.raises(ShareRefused, match="driver cannot be loaded"):
            call()


# --- leaving with the engine ----------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", STAND_BY])
    yield process
    process.kill()
    process.wait()


def identity(pid: int) -> Process:
    """As the process itself would tell it."""
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return Process(pid, int(fields[19]))


def test_this_process_is_known_by_its_start() -> None:
    assert this_process() == identity(os.getpid())


def test_the_descriptor_fires_when_the_process_ends(engine: subprocess.Popen[bytes]) -> None:
    descriptor = open_pidfd(identity(engine.pid))
    try:
        assert select.select([descriptor], [], [], 0.1)[0] == []
        engine.kill()
        assert select.select([descriptor], [], [], 5)[0] == [descriptor]
    finally:
        os.close(descriptor)


def test_what_has_ended_or_is_another_process_is_refused(engine: subprocess.Popen[bytes]) -> None:
    here = identity(engine.pid)
    with pytest.raises(ShareRefused, match="has ended"):
        open_pidfd(Process(here.pid, here.started - 1))
    engine.kill()
    engine.wait()
    for call in (lambda: open_pidfd(here), lambda: when_ended(here, lambda: None), lambda: leave_with(here)):
        with pytest.raises(ShareRefused, match="has ended"):
            call()


def test_a_trainer_leaves_as_soon_as_the_engine_is_killed(engine: subprocess.Popen[bytes]) -> None:
    owner = identity(engine.pid)
    code = (
        "from apollod.trainer.bind.mapped_memory import leave_with; from apollod.wire.manifest import Process\n"
        f"leave_with(Process({owner.pid}, {owner.started})); print('bound', flush=True)\n"
        "n = 0\nwhile True: n += 1"  # busy, as in a step
    )
    reading, writing = os.pipe()
    trainer = fork_server().start(["-c", code], os.environ, (0, writing, writing))
    os.close(writing)
    with open(reading) as said:
        try:
            assert said.readline() == "bound\n"
            time.sleep(0.2)
            assert trainer.poll() is None
            engine.send_signal(signal.SIGKILL)
            assert trainer.wait(10) == EXIT_OWNER_GONE
            assert f"process {engine.pid} ended" in said.read()
        finally:
            trainer.kill()
