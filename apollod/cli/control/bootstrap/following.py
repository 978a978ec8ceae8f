"""Follows a bootstrap until it is over."""

import os
import sys
import time
from typing import Any

from apollod.adapters.ipc.status_client import ask_status
from apollod.cli.render import bootstrap_text, plain
from apollod.errors import ApolloError

WAIT_S = 0.5


def until_over(path: str) -> dict[str, Any]:
    """The bootstrap's object in the status of the daemon at this socket; progress on stderr if somebody watches. Raises
    ApolloError where the daemon cannot go on with it."""
    try:
        while True:
            status = ask_status(path)
            now: dict[str, Any] = status["bootstrap"]
            if os.isatty(2):
                print(f"\r\x1b[K{plain(bootstrap_text(now))}", end="", file=sys.stderr, flush=True)
            if now["state"] not in ("reading", "learning"):
                return now
            helpless = status["state"] == "degraded" and now["state"] == "learning"  # reading needs no engine
            if helpless or status["state"] == "stopping":
                raise ApolloError(
                    f"the daemon is {status['state']}: {status['error'] or 'somebody asked for it'}",
                    "nothing is lost: the bootstrap goes on with the daemon; see `apollod ctl status`",
                )
            time.sleep(WAIT_S)
    finally:
        if os.isatty(2):
            print(file=sys.stderr)
