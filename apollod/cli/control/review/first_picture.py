"""First frame of `apollod ctl review`, drawn before textual is imported, which takes most of the start-up time.

It shows the first example as `screen` will, without header and keys. Input typed meanwhile stays in the terminal's
buffer until textual reads it.
"""

import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from apollod.cli.control.review.candidate_page import Piece, page, with_marks
from apollod.cli.control.review.desk import Desk
from apollod.errors import ApolloError

LOOKS = {"heading": "4", "target": "1", "stripped": "9;2", "good": "32", "bad": "31", "quiet": "2"}
"""Select Graphic Rendition parameters (ECMA-48) that look like the styles of `screen`"""
ALTERNATE, NORMAL, CLEAR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[H\x1b[2J"


@contextmanager
def first_picture(desk: Desk, coloured: bool) -> Iterator[None]:
    """Show the frame while the body runs; restore the terminal if the body fails."""
    waiting, (columns, lines) = desk.waiting(), shutil.get_terminal_size()
    before = termios.tcgetattr(sys.stdin.fileno())
    tty.setcbreak(sys.stdin.fileno(), termios.TCSANOW)
    pieces = _first(desk, waiting[0]) if waiting else []
    shown = [Piece(f"{len(waiting)} held\n"), *(pieces if coloured else [Piece(with_marks(pieces))])]
    sys.stdout.write(ALTERNATE + CLEAR + "\r\n".join(_lines(shown, columns)[: lines - 1]))
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


def _lines(pieces: list[Piece], columns: int) -> list[str]:
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
