"""JSON as accepted by the schema of records: no NaN, no duplicate keys, no number beyond 64 bits, not nested too
deeply; with the errors for other values. Pure and light."""

import json
from typing import Any, NoReturn

from apollod.errors import RecordRefused

DEPTH_MAX = 100  # of nested JSON; tool schemas reach 20, SQLite's JSON functions give up at 1000
DIGITS_MAX = 20  # of an integer; enough for 64 bits, which every JSON reader takes


def load(text: bytes | str) -> Any:
    """The value in a text; raises RecordRefused."""
    try:
        value = json.loads(
            checked_text(text) if isinstance(text, bytes) else text,
            parse_constant=_refuse_constant,
            parse_int=_parse_int,
            object_pairs_hook=_unique_keys,
        )
    except json.JSONDecodeError as error:
        what = f"the line is not JSON: {error.msg} at character {error.pos + 1}"
        raise RecordRefused(what, "write one JSON object a line") from error
    except RecursionError as error:
        raise too_deep() from error
    if depth_over(value, DEPTH_MAX):
        raise too_deep()
    return value


def checked_text(line: bytes) -> str:
    """Decode a line as UTF-8. Raises RecordRefused with the place of the first wrong byte."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise RecordRefused(f"the line is not UTF-8 (byte {error.start + 1})", "convert the file to UTF-8") from error


def _refuse_constant(name: str) -> NoReturn:
    raise RecordRefused(f"{name} is not JSON", "write null or leave the field out")


def _parse_int(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise too_large()
    return int(digits)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RecordRefused(f"the key {short(twice)} is there twice in one object", "keep one of them")
    return fields


def half_a_pair() -> RecordRefused:
    """The error for a string with half of a surrogate pair."""
    return RecordRefused("a string holds half of a surrogate pair, which no text can", "repair its \\u escape")


def too_large() -> RecordRefused:
    """The error for a number beyond 64 bits, or beyond a double."""
    return RecordRefused("a number is too large", "use numbers that fit in 64 bits")


def too_deep() -> RecordRefused:
    """The error for a value nested beyond DEPTH_MAX."""
    return RecordRefused(f"the JSON is nested deeper than {DEPTH_MAX}", "flatten it")


def depth_over(value: Any, limit: int) -> bool:
    """True if the value is nested deeper than `limit` levels."""
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def short(value: Any) -> str:
    """A value for a message: one line, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def json_type(value: Any) -> str:
    """The JSON name of a value's type."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
