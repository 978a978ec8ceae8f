"""The small decoder reads what msgspec writes, and refuses what is none."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.adapters.ipc.light_client import ANSWER_BYTES_MAX, HEADER_BYTES, STATUS_REQUEST, decode
from apollod.wire import framing
from apollod.wire import messages as msg

WHOLE = st.integers(-(1 << 63), (1 << 64) - 1)
TEXT = st.text(max_size=40) | st.sampled_from(["x" * 31, "x" * 32, "x" * 255, "ä" * 300, "x" * 70_000])
PLAIN = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | TEXT
JSON: st.SearchStrategy[Any] = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=8), inner, max_size=20)
)


@given(JSON)
def test_every_value_that_json_has_comes_back(value: Any) -> None:
    assert decode(msgspec.msgpack.encode(value)) == value


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
def test_long_lists_and_objects(count: int) -> None:
    for value in (list(range(count)), {str(n): n for n in range(count)}):
        assert decode(msgspec.msgpack.encode(value)) == value


@given(st.binary(max_size=60))
def test_anything_is_read_as_msgspec_reads_it_or_refused(data: bytes) -> None:
    try:
        value = decode(data)
    except ValueError:
        return
    except TypeError:
        return  # a list as the key of an object
    assert repr(value) == repr(msgspec.msgpack.decode(data)) or isinstance(value, dict | list)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xa5abc", b"\x92\x01", b"\x01\x01", b"\xc4\x01a", b"\x91" * 100_000])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


def test_the_request_is_the_one_of_the_protocol_and_so_is_the_frame() -> None:
    assert msg.encode(msg.StatusRequest()) == STATUS_REQUEST
    assert (HEADER_BYTES, ANSWER_BYTES_MAX) == (framing.HEADER_BYTES, framing.FRAME_BYTES_MAX)
