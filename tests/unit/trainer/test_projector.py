"""The projection is a pure function of (seed, name, epoch) and keeps norms in expectation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apollod.trainer.kernels import kernels_cpu
from apollod.trainer.optim.projector import project, random_words, signs, square_norms, stream_key

U32 = 0xFFFFFFFF


def naive_word(key: int, index: int) -> int:
    x = ((index * 0x9E3779B1 + (key & U32)) & U32) ^ (key >> 32)
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & U32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & U32
    return x ^ (x >> 16)


@given(key=st.integers(0, 2**64 - 1), first=st.integers(0, 2**32 - 20), count=st.integers(0, 9))
def test_random_words_are_the_written_hash_on_any_device(key, first, count):
    words = random_words(key, first, count).numpy().view(np.uint32)
    assert words.tolist() == [naive_word(key, first + i) for i in range(count)]


@pytest.mark.parametrize(("rows", "rank"), [(7, 5), (64, 1), (33, 64)])
def test_signs_are_the_bits_of_the_words(rows, rank):
    key = stream_key("projection", 0, "w", 0)
    matrix = signs(key, rows, rank, torch.bfloat16)
    assert matrix.shape == (rows, rank) and matrix.dtype == torch.bfloat16
    for i in range(rows):
        for j in range(rank):
            bit = i * rank + j
            assert matrix[i, j] == (-1.0 if naive_word(key, bit // 32) >> (bit % 32) & 1 else 1.0)


def test_a_key_depends_on_every_part_and_only_on_them():
    keys = [
        stream_key(purpose, seed, name, counter)
        for purpose in ("projection", "rounding")
        for seed in (0, 1)
        for name in ("a.weight", "b.weight")
        for counter in (0, 1, 10)
    ]
    assert len(set(keys)) == len(keys)
    assert stream_key("projection", 0, "model.layers.0.mlp.up_proj.weight", 3) == 0x99FB1FFB25173306


def test_projections_of_different_keys_are_uncorrelated():
    matrices = [
        signs(stream_key("projection", 0, name, epoch), 1024, 64, torch.float32) for name in "ab" for epoch in (0, 1)
    ]
    limit = 5 / math.sqrt(1024 * 64)  # five standard errors
    for i, left in enumerate(matrices):
        assert abs(left.mean()) < limit
        for right in matrices[:i]:
            assert abs((left * right).mean()) < limit


@pytest.mark.parametrize("shape", [(96, 40), (40, 96), (64, 64), (40, 70000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_project_is_the_scaled_product_of_the_smaller_side(shape, dtype):
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    basis = signs(9, min(shape), 16, torch.float64) / 4
    expected = gradient.double() @ basis if shape[0] >= shape[1] else basis.T @ gradient.double()
    low_rank = project(gradient, 9, 16)
    assert low_rank.dtype == torch.float32
    # bf16: the product, of standard deviation 6 before the factor 1/4, is rounded to 8 bits once a block
    tolerance = {"rtol": 2**-8, "atol": 2**-5} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(low_rank.double(), expected, **tolerance)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 70), columns=st.integers(1, 150), dim=st.sampled_from((0, 1)), seed=st.integers(0, 99))
def test_square_norms_agree_with_and_without_compiled_kernels(rows, columns, dim, seed):
    gradient = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).bfloat16()
    expected = gradient.double().square().sum(dim)
    compiled = square_norms(gradient, dim)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels_cpu, "AVAILABLE", False)
        eager = square_norms(gradient, dim)
    assert compiled.dtype == eager.dtype == torch.float64 and compiled.shape == eager.shape == expected.shape
    torch.testing.assert_close(compiled, expected, rtol=1e-13, atol=0)
    assert torch.equal(compiled.float(), eager.float())
