"""Stores the references of a baseline: a file among the blobs beside the journal, named by the digest of its bytes.

Law: it is durable before an event names it. One that is gone or damaged does not stop the guard: pass rates and losses
are measured without it, KL and length are not, with a warning in the log. Only the file of the baseline's newest run is
in force; those of earlier runs, and files whose event was never recorded, are removed at the start and by the next
look.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import structlog

from apollod.adapters.journal import blobs
from apollod.curation.probes.references import Reference, read_references, write_references
from apollod.errors import RecordRefused
from apollod.explain import reason
from apollod.wire.teacher import MAGIC, digest_of

log = structlog.get_logger()

WAY_OUT = "put the file back, or measure the baseline again: apollod ctl quality baseline"
_NAMED = re.compile(r"[0-9a-f]{32}")


class ReferenceFiles:
    """The references of one baseline, kept in memory since every measurement needs them. Methods block."""

    def __init__(self) -> None:
        self._digest = ""
        self._known: dict[str, Reference] = {}
        self._complained = ""
        self._tidied = ""

    def keep(self, directory: Path, references: Mapping[str, Reference]) -> str:
        """Store them durably in a file; return its digest, empty without references. Raises OSError."""
        if not references:
            return ""
        self._digest, self._known = blobs.keep(directory, write_references(references)), dict(references)
        return self._digest

    def of(self, directory: Path, digest: str) -> Mapping[str, Reference]:
        """References by digest; empty for an empty digest, and for an unusable file, which is logged once."""
        if digest and digest != self._digest:
            try:
                self._digest, self._known = digest, _read(directory / digest, digest)
            except (OSError, RecordRefused) as error:
                self._digest, self._known = "", {}
                if self._complained != digest:
                    self._complained = digest
                    why = reason(error) if isinstance(error, OSError) else error.line()
                    log.warning("quality.without_references", file=str(directory / digest), reason=why, hint=WAY_OUT)
        return self._known if digest else {}

    def complained(self, digest: str) -> None:
        """Note that this unusable file was reported already."""
        self._complained = digest

    def tidy(self, directory: Path, digest: str) -> None:
        """Remove those of other baselines once this one is in force: the journal names it, and it is usable."""
        if digest and digest == self._digest != self._tidied:
            self._tidied = digest
            remove_unused(directory, digest)


def remove_unused(directory: Path, in_force: str) -> list[str]:
    """Remove all references except `in_force` (empty: all). Must not run during `keep`. Blocking; files that cannot be
    removed stay.

    A file is recognised by its bytes, not by the journal, so that files without an event are removed as well, and
    nothing else is: teachers, changed files, links and files with other names are left alone.
    """
    removed = []
    try:
        entries = [entry for entry in os.scandir(directory) if _NAMED.fullmatch(entry.name) and entry.name != in_force]
    except OSError:
        return []
    for entry in entries:
        try:
            if entry.is_file(follow_symlinks=False) and _is_references(entry.path, entry.name):
                os.unlink(entry.path)
                removed.append(entry.name)
        except OSError as error:
            log.info("quality.references_stay", file=entry.path, reason=reason(error))
    return sorted(removed)


def _is_references(path: str, digest: str) -> bool:
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            return False  # a teacher; there may be thousands, so it is not read
        file.seek(0)
        blob = file.read()
    try:
        read_references(blob)
    except RecordRefused:
        return False
    return digest_of(blob) == digest


def _read(path: Path, digest: str) -> dict[str, Reference]:
    blob = path.read_bytes()
    if (found := digest_of(blob)) != digest:
        raise RecordRefused(f"the file was changed, it is {found} now", "put it back as it was")
    return read_references(blob)
