"""msgpack to JSON values without msgspec, whose import alone takes longer than the rest of `apollod ctl status`.

Pure. Reads the types of a status: null, booleans, numbers, text, lists, objects.
"""

from struct import error as StructError
from struct import unpack_from
from typing import Any

_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
    0xD3: ">q",
}  # fmt: skip
_WIDTHS = {">f": 4, ">d": 8, ">B": 1, ">H": 2, ">I": 4, ">Q": 8, ">b": 1, ">h": 2, ">i": 4, ">q": 8}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS = {
    0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text"), 0xDC: (">H", "list"), 0xDD: (">I", "list"),
    0xDE: (">H", "object"), 0xDF: (">I", "object"),
}  # fmt: skip


def decode(data: bytes) -> Any:
    """The single value in `data`. Raises ValueError for anything else, or for other types."""
    try:
        value, end = _value(data, 0)
    except (StructError, IndexError, RecursionError) as error:
        raise ValueError(f"msgpack that ends early or nests too deep: {error}") from error
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes after the end of a value")
    return value


def _value(data: bytes, at: int) -> tuple[Any, int]:
    """The value at an offset, and the offset after it."""
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 0x100, at
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at
    if tag in _NUMBERS:
        form = _NUMBERS[tag]
        return unpack_from(form, data, at)[0], at + _WIDTHS[form]
    if tag < 0xC0:
        kind = "object" if tag < 0x90 else "list" if tag < 0xA0 else "text"
        length = tag & (0x1F if kind == "text" else 0x0F)
    elif tag in _LENGTHS:
        form, kind = _LENGTHS[tag]
        length = unpack_from(form, data, at)[0]
        at += _WIDTHS[form]
    else:
        raise ValueError(f"the msgpack type {tag:#04x} is not one of JSON's")
    return _sized(data, at, kind, length)


def _sized(data: bytes, at: int, kind: str, length: int) -> tuple[Any, int]:
    if kind == "text":
        if at + length > len(data):
            raise IndexError("text")
        return data[at : at + length].decode(), at + length
    values = []
    for _ in range(length if kind == "list" else 2 * length):
        value, at = _value(data, at)
        values.append(value)
    return values if kind == "list" else dict(zip(values[::2], values[1::2], strict=True)), at
