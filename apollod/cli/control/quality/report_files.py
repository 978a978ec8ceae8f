"""Writes the page of `quality report --html`."""

import argparse
import sys
from pathlib import Path

from apollod.adapters.system.files import write_whole
from apollod.cli import render
from apollod.cli.control import ctl
from apollod.cli.control.quality import learned_facts, report_html
from apollod.errors import ConfigError


def show(args: argparse.Namespace, journal: str, report: dict[str, object]) -> int:
    """Write it, and say so. Raises ConfigError."""
    if args.html == "-" and args.json:
        raise ConfigError("--json and --html - both want the output", "give --html a file")
    size = write(args.html, journal, report)
    if args.html != "-":
        ctl.show(args, {"schema_version": 1, "html": args.html, "bytes": size}, f"{args.html}: {render.size(size)}")
    return 0


def write(path: str, journal: str, report: dict[str, object]) -> int:
    """To a file that replaces what was there when it is whole, or to standard output (`-`); how many bytes. Raises
    ConfigError where it cannot be written."""
    text = report_html.page(report, learned_facts.searches(journal), learned_facts.written(journal))
    data = text.encode()
    if path == "-":
        sys.stdout.write(text)
        return len(data)
    try:
        write_whole(Path(path), data)
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}"
        raise ConfigError(why, "name another file, or - for the output") from error
    return len(data)
