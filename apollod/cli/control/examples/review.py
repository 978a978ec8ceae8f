"""`apollod ctl review`: held examples, one after the other, each with a key to decide about it.

Its first frame is drawn before textual is imported, which takes most of the start-up time: the first example as
`screen` will show it, without header and keys. Input typed meanwhile stays in the terminal's buffer until textual reads
it.
"""

import argparse
import os
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.cli.control.examples.desk import Desk, Piece, facts_of, page, with_marks
from apollod.cli.control.examples.held_queue import HeldQueue, facts_since
from apollod.errors import ApolloError, ConfigError

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
"""Beginnings of the names of terminals without colour."""


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    commands.epilog(parser, EPILOG)
    parser.add_argument("--file", help="with --json: a copy of the journal, instead of the running daemon's")
    parser.add_argument("--judged", action="store_true", help="also what waits for the judge")


def _run(args: argparse.Namespace) -> int:
    """Run the screen; with --json print the queue."""
    if args.json:
        render.print_object(_queue(ctl.journal_path(args)))
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

    desk = Desk(journal, socket, args.judged)
    with first_picture(desk, coloured):
        from apollod.cli.control.examples.screen import ReviewApp

        app = ReviewApp(desk, coloured)
    app.run(mouse=False)  # so that text can be marked and copied
    return app.return_code or 0


def _queue(path: str) -> dict[str, object]:
    queue = HeldQueue()
    queue.take(facts_since(path, 0))
    facts = facts_of(path, queue.held)
    now = time.time_ns()
    held = [
        {
            "id": id_, "state": "held", "tier": waits.tier, "reason": waits.reason, "waits_for": waits.waits_for,
            "by": waits.by, "held_s": round(max(0, now - waits.at_ns) / 1e9), **facts[id_]._asdict(),
        }
        for id_, waits in queue.held.items()
    ]  # fmt: skip
    return {"seq": queue.seq, "held": held}


LOOKS = {"heading": "4", "target": "1", "stripped": "9;2", "good": "32", "bad": "31", "quiet": "2"}
"""Select Graphic Rendition parameters (ECMA-48) that look like the styles of `screen`."""
ALTERNATE, NORMAL, CLEAR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[H\x1b[2J"


@contextmanager
def first_picture(desk: Desk, coloured: bool) -> Iterator[None]:
    """Show the frame while the body runs; restore the terminal if the body fails."""
    waiting, (columns, lines) = desk.waiting(), shutil.get_terminal_size()
    before = termios.tcgetattr(sys.stdin.fileno())
    tty.setcbreak(sys.stdin.fileno(), termios.TCSANOW)
    pieces = _first(desk, waiting[0]) if waiting else []
    shown = [Piece(f"{len(waiting)} held\n"), *(pieces if coloured else [Piece(with_marks(pieces))])]
    sys.stdout.write(ALTERNATE + CLEAR + "\r\n".join(_cut(shown, columns)[: lines - 1]))
    sys.stdout.flush()
    try:
        yield
    except BaseException:
        sys.stdout.write(NORMAL)
        sys.stdout.flush()
        raise
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)


def _first(desk: Desk, id_: str) -> list[Piece]:
    try:
        return page(desk.candidate(id_), time.time_ns(), worth=desk.worth(id_))
    except ApolloError as error:  # the screen says it again, and goes on with the next one
        return [Piece(error.line())]


def _cut(pieces: list[Piece], columns: int) -> list[str]:
    """Lines cut at the right edge, with their attributes."""
    lines, left = [""], columns
    for piece in pieces:
        for n, text in enumerate(piece.text.split("\n")):
            if n:
                lines.append("")
                left = columns
            if shown := text[:left]:
                look = LOOKS.get(piece.look)
                lines[-1] += f"\x1b[{look}m{shown}\x1b[0m" if look else shown
                left -= len(shown)
    return lines
