"""Planted cases: records whose right verdict is known. One JSON object a line: a record as the inbox takes it, with
`"expect": "good"` or `"bad"`, and `"about"`, a word for people."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal, NamedTuple

from apollod.core.judging.events import Planted
from apollod.errors import RecordRefused
from apollod.wire.records import object_of_line, record_of

CASES_MAX = 1000
"""of all files together: their ids are recorded at every start"""


class Case(NamedTuple):
    """A planted case, and where it stands."""

    planted: Planted
    canonical: bytes
    about: str = ""
    place: str = ""


def read_cases(lines: Iterable[bytes], path: str) -> list[Case]:
    """The cases of a file. Empty lines are passed over. Raises RecordRefused, naming the line."""
    return [_case(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _case(line: bytes, place: str) -> Case:
    try:
        value = object_of_line(line.strip())
        expected, about = value.pop("expect", None), value.pop("about", "")
        if expected not in ("good", "bad"):
            raise RecordRefused(f'expect is {expected!r}, neither "good" nor "bad"', "say what the right verdict is")
        record = record_of(value)
    except RecordRefused as error:
        raise RecordRefused(f"{place} is no case: {error}", error.hint) from error
    right: Literal["good", "bad"] = expected
    id_ = blake2b(f"{right} ".encode() + record.canonical, digest_size=8).hexdigest()
    return Case(Planted(id_, right), record.canonical, str(about), place)


def without_repeats(cases: Iterable[Case]) -> list[Case]:
    """Each case once. Raises RecordRefused for one record that is to be both good and bad, and for too many."""
    found: dict[str, Case] = {}
    by_record: dict[bytes, Case] = {}
    for case in cases:
        other = by_record.setdefault(case.canonical, case)
        if other.planted != case.planted:
            raise RecordRefused(f"{case.place} and {other.place} contradict each other", "keep one of them")
        found.setdefault(case.planted.id, case)
    if len(found) > CASES_MAX:
        raise RecordRefused(f"there are {len(found)} cases, more than {CASES_MAX}", "keep those that tell most")
    return list(found.values())
