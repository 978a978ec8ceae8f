"""`apollod ctl replay`: the status at a moment of the past, which is a step or a time.

The order of events is that of their sequence numbers; times are what a clock said, and a clock may be set back. A time
therefore means the last event, in the order of the journal, that was recorded then or earlier: after a clock was set
back, events before it may carry later times.
"""

import argparse
import json
import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.journal_reader import continued
from apollod.adapters.system.clock import EPOCH, iso
from apollod.cli import commands
from apollod.cli.control import ctl, rows, status_verb
from apollod.cli.control.examples.example_facts import unknown_step
from apollod.errors import ApolloError, ConfigError

SECOND_NS = 1_000_000_000
RESULTS = "kind IN ('step.completed', 'step.failed')"


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    until = parser.add_mutually_exclusive_group()
    until.add_argument(
        "--to", type=commands.event, default=None, metavar="SEQ", help="up to this event (default: the last)"
    )
    until.add_argument(
        "--at", default=None, metavar="STEP|TIME",
        help="right after the result of a step (12), or up to the last event of a time (2026-11-20T12:00:00Z; "
        "without a zone: local time)",
    )  # fmt: skip
    ctl.of_a_copy(parser)


def _run(args: argparse.Namespace) -> int:
    path = ctl.journal_path(args)
    until = args.to if args.at is None else _seq_of(path, args.at)
    seq, at_ns, status = status_at(path, until)
    if until is not None and seq < until:
        raise ApolloError(f"the journal ends at event {seq}", f"--to may be at most {seq}")
    if args.json:
        print(json.dumps(status | {"replayed": seq, "replayed_at": iso(at_ns) if seq else None}))
        return 0
    print(f"event       {seq}, of {iso(at_ns)}" if seq else "event       0, before the first")
    print(status_verb.page(status))
    return 0


def status_at(path: str, until: int | None = None) -> tuple[int, int, dict[str, Any]]:
    """Event, time (Unix, ns) and status after the first `until` events of a journal (None: all), whose chain of hashes
    is checked. The state is a pure fold of them."""
    from apollod.core.fold import fold
    from apollod.core.state import State
    from apollod.supervisor.status_view import status_view
    from apollod.wire import status as st
    from apollod.wire.event_codec import GENESIS

    state, head, at_ns = State(), GENESIS, 0
    for item, hash_ in islice(journal_reader.recorded(path), until):
        fold(state, item)
        head, at_ns = hash_, item.at_ns
    status = status_view(state, at_ns, st.Journal(seq=state.seq, bytes=0, head_hash=head.hex(), path=path))
    return state.seq, at_ns, st.plain(status)


def _seq_of(path: str, text: str) -> int:
    """The event after which the moment is. Raises ConfigError for text that is neither a step nor a time, ApolloError
    for a moment outside the journal."""
    return _of_step(path, int(text)) if re.fullmatch(r"[0-9]{1,15}", text) else _of_time(path, text)


def _of_step(path: str, number: int) -> int:
    ((result,),) = rows.tuples(path, f"SELECT max(seq) FROM events WHERE {RESULTS} AND key = '{number}'")
    if result is not None:
        return int(result)
    ((intent,),) = rows.tuples(path, f"SELECT max(seq) FROM events WHERE kind = 'step.started' AND key = '{number}'")
    if intent is not None:
        raise ApolloError(
            f"step {number} has no result yet; it was begun in event {intent}", f"see the state then with --to {intent}"
        )
    raise unknown_step(path, number)


def _of_time(path: str, text: str) -> int:
    try:
        last_ns = _end_of(text)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{text!r} is neither a step nor a time",
            "give a step's number, or a time such as 2026-11-20T12:00:00Z (without Z: local time)",
        ) from error
    ((found,),) = rows.tuples(path, f"SELECT max(seq) FROM events WHERE at_ns <= {last_ns}")
    ((carried,),) = rows.tuples(path, "SELECT coalesce(max(seq), 0) FROM events WHERE kind = 'journal.carried'")
    if found is not None and (begun := continued(path)) is not None and found < carried:
        raise ApolloError(
            f"{iso(last_ns)} is before this journal, which begins at step {begun.step}",
            f"ask its archive: --file {begun.archive}",
        )
    if found is not None:
        return int(found)
    first = rows.tuples(path, "SELECT at_ns FROM events ORDER BY seq LIMIT 1")
    if not first:
        raise ApolloError("the journal has no event", "start the daemon")
    raise ApolloError(
        f"no event is as old as {iso(last_ns)}; the first one is of {iso(first[0][0])}", "give a later time"
    )


def _end_of(text: str) -> int:
    """The last nanosecond of the second (or tenth, millisecond ...) that is named, as views cut times off there."""
    at = datetime.fromisoformat(text).astimezone(UTC)
    digits = re.search(r"[.,]([0-9]{1,6})", text)
    unit: int = SECOND_NS // 10 ** (len(digits[1]) if digits else 0)
    return (at - EPOCH) // timedelta(microseconds=1) * 1000 + unit - 1
