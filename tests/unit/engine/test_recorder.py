"""The recorder finds where checkpoint tensors go, and refuses what it does not understand. No vLLM here."""

import os

import pytest
import torch
from torch import nn

from apollod.engine.load.layout import NotOneView, merge
from apollod.engine.load.recorder import Recorder
from apollod.engine.load.shared_parameters import Placement, place_cpu

HIDDEN = 8


class Model(nn.Module):
    """Parameters as vLLM shapes them: a fused projection, a vocabulary padded from 5 to 8 rows, a tied head, a
    convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Parameter(torch.full((12, HIDDEN), -1.0, dtype=torch.bfloat16))
        self.embed = nn.Parameter(torch.full((8, HIDDEN), -1.0, dtype=torch.bfloat16))
        self.head = self.embed
        self.conv = nn.Parameter(torch.full((12, 1, 4), -1.0, dtype=torch.bfloat16))
        self.decay = nn.Parameter(torch.full((3,), -1.0, dtype=torch.float32))


class Loading:
    """A model in a memory file, and a recorder on it."""

    def __init__(self) -> None:
        self.model = Model()
        self.placement: Placement = place_cpu(self.model, memory_file)
        self.recorder = Recorder(self.placement.regions)

    def source(self, name: str, *shape: int) -> torch.Tensor:
        """A checkpoint tensor of random values, announced to the recorder."""
        tensor = torch.randn(shape).to(torch.bfloat16)
        self.recorder.tag(name, tensor)
        return tensor

    def view(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The shared view that was discovered for a checkpoint tensor."""
        copies = self.recorder.copies[name]
        assert len({copy.region for copy in copies}) == 1
        offset, stride = merge([copy.piece for copy in copies], shape)
        return self.placement.view(0, copies[0].dtype, offset, shape, stride)

    def refused(self, name: str) -> str:
        """Why the parameter is refused; empty when it is not."""
        number = next(n for n, region in enumerate(self.placement.regions) if name in region.names)
        return self.recorder.refused_regions.get(number, "")


def memory_file(size: int) -> int:
    fd = os.memfd_create("test")
    os.ftruncate(fd, size)
    return fd


@pytest.fixture
def loading() -> Loading:
    torch.manual_seed(0)
    return Loading()


def test_moving_keeps_values_ties_and_alignment(loading: Loading) -> None:
    model, placement = loading.model, loading.placement
    assert model.head is model.embed
    assert bool((model.qkv == -1).all()) and bool((model.decay == -1).all())
    assert [region.names for region in placement.regions] == [("qkv",), ("embed", "head"), ("conv",), ("decay",)]
    assert all(region.offset % 256 == 0 for region in placement.regions)
    placement.flats[0].zero_()
    assert not any(bool(parameter.any()) for parameter in model.parameters())


def test_two_parameters_over_one_storage_stay_tied() -> None:
    model = nn.Module()
    model.whole = nn.Parameter(torch.arange(6.0).view(3, 2))
    model.rows = nn.Parameter(model.whole.data[1:])
    place_cpu(model, memory_file)
    model.whole.data[2, 0] = 9
    assert model.rows.tolist() == [[2, 3], [9, 5]]


def test_fused_rows_are_one_view_each(loading: Loading) -> None:
    q, k, v = (loading.source(name, 4, HIDDEN) for name in "qkv")
    with loading.recorder:
        for n, tensor in enumerate((q, k, v)):
            loading.model.qkv.data.narrow(0, 4 * n, 4).copy_(tensor)
    for name, tensor in zip("qkv", (q, k, v), strict=True):
        assert torch.equal(loading.view(name, (4, HIDDEN)), tensor)
    loading.view("k", (4, HIDDEN)).fill_(3)
    assert bool((loading.model.qkv[4:8] == 3).all()) and torch.equal(loading.model.qkv[8:].data, v)
    assert not loading.recorder.refused_sources and not loading.recorder.refused_regions


