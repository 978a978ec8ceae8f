"""The daemon's socket by a glance at its configuration: to check all of that takes longer than all else of a status."""

import os
import stat
import tomllib
from collections.abc import Mapping


def near_socket(config: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The socket of a daemon with this configuration, if its state directory stands in the file and nowhere else and a
    socket is there; None: ask the configuration itself (`load_config`), which also says what is wrong with it."""
    if environ.keys() & {"APOLLOD_STATE__DIR", "CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY"}:
        return None
    try:
        with open(config, "rb") as file:
            directory = tomllib.load(file)["state"]["dir"]
        path = os.path.join(os.getcwd(), os.path.expanduser(directory), "run", "apollod.sock")
        return path if stat.S_ISSOCK(os.stat(path).st_mode) else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
