"""Bad values are found wherever they are, also where elements do not begin at a multiple of their size."""

import math

import pytest

from apollod.receiver import finite_values
from apollod.receiver.finite_values import is_finite

DTYPES = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 1, 500, 999])
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_one_bad_value_is_found(
    dtype: str, value: float, at: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(finite_values, "BLOCK_BYTES", 256)
    kind = getattr(torch, dtype)
    elements = torch.full((1000,), torch.finfo(kind).max, dtype=kind)
    elements[::2] = torch.finfo(kind).min
    room = torch.zeros(elements.nbytes + offset, dtype=torch.uint8)[offset:]
    room.copy_(elements.view(torch.uint8))
    assert is_finite(room.numpy().data, dtype)
    elements[at] = value
    room.copy_(elements.view(torch.uint8))
    assert not is_finite(room.numpy().data, dtype)
    assert is_finite(b"", dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_pattern_of_sixteen_bits_is_judged_as_torch_does(dtype: str) -> None:
    import torch

    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16)
    wanted = torch.isfinite(patterns.view(getattr(torch, dtype))).tolist()
    data = patterns.view(torch.uint8).numpy().tobytes()
    assert [is_finite(data[at : at + 2], dtype) for at in range(0, len(data), 2)] == wanted
