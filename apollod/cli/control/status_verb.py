"""`apollod ctl status`."""

import argparse
import sys
import time
from typing import Any

from apollod.adapters.ipc.status_client import ask_status
from apollod.cli.control import ctl
from apollod.cli.control.near_socket import near_socket
from apollod.errors import ApolloError

WATCH_S = 1.0


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument("--watch", action="store_true", help="again every second until interrupted")


def _run(args: argparse.Namespace) -> int:
    """With --json the daemon's own object, fields that this version does not know included."""
    near = None if args.socket or not args.config else near_socket(args.config)
    path = near or ctl.socket_path(args)
    while True:
        answer = ask_status(path)
        page = "" if args.json else _page(answer)
        if args.watch and not args.json:
            print("\x1b[H\x1b[J" if sys.stdout.isatty() else "", end="")
        ctl.show(args, answer, page)
        if not args.watch:
            return 0
        sys.stdout.flush()
        time.sleep(WATCH_S)


def _page(answer: dict[str, Any]) -> str:
    from apollod.cli.control.status_page import page  # here for start-up time: with --json nobody needs it

    try:
        return page(answer)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ApolloError(
            f"this is not the status of an apollod: {error!r}", "use one version of apollod everywhere"
        ) from error
