"""Where the references of a baseline are: a file among the blobs beside the journal, named by the digest of its bytes.

Law: it is durable before an event names it. One that is gone or damaged does not stop the guard: pass rates and losses
are measured without it, KL and length are not, and the log says so.
"""

from collections.abc import Mapping
from pathlib import Path

import structlog

from apollod.adapters.journal import blobs
from apollod.curation.probes.references import Reference, read_references, write_references
from apollod.errors import RecordRefused
from apollod.explain import reason
from apollod.wire.teacher import digest_of

log = structlog.get_logger()


class ReferenceFiles:
    """Those of one baseline are kept in memory, since every look needs them. Methods block."""

    def __init__(self) -> None:
        self._digest = ""
        self._known: dict[str, Reference] = {}
        self._complained = ""

    def keep(self, directory: Path, references: Mapping[str, Reference]) -> str:
        """Have them in a file, durably; its digest, empty for none. Raises OSError."""
        if not references:
            return ""
        self._digest, self._known = blobs.keep(directory, write_references(references)), dict(references)
        return self._digest

    def of(self, directory: Path, digest: str) -> Mapping[str, Reference]:
        """Those of a digest; none for an empty one, and for a file that cannot be used, which is said once."""
        if digest and digest != self._digest:
            try:
                self._digest, self._known = digest, _read(directory / digest, digest)
            except (OSError, RecordRefused) as error:
                self._digest, self._known = "", {}
                if self._complained != digest:
                    self._complained = digest
                    why = reason(error) if isinstance(error, OSError) else error.line()
                    hint = "put the file back, or measure the baseline again: apollod ctl quality baseline"
                    log.warning("quality.without_references", file=str(directory / digest), reason=why, hint=hint)
        return self._known if digest else {}


def _read(path: Path, digest: str) -> dict[str, Reference]:
    blob = path.read_bytes()
    if (found := digest_of(blob)) != digest:
        raise RecordRefused(f"the file was changed, it is {found} now", "put it back as it was")
    return read_references(blob)
