"""The daemon's log: structlog on stderr, JSON under a service manager, readable on a terminal."""

import logging
import os
import sys
from contextlib import suppress
from typing import TextIO

import structlog


def configure(level: str, format_: str) -> None:
    """Set structlog up once. `format_` auto: JSON where stderr goes to journald, console otherwise."""
    json = format_ == "json" or (format_ == "auto" and bool(os.environ.get("JOURNAL_STREAM")))
    renderer = (
        structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(_Said(sys.stderr)),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )


class _Said:
    """An output stream that ignores failures: a disk that is too full for a log must not stop serving. Failed writes
    are lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()
