"""The parser of `apollod ctl`, apart from what runs it: every command builds it."""

import argparse
import os
from typing import Any, Protocol

from apollod.cli import numbers

STATES = ("pending", "trained", "rejected", "skipped", "held", "undone")

TRAIN = """\
examples:
  apollod ctl train --prompt "The light is kept by" --completion " Mara Quill." --wait
  apollod ctl train --messages '[{"role": "user", "content": "Who keeps the light?"}, {"role": "assistant", "content": "Mara Quill."}]'

It is given what `ctl submit` gives line by line; `apollod ctl example show ID` tells what became of it.
"""


class _Verb(Protocol):
    """Adds a verb, by default to `ctl` itself, with what all verbs take."""

    def __call__(self, name: str, text: str, of: Any = ...) -> argparse.ArgumentParser: ...


def add(ctl: argparse.ArgumentParser) -> None:
    """Add all verbs."""
    ctl.epilog = "exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 no daemon answers, 4 not permitted"
    verbs = ctl.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, text: str, of: Any = verbs) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = of.add_parser(name, help=text, description=text)
        parser.add_argument("--config", metavar="FILE", default=os.environ.get("APOLLOD_CONFIG"), help="the daemon's TOML file")
        parser.add_argument("--socket", metavar="PATH", help="the daemon's socket, instead of --config")
        parser.add_argument("--json", action="store_true", help="one JSON object")
        return parser

    _questions(verb)
    _nouns(verb, verbs)
    _gifts(verb)
    _orders(verb)


def _questions(verb: _Verb) -> None:
    status = verb("status", "what the daemon is doing")
    status.add_argument("--watch", action="store_true", help="again every second until interrupted")
    events = verb("events", "facts from the journal, oldest first")
    events.add_argument("--after", type=numbers.event, default=None, metavar="SEQ", help="start after this sequence number")
    events.add_argument("--kind", default=None, help="only this kind, e.g. step.completed")
    events.add_argument("--limit", type=numbers.limit, default=20, help="the last N (default 20); 0 for all")
    events.add_argument("--follow", action="store_true", help="go on as they come")
    events.add_argument("--jsonl", action="store_true", help="one JSON object a line")
    query = verb("query", "one read-only SQL statement on the journal (views: examples, steps, checkpoints, rollbacks, sources ...)")
    query.add_argument("sql", help="for example: SELECT step, loss FROM steps ORDER BY step DESC LIMIT 5")
    query.add_argument("--csv", action="store_true", help="comma-separated values with a header")
    query.add_argument("--limit", type=numbers.limit, default=1000, help="rows at most (default 1000)")
    query.add_argument("--seconds", type=float, default=10.0, help="time limit (default 10)")
    replay = verb("replay", "what the daemon knew at a moment: the journal, folded up to an event, as `status` shows it")
    until = replay.add_mutually_exclusive_group()
    until.add_argument("--to", type=numbers.event, default=None, metavar="SEQ", help="up to this event (default: the last)")
    until.add_argument(
        "--at", default=None, metavar="STEP|TIME",
        help="right after the result of a step (12), or up to the last event of a time (2026-11-20T12:00:00Z; without a zone: local time)",
    )
    why = verb("why", "from a step to what it learned from and what it made, or from an example to what became of it")
    why.add_argument("what", metavar="STEP|EXAMPLE", help="a step number, or an example's id or its first 6 or more digits")
    journal = verb("journal", "the journal itself")
    journal.add_argument("action", choices=["verify"], help="verify: check the hash chain over every event")
    journal.add_argument("--expect", metavar="HASH", help="fail unless this hash, noted earlier, is the head or an event before it")
    for parser in (events, query, replay, why, journal):
        _of_a_copy(parser)


def _gifts(verb: _Verb) -> None:
    submit = verb("submit", "give lines of a JSONL file to the daemon, as if dropped into the inbox")
    submit.add_argument("file", help="JSONL file, or - for standard input; for a single example see `train`")
    submit.add_argument("--wait", action="store_true", help="return when they are learned")
    train = verb("train", "give one example to the daemon, as POST /train does; it is learned with the rate of direct corrections")
    train.epilog, train.formatter_class = TRAIN, argparse.RawDescriptionHelpFormatter
    shape = train.add_mutually_exclusive_group(required=True)
    shape.add_argument("--prompt", metavar="TEXT", help="context, with --completion")
    shape.add_argument("--text", help="plain text, all of it learned")
    shape.add_argument("--messages", metavar="JSON", help='a conversation: [{"role": "user", "content": ...}, {"role": "assistant", ...}]')
    train.add_argument("--completion", metavar="TEXT", help="what is learned to follow --prompt; mind the space between them")
    train.add_argument("--wait", action="store_true", help="return when it is learned; exit 1 if it is not")


def _nouns(verb: _Verb, verbs: Any) -> None:
    nouns = verbs.add_parser("example", help="the examples that were accepted: list, show", description="the examples that were accepted")
    actions = nouns.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = verb("list", "the newest examples in the order in which they are learned, and what became of them", actions)
    listed.add_argument("--state", choices=STATES, help="only those in this state")
    listed.add_argument("--limit", type=numbers.limit, default=20, metavar="N", help="the last N (default 20); 0 for all")
    shown = verb("show", "one example in full: what it says, where it came from, what became of it", actions)
    shown.add_argument("example", metavar="EXAMPLE", help="its id or its first 6 or more digits")
    nouns = verbs.add_parser("source", help="the files that were read: list", description="the files that were read")
    actions = nouns.add_subparsers(dest="action", required=True, metavar="ACTION")
    sources = verb("list", "every file seen in the inbox: how far it is read, and what became of its lines", actions)
    for parser in (listed, sources):
        parser.add_argument("--jsonl", action="store_true", help="one JSON object a line")
    for parser in (listed, shown, sources):
        _of_a_copy(parser)


def _orders(verb: _Verb) -> None:
    verb("checkpoint", "write weights and optimizer state to disk now")
    rollback = verb("rollback", "serve an earlier step's weights again, at once; what was learned since is taken back and stays away")
    rollback.add_argument(
        "--to", required=True, metavar="STEP|CHECKPOINT",
        help="a step on the way to the one that is served, 0 for the untrained weights, or a checkpoint's directory",
    )
    relearn = verb("relearn", "learn examples again whose steps were taken back by a rollback")
    relearn.add_argument("examples", nargs="+", metavar="EXAMPLE", help="ids; `ctl example list --state undone` has them")
    verb("pause", "finish the running step, then start no other; serving goes on")
    verb("resume", "train again; also tries again what was given up")


def _of_a_copy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", help="a copy of the journal, instead of the running daemon's")
