"""Bytes appended by another thread: all of them, in order, and its errors are met."""

import fcntl
import mmap
import os
import threading

import numpy as np
import pytest

from apollod.store import appending
from apollod.store.appending import Appender
from apollod.store.disk import REAL, RealDisk


@pytest.mark.parametrize("sizes", [[], [1], [4096], [5000, 3000, 100], [8192] * 5, [40000, 7]])
def test_everything_is_there_after_drain(sizes, tmp_path, monkeypatch):
    monkeypatch.setattr(appending, "BUFFER_BYTES", 8192)
    path = str(tmp_path / "f")
    fd, chance, want = REAL.create(path), np.random.default_rng(0), b""
    out = Appender(REAL, fd, 4096)
    for size in sizes:
        data = np.frombuffer(chance.bytes(size), np.uint8).copy()
        out.add(data)
        want += data.tobytes()
        data[:] = 0  # it belongs to the caller again
    out.drain()
    assert not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
    REAL.close(fd)
    found = (tmp_path / "f").read_bytes()
    assert found == bytes(4096) + want if want else not found
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("append")]


def test_what_lasts_is_written_from_where_it_lies_and_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(appending, "BUFFER_BYTES", 8192)
    lying = np.frombuffer(mmap.mmap(-1, 4 * 4096), np.uint8)
    lying[:] = np.random.default_rng(0).integers(0, 256, lying.size, np.uint8)
    fd = REAL.create(str(tmp_path / "f"))
    out = Appender(REAL, fd)
    for first, end, lasting in [(0, 1, False), (1, 3, True), (3, 4, False)]:
        out.add(lying[first * 4096 : end * 4096], lasting)
    out.drain()
    REAL.close(fd)
    assert (tmp_path / "f").read_bytes() == lying.tobytes()


def test_an_error_of_the_thread_is_met_at_the_latest_by_drain(tmp_path, monkeypatch):
    monkeypatch.setattr(appending, "BUFFER_BYTES", 8192)

    class Full(RealDisk):
        def write(self, fd, offset, data):
            raise OSError(28, "No space left on device")

    fd = REAL.create(str(tmp_path / "f"))
    out = Appender(Full(), fd)
    with pytest.raises(OSError, match="No space"):
        out.add(np.zeros(8192, np.uint8))
        out.drain()
    out.abandon()
    REAL.close(fd)


def test_what_is_not_aligned_is_written_through_the_page_cache(tmp_path):
    fd = REAL.create(str(tmp_path / "f"))
    REAL.direct(fd, True)
    REAL.write(fd, 3, b"some bytes")
    assert REAL.read(fd, 0, 99) == b"\0\0\0some bytes"
    REAL.close(fd)
