"""Frames do not care how the stream is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.errors import FrameError
from apollod.wire.framing import FRAME_BYTES_MAX, FrameDecoder, encode_frame


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_any_chunking_gives_the_same_frames(payloads, data):
    stream = b"".join(encode_frame(p) for p in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    decoder, out, last = FrameDecoder(), [], 0
    for cut in [*cuts, len(stream)]:
        out += decoder.feed(stream[last:cut])
        last = cut
    assert out == payloads


def test_byte_by_byte():
    stream = encode_frame(b"hello") + encode_frame(b"")
    decoder = FrameDecoder()
    assert [f for i in range(len(stream)) for f in decoder.feed(stream[i : i + 1])] == [b"hello", b""]


def test_a_hostile_length_is_refused_before_anything_is_kept():
    with pytest.raises(FrameError, match="limit"):
        FrameDecoder().feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    with pytest.raises(FrameError, match="limit"):
        encode_frame(bytes(FRAME_BYTES_MAX + 1))
