"""The id of an NCCL group, out of a pickle that is never unpickled."""

import ctypes
import os
import pickle
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.errors import ReceiveFailed
from apollod.receiver.nccl_id import ID_BYTES, PICKLE_MAX, id_in_pickle, leads_to

DATA = bytes(range(128))


class ncclUniqueId(ctypes.Structure):
    """As vLLM declares it (distributed/device_communicators/pynccl_wrapper.py)."""

    _fields_ = [("internal", ctypes.c_byte * 128)]


class Longer(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 129)]


class ncclUniqueIdOfMore(Longer):
    pass


class Hostile:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/apollod-was-here; false",)


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_what_ctypes_pickles_is_read(protocol: int) -> None:
    assert id_in_pickle(pickle.dumps(ncclUniqueId.from_buffer_copy(DATA), protocol)) == DATA


@pytest.mark.parametrize(
    "data",
    [
        b"", b"no pickle", DATA, b"\x80", b"(" * 100, b"\x8e" + b"\xff" * 8, pickle.dumps(None), pickle.dumps(DATA),
        pickle.dumps(Hostile()), pickle.dumps((ncclUniqueId.from_buffer_copy(DATA), Hostile())),
        pickle.dumps([ncclUniqueId.from_buffer_copy(DATA)]), pickle.dumps(Longer()), pickle.dumps(ctypes.c_int(1)),
        pickle.dumps(ncclUniqueIdOfMore()), b"x" * (PICKLE_MAX + 1),
    ],
)  # fmt: skip
def test_anything_else_is_refused_and_nothing_of_it_runs(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(*_: object) -> None:
        raise AssertionError("it was unpickled")

    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, ran)
    monkeypatch.setattr(os, "system", ran)
    with pytest.raises(ReceiveFailed, match="where vLLM's senders put the id") as refused:
        id_in_pickle(data)
    assert "gloo" in refused.value.hint and len(refused.value.line()) < 300


def test_other_globals_in_the_right_form_are_refused() -> None:
    good = pickle.dumps(ncclUniqueId.from_buffer_copy(DATA), 4)
    for old, new in ((b"_ctypes", b"_sctype"), (b"_unpickle", b"_inpickle"), (b"ncclUniqueId", b"ncclUniqueIe")):
        assert old in good
        with pytest.raises(ReceiveFailed, match="a pickle of something else"):
            id_in_pickle(good.replace(old, new))
    module = __name__.encode()
    with pytest.raises(ReceiveFailed, match="a pickle of something else"):
        id_in_pickle(good.replace(module, module.replace(b"_", b" ")))


@pytest.mark.parametrize("length", [0, 127, 129])
def test_an_id_of_another_length_is_refused(length: int) -> None:
    good = pickle.dumps(ncclUniqueId.from_buffer_copy(DATA), 3)  # without frames, which have a length, too
    opcode = b"C"  # SHORT_BINBYTES: a byte of length, then the bytes
    assert opcode + bytes([128]) + DATA in good
    other = good.replace(opcode + bytes([128]) + DATA, opcode + bytes([length]) + bytes(length))
    with pytest.raises(ReceiveFailed, match=f"an id of {length} bytes"):
        id_in_pickle(other)


PICKLED = pickle.dumps(ncclUniqueId.from_buffer_copy(DATA))


@given(st.integers(0, len(PICKLED) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_a_damaged_pickle_is_refused_or_gives_128_bytes(at: int, data: bytes, cut: int) -> None:
    try:
        assert len(id_in_pickle(PICKLED[:at] + data + PICKLED[at + cut :])) == ID_BYTES
    except ReceiveFailed:
        pass


@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ReceiveFailed):
        id_in_pickle(data)


def of_address(family: int, text: str, port: int) -> bytes:
    """An id as NCCL makes it: a random number, then a socket address of its first rank."""
    packed = socket.inet_pton(family, text)
    flow = bytes(4) if family == socket.AF_INET6 else b""
    address = family.to_bytes(2, "little") + port.to_bytes(2, "big") + flow + packed
    return (os.urandom(8) + address).ljust(ID_BYTES, b"\0")


@pytest.mark.parametrize(
    ("family", "text"), [(socket.AF_INET, "10.1.2.3"), (socket.AF_INET6, "fe80::1"), (socket.AF_INET6, "::1")]
)
def test_an_id_names_the_address_that_it_leads_to(family: int, text: str) -> None:
    found = leads_to(of_address(family, text, 50123))
    assert (str(found.address), found.port) == (text, 50123)


@pytest.mark.parametrize("data", [bytes(128), DATA, b"", of_address(socket.AF_INET, "1.2.3.4", 5)[:-1]])
def test_an_id_without_an_address_is_refused(data: bytes) -> None:
    with pytest.raises(ReceiveFailed, match="names no address"):
        leads_to(data)
