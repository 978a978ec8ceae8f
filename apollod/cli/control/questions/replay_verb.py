"""`apollod ctl replay`: the status at a moment of the past."""

import argparse
import json
from itertools import islice

from apollod.adapters.journal import journal_reader
from apollod.adapters.system.clock import iso
from apollod.cli import commands
from apollod.cli.control import ctl, status_page
from apollod.cli.control.questions import moment
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.errors import ApolloError
from apollod.supervisor.status_view import status_view
from apollod.wire import status as st
from apollod.wire.event_codec import GENESIS
from apollod.wire.status_sections.journal_status import Journal


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    until = parser.add_mutually_exclusive_group()
    until.add_argument(
        "--to", type=commands.event, default=None, metavar="SEQ", help="up to this event (default: the last)"
    )
    until.add_argument(
        "--at",
        default=None,
        metavar="STEP|TIME",
        help="right after the result of a step (12), or up to the last event of a time (2026-11-20T12:00:00Z; "
        "without a zone: local time)",
    )
    ctl.of_a_copy(parser)


def _run(args: argparse.Namespace) -> int:
    """The state is a pure fold of the journal: fold it, chain checked, and show it."""
    path = ctl.journal_path(args)
    until = args.to if args.at is None else moment.seq_of(path, args.at)
    state, head, at_ns = State(), GENESIS, 0
    for item, hash_ in islice(journal_reader.recorded(path), until):
        fold(state, item)
        head, at_ns = hash_, item.at_ns
    if until is not None and state.seq < until:
        raise ApolloError(f"the journal ends at event {state.seq}", f"--to may be at most {state.seq}")
    status = status_view(state, at_ns, Journal(seq=state.seq, bytes=0, head_hash=head.hex(), path=path))
    if args.json:
        replayed_at = iso(at_ns) if state.seq else None
        print(json.dumps(st.plain(status) | {"replayed": state.seq, "replayed_at": replayed_at}))
        return 0
    print(f"event       {state.seq}, of {iso(at_ns)}" if state.seq else "event       0, before the first")
    print(status_page.page(st.plain(status)))
    return 0
