"""Finds the owner of a path that the caller must not use.

The system only says "permission denied", not which directory on the way denied it.
"""

import os
import pwd
from pathlib import Path

from apollod.errors import NotPermitted


def check_permitted(path: str | Path, mode: int) -> None:
    """Raise NotPermitted if the caller may not use `path` in this mode (os.R_OK and the like). A missing path passes.

    So does a read-only disk, which affects every user: the system reports it to the writer.
    """
    try:
        disk = os.statvfs(path)
    except PermissionError as error:
        raise denied(path) from error
    except OSError:
        return
    wanted = mode & ~os.W_OK if disk.f_flag & os.ST_RDONLY else mode
    if not os.access(path, wanted, effective_ids=True):
        raise denied(path)


def denied(path: str | Path) -> NotPermitted:
    """The error for a path that the system denied; it names the closed directory or file and its owner."""
    real = Path(os.path.realpath(path))
    closed = next(
        (parent for parent in reversed(real.parents) if not os.access(parent, os.X_OK, effective_ids=True)), None
    )
    place = closed or (real if os.path.lexists(real) else real.parent)
    try:
        info = os.stat(place)
    except OSError:  # gone meanwhile
        return NotPermitted(f"{path} may not be used", "run this as the user whose it is")
    owner = _name(info.st_uid)
    whose = "it is" if str(place) == os.path.abspath(path) else f"{place} is"
    hint = f"run this as {owner}" if info.st_uid != os.geteuid() else f"change its mode: `chmod u+rwX {place}`"
    return NotPermitted(f"{path} may not be used: {whose} {owner}'s (mode {info.st_mode & 0o7777:04o})", hint)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
