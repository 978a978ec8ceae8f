"""`apollod ctl review`: held examples, one after the other, each with a key to decide about it."""

import argparse
import json
import os
import sys
import time
from argparse import RawDescriptionHelpFormatter

from apollod.cli.control import ctl
from apollod.cli.control.review import candidate
from apollod.cli.control.review.held_queue import HeldQueue, facts_since
from apollod.errors import ConfigError

EPILOG = """\
keys:     a approve   d decline   e edit the answer in $EDITOR, E the whole record
          l label   s skip   u undo   / filter   x all of a long context   ? help
order:    direct corrections, what the judge was not sure of, what differs most
          with and without stripped text, then the longest wait
shown:    what it says, what is learned of it (bold), what was stripped (struck),
          divergence, signals, and what the judge said of it, where there are any
no colour: NO_COLOR=1, or TERM=dumb: [[learned]] and [-stripped-]

Several people may sit here at once: what one decided disappears for the others,
and nobody decides twice. In scripts: apollod ctl example list --state held,
and apollod ctl example approve|decline|edit ID.
"""
COLOURLESS = ("dumb", "unknown", "vt")
"""how names of terminals without colour begin"""


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, run)
    parser.formatter_class, parser.epilog = RawDescriptionHelpFormatter, EPILOG
    parser.add_argument("--file", help="with --json: a copy of the journal, instead of the running daemon's")
    parser.add_argument("--judged", action="store_true", help="also what waits for the judge")


def run(args: argparse.Namespace) -> int:
    """The screen; with --json the queue."""
    if args.json:
        print(json.dumps(_object(ctl.journal_path(args))))
        return 0
    if args.file:
        raise ConfigError("in a copy of a journal nothing can be decided", "--json prints what waits in it")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("this is no terminal", "`apollod ctl example list --state held` prints what waits")
    socket = ctl.socket_path(args)
    journal = ctl.status(socket).journal.path  # also tells whether the daemon answers, before the screen is taken
    coloured = "NO_COLOR" not in os.environ and not os.environ.get("TERM", "dumb").startswith(COLOURLESS)
    for name in ("COLUMNS", "LINES"):  # textual believes these, which stay when the terminal gets another size
        os.environ.pop(name, None)

    from apollod.cli.control.review.desk import Desk
    from apollod.cli.control.review.first_picture import first_picture  # here for start-up time

    desk = Desk(journal, socket, args.judged)
    with first_picture(desk, coloured):
        from apollod.cli.control.review.screen import ReviewApp

        app = ReviewApp(desk, coloured)
    app.run(mouse=False)  # so that text can be marked and copied
    return app.return_code or 0


def _object(path: str) -> dict[str, object]:
    queue = HeldQueue()
    queue.take(facts_since(path, 0))
    facts = candidate.facts_of(path, queue.held)
    now = time.time_ns()
    held = [
        {
            "id": id_,
            "state": "held",
            "tier": waits.tier,
            "reason": waits.reason,
            "waits_for": waits.waits_for,
            "by": waits.by,
            "held_s": round(max(0, now - waits.at_ns) / 1e9),
            **facts[id_]._asdict(),
        }
        for id_, waits in queue.held.items()
    ]
    return {"schema_version": 1, "seq": queue.seq, "held": held}
