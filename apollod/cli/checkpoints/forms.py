"""Output of the commands on checkpoints: JSON objects, sizes, progress."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from apollod.cli import render


def show_object(body: dict[str, Any]) -> None:
    """The answer with --json."""
    print(json.dumps({"schema_version": 1, **body}))


def size(count: int | None) -> str:
    """Bytes with a unit; nothing if they are not known."""
    return "" if count is None else render.size(count)


class Progress:
    """Progress in bytes on stderr, if that is a terminal."""

    def __init__(self, word: str) -> None:
        self._word, self._total, self._shown = word, 0, 0.0

    def __enter__(self) -> Callable[[int], None]:
        return self._count

    def __exit__(self, *reason: object) -> None:
        if self._shown:
            print(file=sys.stderr)

    def _count(self, count: int) -> None:
        self._total += count
        if os.isatty(2) and (now := time.monotonic()) - self._shown > 0.2:
            self._shown = now
            print(f"\r{render.size(self._total)} {self._word}   ", end="", file=sys.stderr, flush=True)
