"""The engine multiplies with the shared weight itself, on any processor, in what that is good at. vLLM, three seconds
of imports, is imported by the tests, not with this file."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from apollod import products


def test_without_bf16_instructions_in_float32_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from apollod.engine.load.cpu_layers import plain_linear

    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert plain_linear() is products.linear


@pytest.mark.parametrize("linear", [functional.linear, products.linear])
def test_neither_is_taken_for_a_packed_copy(linear: object) -> None:
    from apollod.engine.load.cpu_layers import packed_linear

    assert not packed_linear(SimpleNamespace(cpu_linear=linear)) and not packed_linear(SimpleNamespace())
    assert packed_linear(SimpleNamespace(cpu_linear=lambda *_: None))


@pytest.mark.parametrize("rows", [1, products.FEW_ROWS])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_write_is_seen_by_the_next_product(rows: int, dtype: torch.dtype) -> None:
    """Nothing of the weight is kept. A router's is float32, and stays with torch."""
    hidden, weight = torch.ones(1, rows, 40, dtype=dtype), torch.ones(50, 40, dtype=dtype)
    assert torch.equal(products.linear(hidden, weight), torch.full((1, rows, 50), 40, dtype=dtype))
    weight.mul_(2)
    assert torch.equal(products.linear(hidden, weight), torch.full((1, rows, 50), 80, dtype=dtype))
