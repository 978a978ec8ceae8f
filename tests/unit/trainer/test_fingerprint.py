"""The fingerprint equals its definition, byte for byte, in memory and in files."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from apollod.store.fingerprint import directory_fingerprint
from apollod.trainer.bind import live_fingerprint
from apollod.trainer.bind.live_fingerprint import model_fingerprint, tensor_fingerprint
from apollod.trainer.kernels import kernels_cpu


def naive(data: bytes) -> int:
    data += bytes(-len(data) % 4)
    words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
    return sum(w * ((2 * j + 1) * 0x9E3779B97F4A7C15 % 2**64) for j, w in enumerate(words)) % 2**64


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@given(data=st.binary(max_size=70), compiled=st.booleans())
def test_equals_the_definition_for_any_length(data, compiled):
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels_cpu, "AVAILABLE", compiled)
        assert tensor_fingerprint(tensor) == naive(data)


@settings(max_examples=10, deadline=None)
@given(size=st.integers(65_530, 140_000), seed=st.integers(0, 9))
def test_numpy_and_compiled_sums_agree_across_blocks(size, seed):
    tensor = torch.randint(
        -(2**31), 2**31 - 1, (size,), generator=torch.Generator().manual_seed(seed), dtype=torch.int64
    )
    tensor = tensor.to(torch.int32)
    compiled = tensor_fingerprint(tensor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels_cpu, "AVAILABLE", False)
        assert tensor_fingerprint(tensor) == compiled == naive(raw(tensor))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.bool])
def test_any_dtype_shape_and_stride(dtype):
    tensor = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).mul(9).to(dtype)
    assert tensor_fingerprint(tensor) == naive(raw(tensor))
    assert tensor_fingerprint(tensor.t()) == naive(raw(tensor.t()))
    assert tensor_fingerprint(tensor[1:, :]) == naive(raw(tensor[1:, :]))  # bf16: begins in the middle of a word
    assert tensor_fingerprint(tensor[0, 0]) == naive(raw(tensor[0, 0]))


def test_cast_parameter_counts_in_the_checkpoints_dtype():
    stored = torch.randn(33, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert (
        tensor_fingerprint(stored.float(), torch.bfloat16)
        == tensor_fingerprint(stored)
        != tensor_fingerprint(stored.float())
    )


def test_model_sum_is_the_definition_and_ignores_order():
    pairs = [("model.a", 3), ("model.b", 2**64 - 1)]
    weights = [1 | int.from_bytes(hashlib.blake2b(n.encode(), digest_size=32).digest()[:8], "little") for n, _ in pairs]
    expected = sum(f * w for (_, f), w in zip(pairs, weights, strict=True)) % 2**64
    assert model_fingerprint(pairs) == model_fingerprint(reversed(pairs)) == expected
    assert model_fingerprint([("model.b", 3), ("model.a", 2**64 - 1)]) != expected
    assert live_fingerprint.format(0xABC) == "0000000000000abc"


def test_file_equals_memory(tmp_path):
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "a.weight": torch.randn(7, 3, generator=generator).bfloat16(),  # odd: what follows may begin off a word
        "b.bias": torch.randn(5, generator=generator).bfloat16(),
        "c.scale": torch.randn(4, generator=generator),
        "d.empty": torch.empty(0, 3),
    }
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    expected = model_fingerprint((name, tensor_fingerprint(tensor)) for name, tensor in tensors.items())
    assert directory_fingerprint(tmp_path) == live_fingerprint.format(expected)
