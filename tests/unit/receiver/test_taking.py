"""Tensors that a trainer has laid ready are copied as they lie; whatever is wrong with a handle is an error before the
first byte is read, and leaves no file."""

import os
import socket
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apollod.errors import ReceiveFailed
from apollod.receiver import shared_files, taking
from apollod.receiver.payload import Tensor
from apollod.receiver.shared_files import SharedFile
from apollod.receiver.taking import take
from apollod.store.model_files import read_header
from apollod.wire.receiver_messages import Received
from apollod.wire.tensor_handles import DeviceBytes, Handle, HostBytes

TENSORS = [
    Tensor("a", "bfloat16", (3, 5)), Tensor("none", "float16", (0, 7)), Tensor("b", "float32", ()),
    Tensor("large", "float16", (300, 1000)),
]  # fmt: skip


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A directory in which weights may be read."""
    made = tmp_path / "room"
    made.mkdir()
    return made


def laid(room: Path, name: str = "segment") -> list[Handle]:
    """The tensors in one file, at odd offsets, as many bytes as they have, none of which is NaN."""
    handles, data = list[Handle](), b"?"
    for number, tensor in enumerate(TENSORS):
        handles.append(HostBytes(str(room / name), len(data), tensor.bytes))
        data += bytes((number + at) % 100 for at in range(tensor.bytes)) + b"?"
    (room / name).write_bytes(data)
    return handles


def taken(room: Path, handles: list[Handle], tensors: list[Tensor] = TENSORS, allowed: bool = True) -> Received:
    return take(tensors, handles, [str(room)] if allowed else [], room.parent / "new")


def refused(room: Path, handles: list[Handle], tensors: list[Tensor] = TENSORS, allowed: bool = True) -> str:
    """The error as one line; no file is left, and none was begun."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ReceiveFailed) as error:
        taken(room, handles, tensors, allowed)
    assert [one.name for one in room.parent.iterdir()] == ["room"]
    assert len(os.listdir("/proc/self/fd")) == before and error.value.hint
    return error.value.line()


@pytest.mark.parametrize("block", [4, 1 << 10, taking.BLOCK_BYTES])
def test_what_lies_there_is_what_the_file_holds(room: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "BLOCK_BYTES", block)
    handles = laid(room)
    found = taken(room, handles)
    data = (room.parent / "new").read_bytes()
    assert found.digest == blake2b(data, digest_size=32).hexdigest()
    assert found.bytes == sum(one.bytes for one in TENSORS)
    source = (room / "segment").read_bytes()
    stored = {one.name: data[one.start : one.start + one.bytes] for one in read_header(room.parent, "new").tensors}
    assert stored == {
        tensor.name: source[one.offset : one.offset + one.bytes]
        for tensor, one in zip(TENSORS, handles, strict=True)
        if isinstance(one, HostBytes)
    }


def test_shared_memory_needs_no_setting() -> None:
    assert shared_files.SHARED_MEMORY == "/dev/shm"
    file = Path(f"/dev/shm/apollod-test-{os.getpid()}")
    try:
        file.write_bytes(b"x")
        made = SharedFile(str(file), ())
        assert made.bytes == 1
        made.close()
    finally:
        file.unlink()


