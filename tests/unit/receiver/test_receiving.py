"""Bad values are found wherever they are, also where elements do not begin at a multiple of their size."""

import math

import pytest

DTYPES = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 1, 500, 999])
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_one_bad_value_is_found(dtype: str, value: float, at: int, offset: int) -> None:
    import torch

    from apollod.receiver import receiving

    kind = getattr(torch, dtype)
    elements = torch.full((1000,), torch.finfo(kind).max, dtype=kind)
    elements[::2] = torch.finfo(kind).min
    room = torch.zeros(elements.nbytes + offset, dtype=torch.uint8)[offset:]
    room.copy_(elements.view(torch.uint8))
    assert receiving.is_finite(room, kind, block_bytes=256)
    elements[at] = value
    room.copy_(elements.view(torch.uint8))
    assert not receiving.is_finite(room, kind, block_bytes=256)
    assert receiving.is_finite(room[:0], kind)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_that_nobody_wrote_are_bad_values(dtype: str) -> None:
    import torch

    from apollod.receiver import payload, receiving

    element = torch.full((getattr(torch, dtype).itemsize,), payload.UNWRITTEN, dtype=torch.uint8)
    assert not receiving.is_finite(element, getattr(torch, dtype))


def test_the_address_towards_a_loopback_address_is_one() -> None:
    from apollod.adapters.system.network_interfaces import address_towards

    assert address_towards("127.0.0.1", 29500) == "127.0.0.1" and address_towards("localhost", 29500) == "127.0.0.1"
