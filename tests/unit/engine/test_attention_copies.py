"""Copies that an attention backend computes with: found, derived again, or a reason not to train. The backend is
vLLM's own b12x, whose copy is made as FlashInfer's is, and which needs no GPU to be imported. vLLM is imported by the
tests, not with this file: three seconds for every worker that collects it."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from apollod.engine.load.recorder import Recorder
from apollod.engine.load.shared_parameters import place_cpu
from apollod.engine.load.verification import unknown_copies, widened_sinks
from apollod.engine.worker import WorkerExtension


class Attention(nn.Module):
    """As gpt_oss.py of vLLM has it: the sinks belong to the layer around the one with the backend."""

    def __init__(self, impl: Any) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(8).to(torch.bfloat16), requires_grad=False)
        self.norm = nn.Parameter(torch.randn(4).to(torch.bfloat16), requires_grad=False)
        self.attn = nn.Module()
        self.attn.impl = impl


def reserve(size: int) -> int:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, size)
    return descriptor


def b12x(model: Attention) -> Any:
    """The backend of a loaded layer; its constructor would ask for a whole configuration of vLLM."""
    from vllm.v1.attention.backends.b12x import B12xPagedAttentionImpl

    impl = object.__new__(B12xPagedAttentionImpl)
    impl._sinks_source, impl.sinks = model.sinks, None
    model.attn.impl = impl
    impl.process_weights_after_loading(torch.bfloat16)
    return impl


@pytest.fixture
def model() -> Attention:
    torch.manual_seed(0)
    return Attention(None)


def homes(model: nn.Module, placement: Any) -> tuple[dict[str, tuple[str, str]], Any]:
    from apollod.engine.load.verification import Verifier

    verifier = Verifier(model, placement, Recorder(placement.regions))
    found = zip(placement.regions, verifier._homes, strict=True)
    return {region.names[0]: (home.status, home.reason) for region, home in found}, verifier


def test_a_widened_copy_is_derived_again_in_place(model: Attention) -> None:
    placement = place_cpu(model, reserve)
    impl = b12x(model)
    assert impl.sinks.dtype == torch.float32 and impl.sinks.data_ptr() != model.sinks.data_ptr()
    found, verifier = homes(model, placement)
    assert found["norm"] == ("live", "") and found["sinks"][0] == "rederive"
    copy, address = verifier.derived[0], impl.sinks.data_ptr()
    assert len(verifier.derived) == 1 and copy.verified()
    model.sinks.data.mul_(2)  # the trainer's write
    assert not copy.verified()
    worker = WorkerExtension()
    worker.model_runner = SimpleNamespace(get_model=lambda: SimpleNamespace(apollod=SimpleNamespace(derived=[copy])))
    assert worker.apollod_rederive() == 1
    assert copy.verified() and impl.sinks.data_ptr() == address and torch.equal(impl.sinks, model.sinks.float())


def test_a_backend_that_takes_the_parameter_itself_has_no_copy(model: Attention) -> None:
    placement = place_cpu(model, reserve)
    model.attn.impl = SimpleNamespace(sinks=model.sinks, scale=torch.tensor(1.0), cache=torch.zeros(8, 4))
    assert list(widened_sinks(model)) == list(unknown_copies(model)) == []
    assert {status for status, _ in homes(model, placement)[0].values()} == {"live"}


def test_a_copy_of_which_nothing_is_known_freezes_its_parameter(model: Attention) -> None:
    placement = place_cpu(model, reserve)
    model.attn.impl = SimpleNamespace(own=model.norm.detach().float())
    found, verifier = homes(model, placement)
    assert found["norm"] == ("frozen", "SimpleNamespace computes with a copy of it") and not verifier.derived
    assert found["sinks"] == ("live", "")


def test_a_copy_that_is_not_of_the_parameter_is_not_trusted(model: Attention) -> None:
    placement = place_cpu(model, reserve)
    b12x(model).sinks.add_(1)
    assert homes(model, placement)[0]["sinks"] == ("frozen", "the engine computes with other values")


def test_a_refresh_waits_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer has waited for its writes before it reported the step."""
    waited = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: waited.append("device"))
    worker = WorkerExtension()
    worker.model_runner = SimpleNamespace(get_model=lambda: SimpleNamespace(apollod=SimpleNamespace(derived=[])))
    assert worker.apollod_rederive() == 0 and waited == []
    worker.apollod_synchronize()
    assert waited == ["device"], "a pause does"
