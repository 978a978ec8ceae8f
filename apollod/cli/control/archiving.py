"""`apollod ctl journal archive`: put the journal away and go on with a short one."""

import argparse
import json
from pathlib import Path

from apollod.cli import render
from apollod.errors import ConfigError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Where to."""
    parser.add_argument(
        "copy", metavar="DEST", help="a file to make, or a directory, such as one on another disk, to make it in"
    )


def run(args: argparse.Namespace) -> int:
    """Needs the configuration: the daemon's lock is held meanwhile."""
    if not args.config:
        raise ConfigError("which state directory?", "give --config FILE, or set APOLLOD_CONFIG")
    from apollod.adapters.journal.archive import archive  # here for start-up time, as all that follows
    from apollod.adapters.system.clock import now_ns
    from apollod.adapters.system.daemon_lock import Lock
    from apollod.supervisor.config import load_config

    config = load_config(args.config)
    lock = Lock(config.state_dir / "apollod.lock")
    try:
        done = archive(config.journal_path, Path(args.copy).expanduser(), now_ns())
    finally:
        lock.release()
    if args.json:
        answer = {
            "schema_version": 1, "archive": done.archive.path, "events": done.archive.events,
            "head_hash": done.archive.head_hash, "step": done.step, "carried": done.events, "known": done.known,
        }  # fmt: skip
        print(json.dumps(answer))
        return 0
    said = (
        f"archived: {done.archive.events} events, head {done.archive.head_hash}, in {done.archive.path}\n"
        f"the journal now begins at step {done.step} with {done.events} events; {done.known} examples are known from "
        "before"
    )
    print(render.plain(said))
    return 0
