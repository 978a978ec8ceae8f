"""The part of `status` about the bootstrap, with an estimate of the remaining time."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from apollod.core.intake.state import Waiting
from apollod.core.kernel.composing import composed
from apollod.core.state import State
from apollod.core.training.pace import Pace, expected_s

LOOKED_AT = 64
"""number of queued examples whose lengths are averaged"""


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """Existing logs that are read and learned once: the source under way, or the last one."""

    path: str
    state: str
    """`reading`; `learning`: all is read, and its examples wait for their steps; `completed`; `stopped`"""
    reason: str = ""
    """why it was stopped"""
    strip: str
    files: int | None = None
    """number of files; null: not counted yet"""
    files_read: int = 0
    bytes: int | None = None
    """total size on disk"""
    bytes_read: int = 0
    unread: int = 0
    """files that could not be read"""
    accepted: int = 0
    """examples, as in all following fields except `rejected`; over all requests for the same place and rules"""
    duplicates: int = 0
    rejected: int = 0
    """lines that are not records"""
    dropped: int = 0
    """answers without an example"""
    learned: int = 0
    held: int = 0
    waiting: int = 0
    """accepted and neither learned nor given up, including those that wait for the judge"""
    left: int | None = None
    """`waiting`, and the expected examples of the rest of the source; null: not known"""
    pattern: str = ""
    """the pattern that it teaches"""
    pattern_state: str = ""
    """`active`, `settled` or `retired`"""
    pattern_tests: dict[str, list[int]] | None = None
    """last round of tests of the pattern, by mode: [passed, count]; null: not tested since the bootstrap"""
    left_s: float | None = None
    """expected seconds of steps for `left`; null: not known"""


class ReadSoFar(NamedTuple):
    """Progress of reading: files, and bytes on disk."""

    files: int = 0
    of_files: int = 0
    bytes: int = 0
    of_bytes: int = 0


def status(state: State, read: ReadSoFar | None) -> Bootstrap | None:
    """The bootstrap under way, or the last one. `read`: progress of reading; None: nothing is being read."""
    current, recent = state.bootstrap.current, state.training.recent
    if current is None:
        return None
    if current.phase == "reading":
        share = read.bytes / read.of_bytes if read is not None and read.of_bytes else None
        files, bytes_ = (read.of_files, read.of_bytes) if read is not None else (None, None)
    else:
        share, files, bytes_ = 1.0, current.files, current.bytes
        read = ReadSoFar(files, files, bytes_, bytes_)
    tokens, waiting = typical_tokens(recent, state.intake.bulk.waiting), len(current.waiting)
    seconds = left_s(recent, tokens, waiting, current.counts.accepted, share) if current.under_way else None
    come = to_come(current.counts.accepted, share) if current.phase != "stopped" else None
    course = state.dreams.courses.get(current.request.pattern)
    tested = course is not None and bool(course.bootstraps) and not course.due
    return composed(
        Bootstrap, current.request, current, current.counts, state=current.phase, files=files, bytes=bytes_,
        files_read=read.files if read else 0, bytes_read=read.bytes if read else 0, waiting=waiting,
        left=None if come is None else waiting + come, pattern_state=course.phase if course is not None else "",
        pattern_tests={mode: [*rate] for mode, rate in course.final.items()} if course is not None and tested else None,
        left_s=None if seconds is None else round(seconds, 3),
    )  # fmt: skip


def typical_tokens(recent: Sequence[Pace], queue: Iterable[Waiting]) -> int:
    """Mean tokens of an example: of waiting ones or, if none is tokenised, of the last steps; 0: not known."""
    lengths = [one.tokens for one in islice(queue, LOOKED_AT) if one.tokens] or [pace.tokens for pace in recent]
    return round(sum(lengths) / len(lengths)) if lengths else 0


def to_come(accepted: int, share: float | None) -> int | None:
    """Expected examples from the rest of a source, in proportion to the `share` that was read (None: not known). None
    if it cannot be estimated."""
    if share is None or (not share and not accepted):
        return None
    return round(accepted * (1 / share - 1)) if share else None


def left_s(recent: Sequence[Pace], tokens: int, waiting: int, accepted: int, share: float | None) -> float | None:
    """Seconds of steps for waiting examples and those expected from the rest of the source, in proportion to the
    `share` that was read (None: not known). None if it cannot be estimated, or no step was timed yet."""
    each = expected_s(recent, tokens)
    if each is None or share is None or (not share and not waiting):
        return None
    to_come = accepted * (1 / share - 1) if share else 0.0
    return each * (waiting + to_come)
