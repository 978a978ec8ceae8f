"""Frames do not care how the stream is cut."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apollod.errors import FrameError
from apollod.wire import messages as m
from apollod.wire.framing import FRAME_BYTES_MAX, FrameDecoder, MessageDecoder, encode_frame, encode_message
from apollod.wire.messages import TO_SUPERVISOR


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


MESSAGES = [m.StatusRequest(), m.EngineResumeReport(1.5), m.Hello("trainer", 7)]


@given(st.lists(st.sampled_from(MESSAGES), max_size=6), st.integers(1, 40))
def test_messages_come_as_they_were_sent(sent, size):
    stream, decoder, out = b"".join(map(encode_message, sent)), MessageDecoder(TO_SUPERVISOR), []
    for at in range(0, len(stream), size):
        decoder.feed(stream[at : at + size])
        while (message := decoder.next()) is not None:
            out.append(message)
    assert out == sent


@given(st.binary(max_size=60).map(lambda payload: b"\xc1" + payload))
@example(b"\x82\xa4type\xa6forget\xa8examples\x91\xa2\xff\xfe")  # text that is no UTF-8
@example(b"\x82\xa4type\xa5pause\xa1x" + b"\x91" * 100_000 + b"\xc0")  # deeper than the reader goes
def test_a_frame_that_is_no_message_is_refused_and_the_next_one_read(payload):
    decoder = MessageDecoder(TO_SUPERVISOR)
    decoder.feed(encode_frame(payload) + encode_message(m.StatusRequest()))
    with pytest.raises(FrameError, match="not a message"):
        decoder.next()
    assert decoder.next() == m.StatusRequest() and decoder.next() is None
