"""`apollod ctl train`."""

import argparse
import json
from io import BytesIO
from typing import Any

from apollod.cli.commands import REFUSED_BY_GUARD
from apollod.cli.control import ctl
from apollod.cli.control.giving import give
from apollod.errors import ConfigError, RecordRefused

EPILOG = """\
examples:
  apollod ctl train --prompt "The light is kept by" --completion " Mara Quill." --wait
  apollod ctl train --messages '[{"role": "user", "content": "Who keeps the light?"}, {"role": "assistant", "content": "Mara Quill."}]'

It is given what `ctl submit` gives line by line; `apollod ctl example show ID` tells what became of it.
"""


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    shape = parser.add_mutually_exclusive_group(required=True)
    shape.add_argument("--prompt", metavar="TEXT", help="context, with --completion")
    shape.add_argument("--text", help="plain text, all of it learned")
    shape.add_argument(
        "--messages",
        metavar="JSON",
        help='a conversation: [{"role": "user", "content": ...}, {"role": "assistant", ...}]',
    )
    parser.add_argument(
        "--completion", metavar="TEXT", help="what is learned to follow --prompt; mind the space between them"
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="return when it is learned, or known; exit 1 if it is not, 5 if the quality guard took it back",
    )


def _run(args: argparse.Namespace) -> int:
    """With --wait it fails unless the model knows the example then: it may be too long, or its step may be refused, or
    (exit code 5) an alarm may take it back."""
    line = _line_of(args)
    total = give(ctl.socket_path(args), BytesIO(line), "ctl:train", "the command line", args.wait)
    known = total["examples"] + total["duplicates"]
    if not known:
        ctl.show(args, total, "not accepted")
        return 1
    state = "accepted" if total["examples"] else "known already"
    if args.wait:
        from apollod.cli.control.questions import example_ids

        journal = ctl.journal_path(args)
        state = total["state"] = example_ids.state_of(journal, known[0])
        total["known"] = state == "skipped" and example_ids.was_known(journal, known[0])
        state = "skipped: the model knows it, so that nothing was written" if total["known"] else state
    ctl.show(args, total, f"{known[0]} {state}")
    if total.get("taken_back"):
        return REFUSED_BY_GUARD
    return 0 if not args.wait or state == "trained" or total["known"] else 1


def _line_of(args: argparse.Namespace) -> bytes:
    """The example of the command line as a line of an inbox file; raises ConfigError for what is none."""
    from apollod.wire.records import parse_line

    if (args.prompt is None) != (args.completion is None):
        raise ConfigError("--prompt and --completion belong together", "for text without a prompt: --text")
    record: dict[str, Any] = {"prompt": args.prompt, "completion": args.completion, "text": args.text}
    try:
        record["messages"] = None if args.messages is None else json.loads(args.messages)
        line = json.dumps({name: value for name, value in record.items() if value is not None}).encode()
        parse_line(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"--messages is not JSON: {error}", 'give [{"role": "user", "content": ...}, ...]') from error
    except RecordRefused as error:
        raise ConfigError(str(error), error.hint) from error
    return line
