"""Logs of the children, kept short: they write them for as long as they live, and none of them rotates its own."""

import os
import shutil
from pathlib import Path

LONGEST = 64 << 20
"""bytes of a log, after which it becomes the older one, of which there is one"""


def cut(directory: Path, longest: int = LONGEST) -> list[Path]:
    """Logs in a directory that were too long: each is copied to NAME.1 and emptied, since its writer keeps it open and
    appends. Lines that come between the two are lost. Blocking; raises OSError for a disk that takes no copy."""
    found = [path for path in sorted(directory.glob("*.log")) if path.stat().st_size > longest]
    for path in found:
        older = path.with_suffix(".log.1")
        part = path.with_suffix(".log.part")
        try:
            shutil.copyfile(path, part)
            part.chmod(0o600)
            part.replace(older)
        finally:
            part.unlink(missing_ok=True)
        os.truncate(path, 0)
    return found
