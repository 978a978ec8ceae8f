"""`apollod run`."""

from collections.abc import Sequence

import anyio

from apollod.adapters import log
from apollod.supervisor import app
from apollod.supervisor.config import load_config


def run(path: str | None, overrides: Sequence[str]) -> int:
    """Run the daemon until SIGTERM or SIGINT; 0 after a clean end."""
    config = load_config(path, overrides)
    log.configure(config.log.level, config.log.format)
    anyio.run(app.run, config)
    return 0
