"""Moving a model's parameters into shared memory, and what cannot be shared on a GPU."""

import os

import pytest
import torch
from torch import nn

from apollod.bridges import cuda_ipc
from apollod.engine.load.shared_parameters import ALIGN, place_cpu
from apollod.engine.refusals import check_allocator
from apollod.errors import ModelRefused, ShareRefused


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
        self.head.weight = self.embed.weight
        self.norm = nn.Parameter(torch.arange(5, dtype=torch.bfloat16))


def reserve(size: int) -> int:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, size)
    return descriptor


def test_contents_survive_and_ties_stay() -> None:
    model = Tied()
    before = {name: p.detach().clone() for name, p in model.named_parameters(remove_duplicate=False)}
    placed = place_cpu(model, reserve)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        assert torch.equal(parameter, before[name]) and parameter.data_ptr() == placed.addresses[name]
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()
    assert [region.names for region in placed.regions] == [("norm",), ("embed.weight", "head.weight")]
    assert all(
        region.offset % ALIGN == 0 and region.offset + region.nbytes <= placed.storages[0].bytes
        for region in placed.regions
    )


def test_the_parameters_are_the_shared_memory() -> None:
    model = Tied()
    placed = place_cpu(model, reserve)
    placed.flats[0].zero_()
    assert not any(parameter.any() for parameter in model.parameters())


def test_a_short_file_and_a_model_without_memory_are_refused() -> None:
    with pytest.raises(ShareRefused, match="512 bytes is announced, it has 511"):
        place_cpu(Tied(), lambda size: reserve(size - 1))
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    with pytest.raises(ShareRefused, match="meta device"):
        place_cpu(model, reserve)


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
@pytest.mark.parametrize(
    "value", ["expandable_segments:True", "max_split_size_mb:20, expandable_segments: true", "backend:cudaMallocAsync"]
)
def test_allocators_without_handles_are_refused(name: str, value: str) -> None:
    with pytest.raises(ModelRefused, match=name) as refused:
        check_allocator({name: value})
    assert refused.value.hint == f"unset {name}"


@pytest.mark.parametrize("value", ["", "expandable_segments:False", "max_split_size_mb:20", "backend:native"])
def test_other_allocator_settings_are_accepted(value: str) -> None:
    check_allocator({"PYTORCH_ALLOC_CONF": value, "PYTORCH_CUDA_ALLOC_CONF": value})


def test_a_handle_is_opened_once_in_a_process_however_often_a_trainer_attaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver is asked for; tests/gpu/test_ipc.py has a real one."""
    asked = []
    monkeypatch.setattr(cuda_ipc, "_call", lambda function, *_: asked.append(function))
    one, other = bytes(range(64)), bytes(64)
    try:
        assert {cuda_ipc.open_handle(handle) for handle in (one, one, other, one)} == {0}
    finally:
        cuda_ipc.open_handle.cache_clear()
    assert asked == ["cuIpcOpenMemHandle_v2"] * 2
