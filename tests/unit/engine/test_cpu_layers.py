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


@pytest.mark.skipif(not torch.cpu._is_avx512_bf16_supported(), reason="vLLM's convolution is for avx512_bf16")
def test_a_prompt_of_one_token_is_convolved_as_the_first_of_two() -> None:
    """Its row lies in a wider tensor: the layer splits what one product made."""
    from vllm import _custom_ops

    from apollod.engine.load.cpu_layers import accept_one_token

    channels, width = 96, 4
    wide = torch.randn(2, 2 * channels, dtype=torch.bfloat16)
    weight = _custom_ops.causal_conv1d_weight_pack(torch.randn(channels, width, dtype=torch.bfloat16))

    def convolved(rows: torch.Tensor) -> torch.Tensor:
        states = torch.zeros(2, width - 1, channels, dtype=torch.bfloat16).transpose(1, 2)
        return _custom_ops.causal_conv1d_fwd_cpu(
            x=rows.transpose(0, 1), weight=weight, bias=None, conv_states=states,
            query_start_loc=torch.tensor([0, len(rows)], dtype=torch.int32),
            cache_indices=torch.tensor([1], dtype=torch.int32), has_initial_state=torch.tensor([False]),
            silu_activation=True, is_weight_packed=True,
        )  # fmt: skip

    accept_one_token()
    accept_one_token()
    two = convolved(wide[:, :channels].contiguous())
    assert torch.equal(convolved(wide[:1, :channels].contiguous()), two[:, :1])