def lies(room: Path) -> list[tuple[str, Callable[[list[Any]], Any], str]]:
    """What is handed over in place of the first handle, and what is said to it."""
    outside = room.parent.parent / f"{room.parent.name}-outside"
    outside.mkdir(exist_ok=True)
    (outside / "secret").write_bytes(bytes(1000))
    (room / "link").symlink_to(outside / "secret")
    (room / "elsewhere").symlink_to(outside)
    os.mkfifo(room / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(room / "socket"))
    listener.close()
    (room / "folder").mkdir()
    size = (room / "segment").stat().st_size

    def file(name: str) -> Callable[[list[Any]], Any]:
        return lambda handles: HostBytes(name, 0, 30)

    def at(offset: int, count: int = 30) -> Callable[[list[Any]], Any]:
        return lambda handles: HostBytes(str(room / "segment"), offset, count)

    return [
        ("too short", at(1, 28), "the handle of a has 28 bytes, its shape and dtype 30"),
        ("too long", at(1, 32), "the handle of a has 32 bytes, its shape and dtype 30"),
        ("before", at(-1), "bytes -1..29 lie outside"),
        ("beyond", at(size - 29), f"lie outside {room}/segment of {size}"),
        ("far", at(1 << 62), "lie outside"),
        ("gone", file(f"{room}/gone"), "cannot be opened: No such file"),
        ("outside", file(f"{outside}/secret"), "lies where no weights are read"),
        ("dots", file(f"{room}/../../{outside.name}/secret"), "lies where no weights are read"),
        ("a link", file(f"{room}/link"), "is a link"),
        ("through a link", file(f"{room}/elsewhere/secret"), "lies where no weights are read"),
        ("a pipe", file(f"{room}/pipe"), "is not a regular file"),
        ("a socket", file(f"{room}/socket"), "cannot be opened"),
        ("a directory", file(f"{room}/folder"), "is not a regular file"),
        ("the room", file(f"{room}/."), "is not the absolute path of a file"),
        ("relative", file("segment"), "is not the absolute path of a file"),
        ("a null byte", file(f"{room}/a\0b"), "is not the absolute path of a file"),
        ("of the system", file("/proc/self/mem"), "lies where no weights are read"),
        ("of a device", file("/dev/zero"), "lies where no weights are read"),
        ("of no device", lambda _: DeviceBytes(30, "GPU-0", bytes(64), 0, 30), "GPU-0 is not visible here"),
        ("over its end", lambda _: DeviceBytes(30, "GPU-0", bytes(64), 10, 30), "lie outside an allocation of 30"),
    ]  # fmt: skip


def test_what_is_wrong_with_a_handle_is_said_before_a_byte_is_read(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handles = laid(room)
    cases = lies(room)
    monkeypatch.setattr(SharedFile, "read", lambda *_: pytest.fail("a byte was read"))
    for name, changed, said in cases:
        for wrong in ([changed(handles), *handles[1:]], [*handles[1:], changed(handles)]):
            tensors = TENSORS if wrong[0] is not handles[1] else [*TENSORS[1:], TENSORS[0]]
            assert said in refused(room, wrong, tensors), name


def test_directories_are_read_only_if_the_settings_name_them(room: Path) -> None:
    assert "lies where no weights are read" in refused(room, laid(room), allowed=False)


def test_a_file_of_another_user_is_refused(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handles = laid(room)
    if os.getuid() == 0:
        os.chown(room / "segment", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "belongs to another user" in refused(room, handles)


def test_one_handle_for_each_tensor(room: Path) -> None:
    assert "3 handles came for 4 tensors" in refused(room, laid(room)[1:])


def test_so_many_files_and_no_more(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "SOURCES_MAX", 3)
    handles: list[Handle] = [laid(room, f"s{number}")[number] for number in range(4)]
    assert "more than 3 files" in refused(room, handles)
    monkeypatch.setattr(taking, "SOURCES_MAX", 4)
    assert taken(room, handles).bytes


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_bad_value_is_refused_by_the_name_of_its_tensor(room: Path, value: float) -> None:
    handles = laid(room)
    last = handles[-1]
    assert isinstance(last, HostBytes)
    with (room / "segment").open("r+b") as file:
        file.seek(last.offset + last.bytes - 2)
        file.write(np.float16(value).tobytes())
    assert refused(room, handles).startswith("large holds NaN or infinity")


def test_a_file_that_is_cut_short_meanwhile_is_an_error_and_no_signal(room: Path) -> None:
    laid(room)
    made = SharedFile(str(room / "segment"), [str(room)])
    made.check(0, 1000)
    os.truncate(room / "segment", 10)
    with pytest.raises(ReceiveFailed, match="was cut short while it was read"):
        made.read(0, memoryview(bytearray(1000)))
    made.close()


def test_a_file_that_is_replaced_while_it_is_opened_is_refused(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handles = laid(room)
    opened = os.open

    def raced(path: Any, *given: Any, **more: Any) -> int:
        found = opened(path, *given, **more)
        if str(path).endswith("segment"):
            os.rename(path, f"{path}.moved")
        return found

    monkeypatch.setattr(os, "open", raced)
    assert "was moved or removed meanwhile" in refused(room, handles)
