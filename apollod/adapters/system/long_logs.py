"""Limits the logs of the child processes, which write as long as they live and do not rotate their logs."""

import os
import shutil
from pathlib import Path

LONGEST = 64 << 20
"""bytes of a log, above which it replaces the one older log"""


def cut(directory: Path, longest: int = LONGEST) -> list[Path]:
    """Copy each log of a directory that is too long to NAME.1 and empty it, since its writer keeps it open and appends;
    return their paths. Lines written in between are lost. Blocking; raises OSError if the disk takes no copy."""
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