def test_row_blocks_of_one_tensor_are_merged(loading: Loading) -> None:
    weight = loading.source("conv", 12, 1, 4)
    with loading.recorder:
        for start in (0, 4, 8):
            loading.model.conv.data[start : start + 4, ...] = weight[start : start + 4].view(4, 1, 4)
    assert len(loading.recorder.copies["conv"]) == 3
    assert torch.equal(loading.view("conv", (12, 1, 4)), weight)


def test_a_narrowed_source_is_not_the_whole_tensor(loading: Loading) -> None:
    weight = loading.source("w", 24, HIDDEN)
    with loading.recorder:
        loading.model.qkv.data.copy_(weight.narrow(0, 12, 12))
    with pytest.raises(NotOneView, match="96 of its 192 elements"):
        loading.view("w", (24, HIDDEN))


def test_swapped_blocks_are_not_one_view(loading: Loading) -> None:
    weight = loading.source("w", 12, HIDDEN)
    with loading.recorder:
        loading.model.qkv.data[:6].copy_(weight[6:])
        loading.model.qkv.data[6:].copy_(weight[:6])
    with pytest.raises(NotOneView, match="one strided view"):
        loading.view("w", (12, HIDDEN))


def test_a_transposed_copy_is_a_strided_view(loading: Loading) -> None:
    weight = loading.source("w", HIDDEN, 12)
    with loading.recorder:
        loading.model.qkv.data.copy_(weight.t())
    assert torch.equal(loading.view("w", (HIDDEN, 12)), weight)


def test_padding_rows_may_be_zeroed_and_nothing_else(loading: Loading) -> None:
    weight = loading.source("w", 5, HIDDEN)
    with loading.recorder:
        loading.model.embed[:5].data.copy_(weight)
        loading.model.embed[5:].data.fill_(0)
    assert torch.equal(loading.view("w", (5, HIDDEN)), weight)
    assert not loading.refused("embed")
    with loading.recorder:
        loading.model.embed[5:].data.fill_(1)
    assert "aten.fill_" in loading.refused("head")


def test_widening_is_recorded_with_the_held_dtype(loading: Loading) -> None:
    weight = loading.source("w", 3)
    with loading.recorder:
        loading.model.decay.data.copy_(weight)
    view = loading.view("w", (3,))
    assert view.dtype == torch.float32 and torch.equal(view, weight.float())


def test_a_parameter_written_otherwise_is_refused(loading: Loading) -> None:
    model = loading.model
    q = loading.source("q", 12, HIDDEN)
    with loading.recorder:
        model.qkv.data.copy_(q)
        model.qkv.data.mul_(2)  # what a loader does that folds a scale in
        model.embed.data.copy_(torch.ones(8, HIDDEN))  # from nowhere
        torch._foreach_zero_([model.conv.data])
        torch.exp(torch.ones(3), out=model.decay.data)
    assert "aten.mul_" in loading.refused("qkv")
    assert "computed tensor" in loading.refused("embed")
    assert "_foreach_zero_" in loading.refused("conv")
    assert "aten.exp" in loading.refused("decay")


def test_a_checkpoint_tensor_read_otherwise_is_refused(loading: Loading) -> None:
    a, b, c, d = (loading.source(name, 3) for name in "abcd")
    with loading.recorder:
        loading.model.decay.data.copy_(-torch.exp(a.float()))  # Mamba's A
        torch.empty(3, dtype=torch.bfloat16).copy_(b)
        loading.model.decay.data.copy_(c)
        _ = c.sum()
        loading.model.decay.data.view(torch.int32)[:1].copy_(d.view(torch.int16)[:1])
    assert "_to_copy" in loading.recorder.refused_sources["a"]
    assert "no parameter" in loading.recorder.refused_sources["b"]
    assert "aten.sum" in loading.recorder.refused_sources["c"]
    assert "torch.int16" in loading.recorder.refused_sources["d"]
    assert "computed tensor" in loading.refused("decay")


def test_one_name_given_twice_is_refused(loading: Loading) -> None:
    tensor = loading.source("a", 3)
    loading.recorder.tag("b", tensor)
    assert list(loading.recorder.refused_sources) == ["b"]
