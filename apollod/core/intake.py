"""Lines that came in, and the facts they become.

Law: nothing is read or parsed here. Adapters hand over complete lines, already told apart into records and bad lines;
this file says which facts follow, and that an example is accepted once, however often its line comes.
"""

import msgspec

from apollod.core.events import (
    Event,
    ExampleAccepted,
    ExampleDuplicate,
    SourceConsumed,
    SourceDiscovered,
    SourceQuarantined,
    Tier,
)


class Line(msgspec.Struct, frozen=True):
    """One complete line. A record has `example` (content id), `record` (canonical JSON) and the tier it asks for, if any;
    a bad line has `reason`, its length, hash and the file in which its bytes are kept."""

    number: int
    """from 1 within its source; 0: the file as a whole"""
    example: str = ""
    record: bytes = b""
    tier: Tier | None = None
    reason: str = ""
    bytes: int = 0
    sha256: str = ""
    kept: str = ""


class Batch(msgspec.Struct, frozen=True):
    """Lines of one source, in order, up to `offset` (bytes) and `line`. `tracked` false: no position is recorded
    (lines given over the socket). `tier`: of records that ask for none."""

    source: str
    path: str
    offset: int
    line: int
    lines: tuple[Line, ...]
    new: bool = False
    replaces: str = ""
    """an earlier source in the same file, which was truncated"""
    tail: str = ""
    """digest of the last bytes before `offset`"""
    tracked: bool = True
    tier: Tier = "bulk"


def intake_events(batch: Batch, known: set[str]) -> list[Event]:
    """The facts of a batch, to be appended in one transaction. `known`: ids in it that the journal holds already.

    The position comes last and in the same transaction as what its lines became, so that a line is taken exactly once
    whatever crashes.
    """
    events: list[Event] = []
    if batch.new:
        events.append(SourceDiscovered(source=batch.source, path=batch.path, replaces=batch.replaces))
    seen = set(known)
    accepted = duplicates = rejected = 0
    for line in batch.lines:
        if not line.example:
            rejected += 1
            events.append(_quarantined(batch, line))
        elif line.example in seen:
            duplicates += 1
            events.append(ExampleDuplicate(example=line.example, source=batch.source, line=line.number))
        else:
            accepted += 1
            seen.add(line.example)
            events.append(_accepted(batch, line))
    if batch.tracked:
        events.append(
            SourceConsumed(
                source=batch.source, path=batch.path, offset=batch.offset, line=batch.line,
                accepted=accepted, duplicates=duplicates, rejected=rejected, tail=batch.tail,
            )
        )
    return events


def _accepted(batch: Batch, line: Line) -> ExampleAccepted:
    return ExampleAccepted(
        example=line.example, record=msgspec.Raw(line.record), source=batch.source, line=line.number,
        tier=line.tier or batch.tier,
    )


def _quarantined(batch: Batch, line: Line) -> SourceQuarantined:
    return SourceQuarantined(
        source=batch.source, path=batch.path, line=line.number, reason=line.reason,
        bytes=line.bytes, sha256=line.sha256, kept=line.kept,
    )
