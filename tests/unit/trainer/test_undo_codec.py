"""The way back of a write: every bit pattern, every codec, every length."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apollod.trainer.optim.rounding import stochastic_round
from apollod.trainer.undo import undo_codec as codec
from apollod.trainer.undo import way_back

SIZES = [1, 5, codec.BLOCK - 1, codec.BLOCK, codec.BLOCK + 1, 3 * codec.BLOCK, codec.PACKED_MIN + 7, 5000]
SPECIAL = {
    # zeros, the smallest and largest subnormals, one, largest finite, infinities, NaN with payloads, what carries into
    # the sign
    np.uint16: [0, 0x8000, 1, 0x8001, 0x7F, 0x3F80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF, 0x7FFF, 0x8000,
    0xFFFE],
    np.uint32: [0, 1 << 31, 1, 0x80000001, 0x7FFFFF, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0xFFFFFFFF,
    0x7FFFFFFF, 0x8000],
}  # fmt: skip
needs_kernels = pytest.mark.skipif(codec.kernels() is None, reason="numba is not installed")


def tensor(words: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    signed = words.view(np.int16 if words.itemsize == 2 else np.int32)
    return torch.from_numpy(signed.copy()).view(dtype)


def pair(kind: type, size: int, seed: int, near: float, far: float) -> tuple[np.ndarray, np.ndarray]:
    """Old and new words: shares of elements that move by one or, in another way, at all; special values in both."""
    chance = np.random.default_rng(seed)
    top = np.iinfo(kind).max
    old = chance.integers(0, top, size, kind, endpoint=True)
    old[chance.random(size) < 0.1] = chance.choice(SPECIAL[kind])
    new = old.copy()
    moved = chance.random(size)
    new[moved < near] += chance.choice(np.array([1, top], kind), int((moved < near).sum()))
    jumped = chance.random(size) < far
    new[jumped] = chance.integers(0, top, int(jumped.sum()), kind, endpoint=True)
    new[chance.random(size) < far / 10] = chance.choice(SPECIAL[kind])
    return old, new


def comes_back(old: np.ndarray, new: np.ndarray, dtype: torch.dtype, made: way_back.Packed) -> bool:
    values = tensor(new, dtype)
    made.restore(values)
    return np.array_equal(codec.words(values), old)


shares = st.sampled_from([0.0, 0.001, 0.05, 0.2, 1.0])


@given(st.sampled_from(SIZES), st.integers(0, 1 << 32), shares, shares)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", ["packed", "kernels", "torch"])
def test_sixteen_bits_come_back(dtype: torch.dtype, way: str, size: int, seed: int, near: float, far: float) -> None:
    old, new = pair(np.uint16, size, seed, near, far)
    made: way_back.Packed | None
    if way == "kernels":
        if codec.kernels() is None or (made := codec.HalfPacked.of(old, new)) is None:
            return
    else:
        make = codec.packed if way == "packed" else way_back.TorchPacked
        made = make(tensor(old, dtype), tensor(new, dtype))
    assert comes_back(old, new, dtype, made)


@given(
    st.sampled_from(SIZES),
    st.integers(0, 1 << 32),
    shares,
    shares,
    st.sampled_from(["any", "close", "grid", "one off the grid"]),
)
def test_thirty_two_bits_come_back(size: int, seed: int, near: float, far: float, kind: str) -> None:
    old, new = pair(np.uint32, size, seed, near, far)
    if kind == "close":
        new = old + np.random.default_rng(seed).integers(-33000, 33000, size).astype(np.uint32)
    elif kind != "any":
        old, new = (words & np.uint32(0xFFFF0000) for words in (old, new))
        if kind == "one off the grid":
            new[-1] |= 1
    assert comes_back(old, new, torch.float32, codec.packed(tensor(old, torch.float32), tensor(new, torch.float32)))
    if codec.kernels() is not None and (made := codec.FloatPacked.of(old, new)) is not None:
        assert comes_back(old, new, torch.float32, made)


@needs_kernels
def test_every_pair_of_neighbours_and_every_value_escaped() -> None:
    """All 65536 patterns, each one up, one down, and a third of them to something far."""
    old = np.arange(1 << 16, dtype=np.uint16)
    for new in (old + np.uint16(1), old - np.uint16(1), old):
        assert comes_back(old, new, torch.bfloat16, made := codec.HalfPacked.of(old, new))
        assert made.escapes.size == 0
    mixed = np.where(old % 3 == 0, old ^ np.uint16(0x5555), old)
    assert comes_back(old, mixed, torch.bfloat16, made := codec.HalfPacked.of(old, mixed))
    assert made.escapes.size == -(-old.size // 3)


@needs_kernels
@pytest.mark.parametrize("far", [-(1 << 15) - 1, -(1 << 15), -(1 << 15) + 1, (1 << 15) - 1, 1 << 15, 0])
def test_the_last_difference_of_sixteen_bits(far: int) -> None:
    old = np.arange(4 * codec.BLOCK).astype(np.uint32) << 18
    new = old.copy()
    new[::37] += np.array(far).astype(np.uint32)
    assert comes_back(old, new, torch.float32, codec.FloatPacked.of(old, new))


@needs_kernels
def test_blocks_without_a_change_take_a_byte() -> None:
    old = np.arange(100 * codec.BLOCK).astype(np.uint16)
    new = old.copy()
    new[7 * codec.BLOCK + 3] += 1
    made = codec.packed(tensor(old, torch.bfloat16), tensor(new, torch.bfloat16))
    assert made.nbytes == 104 + codec.BLOCK // 4  # flags to whole words
    assert comes_back(old, new, torch.bfloat16, made)


@pytest.mark.parametrize("make", [pytest.param(codec.packed, marks=needs_kernels), way_back.TorchPacked])
def test_a_rounded_step_takes_less_than_a_fifth(make) -> None:
    """lr 1e-5 times a normal deviate, stochastically rounded, on weights of deviation 0.02."""
    generator = torch.Generator().manual_seed(0)
    old = (torch.randn(1 << 18, generator=generator) * 0.02).bfloat16()
    new = stochastic_round(old.float() + 1e-5 * torch.randn(1 << 18, generator=generator), 1).bfloat16()
    made = make(old, new)
    assert made.nbytes < 0.2 * old.nbytes
    made.restore(new)
    assert torch.equal(old, new)


def test_what_does_not_pack_is_kept_as_it_is() -> None:
    old, new = pair(np.uint16, 5000, 0, 0.0, 1.0)
    assert codec.packed(tensor(old, torch.bfloat16), tensor(new, torch.bfloat16)).nbytes <= old.nbytes * 1.3
    old, new = pair(np.uint32, 5000, 0, 0.0, 1.0)
    assert codec.packed(tensor(old, torch.float32), tensor(new, torch.float32)).nbytes == old.nbytes


@pytest.mark.parametrize(
    "values", [torch.tensor(3), torch.full((2, 300), -0.0), torch.zeros(5, 7), torch.arange(9, dtype=torch.uint8)]
)
def test_copies_give_every_bit_back(values: torch.Tensor) -> None:
    """-0.0 is not zero, and zeros take nothing."""
    made = codec.copied(values)
    assert (made.nbytes == 0) == (not any(values.view(-1).view(torch.uint8)))
    later = values + 1
    made.restore(later.view(-1))
    assert torch.equal(later.view(-1).view(torch.uint8), values.view(-1).view(torch.uint8))


def test_chunks_of_a_large_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(way_back, "TORCH_CHUNK", 1024)
    for size in (1023, 1024, 1025, 5000):
        old, new = pair(np.uint16, size, size, 0.2, 0.05)
        assert comes_back(
            old, new, torch.bfloat16, way_back.TorchPacked(tensor(old, torch.bfloat16), tensor(new, torch.bfloat16))
        )
