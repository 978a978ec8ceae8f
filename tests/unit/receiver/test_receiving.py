"""What a buffer holds before a broadcast, and where a group listens."""

import pytest

from apollod.receiver.finite_values import is_finite


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_bytes_that_nobody_wrote_are_bad_values(dtype: str) -> None:
    from apollod.receiver import payload

    assert not is_finite(bytes([payload.UNWRITTEN] * 4), dtype)


def test_the_address_towards_a_loopback_address_is_one() -> None:
    from apollod.adapters.system.network_interfaces import address_towards

    assert address_towards("127.0.0.1", 29500) == "127.0.0.1" and address_towards("localhost", 29500) == "127.0.0.1"
