"""Which tensors differ between engine and trainer: on a real placement, each kind of difference made on purpose."""

import os
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from apollod.engine import worker
from apollod.engine.load.layout import contiguous_stride
from apollod.engine.load.shared_parameters import place_cpu
from apollod.wire.manifest import Manifest, TensorEntry, tensor_digest


class Convolution:
    """Stands for what vLLM packed: `fresh` is what `verified` finds."""

    def __init__(self, plain: torch.Tensor) -> None:
        self.plain, self.fresh = plain, True

    def verified(self) -> bool:
        return self.fresh


@pytest.fixture
def model() -> nn.Module:
    """Two layers in a memory file, the second one derived, and a frozen tensor that nobody compares."""
    torch.manual_seed(0)
    made = (
        nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 4, bias=False)).to(torch.bfloat16).requires_grad_(False)
    )

    def reserve(size: int) -> int:
        descriptor = os.memfd_create("test-weights")
        os.ftruncate(descriptor, size)
        return descriptor

    placement = place_cpu(made, reserve)
    entries = [
        TensorEntry(
            name, region.storage, region.offset, tuple(p.shape), contiguous_stride(p.shape), "bfloat16", "bfloat16",
            "rederive" if name.startswith("1") else "live",
        )
        for region in placement.regions for name, p in made.named_parameters() if name in region.names
    ]  # fmt: skip
    entries.append(TensorEntry("frozen", -1, 0, (1,), (1,), "bfloat16", "bfloat16", "frozen", "why not"))
    made.apollod = SimpleNamespace(
        derived=(Convolution(made[1].weight.data),),
        placement=placement,
        manifest=Manifest("/m", "memfd", placement.storages, tuple(entries)),
        addresses={name: p.data_ptr() for name, p in made.named_parameters()},
    )  # type: ignore[assignment]
    return made


def digests(model: nn.Module) -> dict[str, str]:
    return {
        name: tensor_digest(p.contiguous().reshape(-1).view(torch.uint8).numpy())
        for name, p in model.named_parameters()
    }


def differing(model: nn.Module, trainers: dict[str, str]) -> dict[str, str]:
    """As the API process asks: one tensor after another here."""
    found: dict[str, str] = {}
    for name in worker.compared(model):
        found |= worker.differing(model, [name], trainers)
    return found


def test_what_both_see_alike_is_not_named(model: nn.Module) -> None:
    assert differing(model, digests(model)) == {}


def test_one_bit_is_found(model: nn.Module) -> None:
    trainers = digests(model)
    model[0].weight.view(torch.int16)[0, 0] ^= 1
    assert differing(model, trainers) == {"0.weight": worker.OTHER}


def test_a_derived_copy_that_is_old_comes_first(model: nn.Module) -> None:
    trainers = digests(model)
    model[0].weight.zero_()
    model.apollod.derived[0].fresh = False
    assert list(differing(model, trainers).items()) == [("1.weight", worker.STALE), ("0.weight", worker.OTHER)]


def test_a_parameter_that_left_the_memory_is_found_with_the_same_values(model: nn.Module) -> None:
    trainers = digests(model)
    model[0].weight.data = model[0].weight.data.clone()
    assert differing(model, trainers) == {"0.weight": worker.MOVED}


def test_a_tensor_that_the_trainer_lacks_is_named(model: nn.Module) -> None:
    trainers = digests(model)
    del trainers["0.weight"]
    assert differing(model, trainers) == {"0.weight": worker.MISSING}
