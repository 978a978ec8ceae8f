"""Whole numbers of the command line, bounded where they are parsed: no command meets one that SQLite or Python
cannot count with."""

import argparse
import re

LIMIT_MAX = (1 << 31) - 2  # a cursor can be asked for one row more
COUNT_MAX = (1 << 63) - 1  # of events and steps: what a column of SQLite holds


def limit(text: str) -> int:
    """A number, where 0 may stand for all."""
    return _whole(text, LIMIT_MAX, f"a limit of {text} is none")


def event(text: str) -> int:
    """A sequence number; 0 is before the first event."""
    return _whole(text, COUNT_MAX, f"there is no event {text}")


def step(text: str) -> int:
    """A step; 0 is before the first one."""
    return _whole(text, COUNT_MAX, f"there is no step {text}")


def _whole(text: str, most: int, otherwise: str) -> int:
    """Raises what argparse turns into its message, and exit code 2."""
    if not re.fullmatch(r"[0-9]{1,19}", text) or (value := int(text)) > most:
        raise argparse.ArgumentTypeError(f"{otherwise}; give a whole number from 0 to {most}")
    return value
