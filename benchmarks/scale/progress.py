"""Progress messages of a long run, on stderr."""

import sys
import time

_began = time.monotonic()


def say(text: str) -> None:
    """Print a line with the time since the start."""
    seconds = time.monotonic() - _began
    sys.stderr.write(f"[{seconds // 60:3.0f}:{seconds % 60:02.0f}] {text}\n")
    sys.stderr.flush()
