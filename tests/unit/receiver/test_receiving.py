"""What a buffer holds before a broadcast, and where a group listens."""

import pytest

from apollod.finite_values import is_finite


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_bytes_that_nobody_wrote_are_bad_values(dtype: str) -> None:
    from apollod.receiver import receiving

    assert not is_finite(bytes([receiving.UNWRITTEN] * 4), dtype)


def test_the_address_towards_a_loopback_address_is_one() -> None:
    from apollod.receiver.gloo_group import address_towards

    assert address_towards("127.0.0.1", 29500) == "127.0.0.1" and address_towards("localhost", 29500) == "127.0.0.1"
