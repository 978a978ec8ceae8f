"""What a sender may announce, and how announced tensors are cut into broadcasts: as vLLM's own code does it."""

import importlib.util
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.errors import ReceiveFailed
from apollod.receiver.payload import BYTES_MAX, DTYPES, NAME_MAX, RANK_MAX, TENSORS_MAX, Tensor, broadcasts, checked
from apollod.wire.receiver_messages import Announced

SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)
TENSORS = st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES), min_size=1, max_size=30).map(
    lambda found: [Tensor(f"t{number}", dtype, shape) for number, (dtype, shape) in enumerate(found)]
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=NAME_MAX).filter(
    lambda name: name != "__metadata__"
)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Announced("", "float32", (1,)), "a tensor is named ''"),
        (Announced("n" * (NAME_MAX + 1), "float32", (1,)), f"has {NAME_MAX + 1} characters"),
        (Announced("__metadata__", "float32", (1,)), "a tensor is named '__metadata__'"),
        (Announced("first", "float32", (1,)), "first is announced twice"),
        (Announced("w", "int8", (1,)), "w is announced as 'int8'"),
        (Announced("w", "float64", (1,)), "w is announced as 'float64'"),
        (Announced("w", "torch.torch.float32", (1,)), "w is announced as 'torch.torch.float32'"),
        (Announced("w", "float32", (-1,)), r"w is announced with the shape \[-1\]"),
        (Announced("w", "float32", (-1, -1)), r"w is announced with the shape \[-1, -1\]"),
        (Announced("w", "float32", (0, -1)), r"w is announced with the shape \[0, -1\]"),
        (Announced("w", "float32", (0, 1 << 64)), r"w is announced with the shape \[0, "),
        (Announced("w", "float32", (1 << 32, 1 << 32)), r"w is announced with the shape \[4294967296, 4294967296\]"),
        (Announced("w", "bfloat16", (1 << 62,)), f"{(1 << 63) + 4} bytes are announced"),
        (Announced("w", "float32", (1,) * (RANK_MAX + 1)), f"w is announced with {RANK_MAX + 1} dimensions"),
    ],
)
def test_what_cannot_be_received_is_refused_by_name(wrong: Announced, error: str) -> None:
    with pytest.raises(ReceiveFailed, match=error) as refused:
        checked([Announced("first", "float32", (1,)), wrong])
    assert refused.value.hint


@pytest.mark.parametrize("count", [0, TENSORS_MAX + 1])
def test_no_tensor_and_too_many_are_refused(count: int) -> None:
    with pytest.raises(ReceiveFailed, match=f"{count} tensors are announced"):
        checked([Announced(str(number), "float32", ()) for number in range(count)])


def test_the_most_that_is_allowed() -> None:
    name, shape = "n" * NAME_MAX, (1,) * RANK_MAX
    many = [Announced(str(number), "torch.float16", ()) for number in range(TENSORS_MAX - 1)]
    assert len(checked([*many, Announced(name, "bfloat16", shape)])) == TENSORS_MAX


@given(st.lists(NAMES, min_size=1, max_size=10, unique=True), st.sampled_from(DTYPES), SHAPES, st.booleans())
def test_what_can_be_received_is_taken_as_announced(
    names: list[str], dtype: str, shape: tuple[int, ...], prefixed: bool
) -> None:
    announced = [Announced(name, f"torch.{dtype}" if prefixed else dtype, shape) for name in names]
    assert checked(announced) == [Tensor(name, dtype, shape) for name in names]


@given(
    st.text(max_size=8),
    st.sampled_from([*DTYPES, "int8", "", "torch.float16"]),
    st.lists(st.integers(-2, 1 << 70), max_size=10),
)
def test_whatever_is_announced_is_refused_or_fits_into_a_file(name: str, dtype: str, shape: list[int]) -> None:
    try:
        (tensor,) = checked([Announced(name, dtype, tuple(shape))])
    except ReceiveFailed:
        return
    assert min(tensor.shape, default=0) >= 0 and len(tensor.shape) <= RANK_MAX
    assert tensor.bytes == prod(shape) * (4 if "32" in dtype else 2) <= BYTES_MAX


@given(TENSORS, st.integers(1, 200))
def test_packed_buffers_are_cut_as_vllm_cuts_them(tensors: list[Tensor], size: int) -> None:
    assert [[one.name for one in part] for part in broadcasts(tensors, "packed", size)] == list(of_vllm(tensors, size))


def of_vllm(tensors: list[Tensor], size: int) -> Iterator[list[str]]:
    """Names of each buffer that vLLM's sender makes."""
    import torch

    left = iter([(one.name, torch.empty(one.shape, dtype=getattr(torch, one.dtype))) for one in tensors])
    with warnings.catch_warnings(action="ignore"):  # of tensors larger than a buffer
        while (chunk := packing().pack_tensors(left, lambda item: item[1], size)) is not None:
            yield chunk.names


@cache
def packing() -> ModuleType:
    """The module of vLLM, loaded by its path: the package takes seconds and is not needed."""
    found = importlib.util.find_spec("vllm")
    assert found is not None and found.origin is not None
    path = Path(found.origin).parent / "distributed" / "weight_transfer" / "packed_tensor.py"
    spec = importlib.util.spec_from_file_location("vllm_packed_tensor", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass asks for it
    spec.loader.exec_module(module)
    return module


@given(TENSORS, st.integers(1, 200), st.sampled_from(["each", "packed", "bucket"]))
def test_every_tensor_is_broadcast_once_in_order(tensors: list[Tensor], size: int, layout: Any) -> None:
    parts = broadcasts(tensors, layout, size)
    assert [one for part in parts for one in part] == tensors and all(parts)
    assert layout != "each" or len(parts) == len(tensors)
    assert layout != "bucket" or len(parts) == 1


@pytest.mark.parametrize("size", [0, -1])
def test_packed_buffers_without_a_size_are_refused(size: int) -> None:
    with pytest.raises(ReceiveFailed, match=f"packed buffers of {size} bytes"):
        broadcasts([Tensor("w", "float32", (1,))], "packed", size)
