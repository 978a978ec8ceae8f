"""Reads a probe file, without ever blocking on special files."""

import os
import stat
from pathlib import Path

from apollod.curation.formats.lines import BOM
from apollod.errors import ConfigError
from apollod.explain import reason

BYTES_MAX = 64 << 20
"""most bytes of a file; far more than the largest set of probes needs"""


def lines_of(name: str) -> list[bytes]:
    """The lines of a file of the configuration. Raises ConfigError. Blocking, and never waits for a pipe."""
    try:
        path = Path(name).expanduser()
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(
                    f"[quality] probe {path} is no file (its mode is {stat.filemode(status.st_mode)})",
                    "name a file with one probe a line",
                )
            if status.st_size > BYTES_MAX:
                raise ConfigError(
                    f"[quality] probe {path} has {status.st_size} bytes, more than {BYTES_MAX}",
                    "name a file with one probe a line",
                )
            return file.read(BYTES_MAX).removeprefix(BOM).splitlines()
    except OSError as error:
        raise ConfigError(f"[quality] probe {name} cannot be read: {reason(error)}", "check path and owner") from error
    except (ValueError, RuntimeError) as error:  # a zero byte in it, or an unknown user's home
        raise ConfigError(f"[quality] probe {name!r} is no path: {error}", "check it") from error


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
