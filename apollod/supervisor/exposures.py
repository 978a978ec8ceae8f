"""Warns of settings that let others teach or read this model, probably by mistake: in `config check` and at the
start."""

import os
import stat
from pathlib import Path

from apollod.adapters.system.web_address import is_loopback
from apollod.supervisor.config import Config


def exposures(config: Config) -> list[str]:
    """One line for each, with the fix; empty: only this user and root have access, as far as can be seen here."""
    engine, found = config.engine, list[str]()
    if not is_loopback(engine.host) and not engine.api_key:
        found.append(
            f"whoever reaches {config.url} may teach this model and read what it says of others: set [engine] api_key, "
            'or host = "127.0.0.1"'
        )
    model = Path(config.model.path)
    for name, path in {
        "inbox": config.inbox_dir,
        "state directory": config.state_dir,
        "model directory": model,
    }.items():
        if mode := _open_to_others(path):
            found.append(f"the {name} can be written by others (mode {mode:04o}): `chmod go-w {path}`")
    return found


def _open_to_others(path: Path) -> int:
    """Permissions of a directory into which others may write; 0: they may not, or it does not exist. The group of this
    process counts as private to its user, as on most systems."""
    try:
        found = path.stat()
    except OSError:
        return 0
    mode = stat.S_IMODE(found.st_mode)
    others = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and found.st_gid != os.getgid())
    return mode if others else 0
