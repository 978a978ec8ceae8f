"""Copies out of device memory: the same bytes, in parts that fit the two buffers. On CPU through ordinary ones."""

import pytest
import torch
from torch import Tensor

from apollod.trainer.checkpoints import weights_snapshot
from apollod.trainer.kernels import device_to_host
from apollod.trainer.kernels.device_to_host import Lane, in_host_memory, pieces, to_host

BUFFER = 64
WIDE = torch.randn(9, 7, 5, generator=torch.Generator().manual_seed(0)).bfloat16().float()
SOURCES = {
    "flat": WIDE.view(-1),
    "matrix": WIDE[0],
    "number": WIDE[0, 0, 0],
    "empty": WIDE[:0],
    "turned": WIDE.permute(2, 0, 1),
    "columns": WIDE.view(63, 5)[:, 1:3],
    "one row": WIDE.view(1, -1)[:, ::2],
    "strided": WIDE.view(-1)[::3],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_what_goes_through_the_buffers_is_what_was_there(source: Tensor, dtype: torch.dtype) -> None:
    target = torch.full(source.shape, -1.0, dtype=dtype)
    lane = Lane(torch.device("cpu"), BUFFER)
    lane.copy_(target, source)
    assert torch.equal(target, source.to(dtype))
    assert torch.equal(to_host(source, dtype), target) and torch.equal(in_host_memory(source, dtype), target)
    assert in_host_memory(source, dtype).is_contiguous()
    assert [buffer.nbytes for buffer in lane._buffers] == [BUFFER, BUFFER]


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_no_part_is_larger_than_a_buffer_and_nothing_is_copied_to_make_it(source: Tensor) -> None:
    target = torch.empty(source.shape)
    parts = list(pieces(target, source, BUFFER // 4))
    assert all(0 < place.nbytes <= BUFFER and place.shape == part.shape for place, part in parts)
    assert sum(part.numel() for _, part in parts) == source.numel()
    inside = range(WIDE.data_ptr(), WIDE.data_ptr() + WIDE.nbytes)
    assert all(part.data_ptr() in inside for _, part in parts)


def test_a_buffer_is_not_filled_again_before_it_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device: parts arrive when they are waited for, not when they are sent."""
    sent: list[str] = []

    class Late:
        def __init__(self, buffer: Tensor, part: Tensor) -> None:
            sent.append("sent")
            self._do = lambda: buffer.copy_(part)

        def synchronize(self) -> None:
            sent.append("waited")
            self._do()

    monkeypatch.setattr(Lane, "_send", lambda self, buffer, part: Late(buffer, part))
    target = torch.empty(100)
    source = torch.arange(100.0)
    Lane(torch.device("cpu"), BUFFER).copy_(target, source)
    assert torch.equal(target, source)
    assert sent[:5] == ["sent", "sent", "waited", "sent", "waited"]  # one on its way while another is put in its place


def test_a_snapshot_is_made_of_such_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_snapshot, "PART_BYTES", 100)
    lane = Lane(torch.device("cpu"), BUFFER)
    monkeypatch.setattr(device_to_host, "copy_", lane.copy_)
    for source in SOURCES.values():
        target = torch.full(source.shape, -1.0, dtype=torch.bfloat16)
        for part in weights_snapshot._parts(target, source):
            part()
        assert torch.equal(target, source.bfloat16())
