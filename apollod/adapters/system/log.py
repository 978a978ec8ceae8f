"""The daemon's log: structlog on stderr, JSON under a service manager, readable on a terminal."""

import logging
import os
import sys

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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
