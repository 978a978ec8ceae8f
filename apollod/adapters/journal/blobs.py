"""Files beside the journal that events name by the digest of their bytes: `<state>/blobs/DIGEST`.

Law: a file is durable before an event names it. One that no event names, because a crash came between, is not looked at
by anybody; the same bytes, kept again, are the same file. What a step learned from (a teacher, rollouts, a reference)
stays for ever, since a replay from the beginning reads it; `supervisor.quality.reference_files` removes old baselines.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from apollod.adapters.journal import journal_reader
from apollod.adapters.system.files import fsync_dir, fsync_file
from apollod.core.events import AnchorEncoded, AnchorFrozen, DaemonStarted, ExampleAccepted
from apollod.errors import JournalError
from apollod.explain import reason
from apollod.failpoints import failpoint
from apollod.wire import updates
from apollod.wire.comparisons import may_refer, with_file, with_reference
from apollod.wire.event_codec import decode_event
from apollod.wire.messages import StepExample
from apollod.wire.records import with_sampled
from apollod.wire.teacher import GivenBlob, digest_of
from apollod.wire.updates import is_update, with_directories

NAME = "blobs"
LOOKUP_S = 60.0
_HALF_WRITTEN = re.compile(r"\.[0-9a-f]{32}\.[0-9]+")
STARTED = "SELECT kind, version, body FROM events WHERE kind = 'daemon.started' ORDER BY seq DESC LIMIT 1"


def keep(directory: Path, blob: bytes) -> str:
    """Have these bytes in the directory, made if it is missing, durably and for the owner alone; their digest.

    Blocking. Raises OSError.
    """
    digest = digest_of(blob)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / digest
    if path.exists() and path.read_bytes() == blob:
        fsync_file(path)  # whoever wrote it may have been killed before it was durable
        fsync_dir(directory)
        return digest
    temporary = directory / f".{digest}.{os.getpid()}"
    temporary.unlink(missing_ok=True)  # of a process of this number that was killed
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        failpoint("blob.before-rename")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_dir(directory)
    fsync_dir(directory.parent)
    failpoint("blob.kept")
    return digest


def problem(directory: Path, digest: str) -> str:
    """The reason why the file of this digest cannot be used: its path and what is wrong with it; empty: nothing.
    Blocking."""
    path = directory / digest
    try:
        found = digest_of(path.read_bytes())
    except OSError as error:
        return f"{path}: {reason(error)}"
    return "" if found == digest else f"{path} was changed, it is {found} now"


def remove_half_written(directory: Path) -> None:
    """Remove what `keep` left under temporary names where it was killed. Nobody may be in `keep` meanwhile. Blocking;
    what cannot be removed stays."""
    try:
        found = [entry for entry in os.scandir(directory) if _HALF_WRITTEN.fullmatch(entry.name)]
    except OSError:
        return
    for entry in found:
        if entry.is_file(follow_symlinks=False):
            with suppress(OSError):
                os.unlink(entry.path)


REFERENCES = """SELECT key, body ->> '$.reference' FROM events
    WHERE kind = 'example.encoded' AND body GLOB '*"reference":"[0-9a-f]*'
        AND key IN (SELECT value FROM json_each(?))"""
"""of these examples, the digests of the files of their references, as the index events_reference finds them"""


def lesson(accepted: ExampleAccepted, directories: Sequence[Path], reference: str = "") -> bytes:
    """The record of an example as the trainer is given it: with the tokens of its answers that are known, and with the
    file that it is learned from, from the first directory that has it. `reference`: digest of the file of a comparison,
    once it was tokenised. What cannot be read is said in its place, and the trainer refuses the example. Blocking."""
    if is_update(bytes(accepted.record)):
        return with_directories(bytes(accepted.record), [str(one.parent / updates.NAME) for one in directories])
    record = with_sampled(bytes(accepted.record), accepted.sampled)
    if accepted.teacher:
        record = with_file(record, _given(accepted.teacher, directories))
    return with_reference(record, _given(reference, directories)) if reference else record


def wants_reference(accepted: ExampleAccepted) -> bool:
    """True for an example whose file `example.encoded` names: `REFERENCES` finds it, once it was tokenised."""
    return may_refer(bytes(accepted.record))


def recorded(journal: str | Path, accepted: ExampleAccepted) -> bytes:
    """The record of an example of a journal file, see `lesson`. Blocking. Raises JournalError."""
    reference = ""
    if wants_reference(accepted):
        sql = REFERENCES.replace("?", journal_reader.literal(msgspec.json.encode([accepted.example]).decode()))
        reference = next((str(digest) for _, digest in journal_reader.query(journal, sql, seconds=LOOKUP_S).rows), "")
    named = accepted.teacher or reference or is_update(bytes(accepted.record))
    return lesson(accepted, beside(journal) if named else (), reference)


def anchors_of(
    journal: str | Path, anchors: Sequence[str], directories: Sequence[Path] | None = None
) -> list[StepExample]:
    """The anchors with these ids, in their order, retired ones included. The digest is empty until an anchor was
    tokenised. `directories`: where blobs may lie; None: see `beside`. Blocking. Raises JournalError."""
    if not anchors:
        return []
    names = ", ".join(journal_reader.literal(one) for one in anchors)
    kinds = f"'{AnchorFrozen.kind}', '{AnchorEncoded.kind}'"  # as the index events_anchor names them
    sql = f"SELECT kind, version, body FROM events WHERE kind IN ({kinds}) AND key IN ({names}) ORDER BY seq"
    frozen, digests = dict[str, AnchorFrozen](), dict[str, str]()
    for row in journal_reader.query(journal, sql, 1 << 20, LOOKUP_S).rows:
        match decode_event(*row):
            case AnchorFrozen() as event:
                frozen[event.anchor] = event
            case AnchorEncoded() as event:
                digests[event.anchor] = event.digest
    if lost := [one for one in anchors if one not in frozen]:
        raise JournalError(
            f"the journal holds no anchor {lost[0]}", "its step cannot be run again; start from a later checkpoint"
        )
    where = beside(journal) if directories is None else directories
    return [StepExample(one, _anchor(frozen[one], where), digests.get(one, "")) for one in anchors]


def _anchor(frozen: AnchorFrozen, directories: Sequence[Path]) -> bytes:
    return with_file(bytes(frozen.record), _given(frozen.teacher, directories))


def beside(journal: str | Path) -> list[Path]:
    """Directories that may hold the blobs of a journal: beside it and, if it was moved, where its daemon kept them.
    Raises JournalError."""
    found = [Path(journal).parent / NAME]
    for row in journal_reader.query(journal, STARTED).rows:
        started = decode_event(*row)
        if isinstance(started, DaemonStarted) and started.state_dir:
            found.append(Path(started.state_dir) / NAME)
    return found


def _given(digest: str, directories: Sequence[Path]) -> GivenBlob:
    why = ""
    for directory in directories:
        try:
            return GivenBlob(digest, (directory / digest).read_bytes())
        except OSError as error:
            why = why or f"{directory / digest}: {reason(error)}"
    return GivenBlob(digest, why=why or "no directory has it")
