"""Tensors on a GPU that another process hands over by the driver's handle, copied by the receiver process. Not run on a
GPU yet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import torch
from gpu.test_ipc import Peer

from apollod.adapters.weight_receiver import WeightReceiver
from apollod.errors import ReceiveFailed
from apollod.receiver.payload import Tensor
from apollod.sender import SharedSegment
from apollod.store.model_files import read_header
from apollod.wire.receiver_messages import Announced
from apollod.wire.tensor_handles import DeviceBytes, Handle, HostBytes

SHAPES = {"small": (3, 50), "other": (300,), "large": (1 << 21, 5)}  # two in one segment of torch's allocator


def handle(given: dict[str, Any]) -> Handle:
    import base64

    if "file" in given:
        return HostBytes(**given)
    return DeviceBytes(**{**given, "memory_handle": base64.b64decode(given["memory_handle"])})


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    made = SharedSegment()
    yield made
    made.end()


def taken(root: Path, weights: dict[str, torch.Tensor], handles: list[Handle], times: int = 1) -> bytes:
    async def take() -> None:
        receiver = WeightReceiver(root / "log")
        announced = [Announced(name, str(one.dtype), tuple(one.shape)) for name, one in weights.items()]
        try:
            for _ in range(times):
                await receiver.take(root / "new", announced, handles, (), 120.0)
        finally:
            await receiver.close()

    anyio.run(take)
    data = (root / "new").read_bytes()
    return b"".join(data[one.start : one.start + one.bytes] for one in read_header(root, "new").tensors)


def test_what_lies_on_the_device_is_what_the_file_holds(segment: SharedSegment, tmp_path: Path) -> None:
    weights = {name: torch.randn(shape, device="cuda") for name, shape in SHAPES.items()}
    weights["turned"] = torch.randn(40, 30, device="cuda").T  # not contiguous: through host memory
    handles = [handle(one) for one in segment.handles(weights.values())]
    assert [type(one) for one in handles] == [DeviceBytes] * 3 + [HostBytes]
    for one in weights.values():  # the second copy sees what was written after the first
        one.mul_(2)
    torch.cuda.synchronize()
    handles = [handle(one) for one in segment.handles(weights.values())]
    wanted = b"".join(one.cpu().contiguous().numpy().tobytes() for one in weights.values())
    assert taken(tmp_path, weights, handles, times=2) == wanted


def test_a_lie_about_the_allocation_is_refused(segment: SharedSegment, tmp_path: Path) -> None:
    weights = {"w": torch.randn(SHAPES["large"], device="cuda")}
    (good,) = [handle(one) for one in segment.handles(weights.values())]
    assert isinstance(good, DeviceBytes)
    beyond = good.allocation_bytes - good.bytes + 4
    lie = DeviceBytes(good.bytes, good.device_uuid, good.memory_handle, beyond, good.allocation_bytes + 4096)
    with pytest.raises(ReceiveFailed, match="lie outside an allocation"):
        taken(tmp_path, weights, [lie])
    with pytest.raises(ReceiveFailed, match="cuIpcOpenMemHandle"):
        taken(tmp_path, weights, [DeviceBytes(good.bytes, good.device_uuid, bytes(64), 0, good.allocation_bytes)])


def test_a_bad_value_is_refused(segment: SharedSegment, tmp_path: Path) -> None:
    weights = {"w": torch.randn(SHAPES["large"], device="cuda")}
    weights["w"][-1, -1] = torch.inf
    with pytest.raises(ReceiveFailed, match="w holds NaN or infinity"):
        taken(tmp_path, weights, [handle(one) for one in segment.handles(weights.values())])


def test_the_handle_of_a_trainer_that_ended_is_refused(tmp_path: Path) -> None:
    import base64

    import msgspec

    from apollod.wire.manifest import CudaHandle

    owner = Peer("owner", str(1 << 22))
    given = msgspec.msgpack.decode(base64.b64decode(owner.read()["handles"][0]), type=CudaHandle)
    owner.kill()
    gone = DeviceBytes(given.bytes, given.device_uuid, given.memory_handle, given.offset_bytes, given.allocation_bytes)
    tensor = Tensor("w", "bfloat16", (given.bytes // 2,))
    with pytest.raises(ReceiveFailed):
        taken(tmp_path, {tensor.name: torch.empty(tensor.shape, dtype=torch.bfloat16)}, [gone])
