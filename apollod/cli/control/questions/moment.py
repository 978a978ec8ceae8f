"""A moment in the journal as a person names it, a step or a time, as the event after which it is.

The order is that of the sequence numbers; times are what a clock said, and a clock may be set back. A time therefore
means the last event, in the order of the journal, that was recorded then or earlier: after a clock was set back, events
before it may carry later times.
"""

import re
from datetime import UTC, datetime, timedelta

from apollod.adapters.journal.journal_reader import continued
from apollod.adapters.system.clock import EPOCH, iso
from apollod.cli.control.questions import rows
from apollod.errors import ApolloError, ConfigError

SECOND_NS = 1_000_000_000
RESULTS = "kind IN ('step.completed', 'step.failed')"


def seq_of(path: str, text: str) -> int:
    """The event after which the moment is. Raises ConfigError for what is neither step nor time, ApolloError where
    there is none."""
    return _of_step(path, int(text)) if re.fullmatch(r"[0-9]{1,15}", text) else _of_time(path, text)


def unknown_step(path: str, number: int) -> ApolloError:
    """The reason why there is no such step, and which there are."""
    if not number:
        return ApolloError("there is no step 0: the weights of version 0 are the untrained model", "steps begin at 1")
    sql = "SELECT max(CAST(key AS INTEGER)) FROM events WHERE kind IN ('step.started', 'step.completed', 'step.failed')"
    ((last,),) = rows.tuples(path, sql)
    begun = continued(path)
    if begun is not None and number <= begun.last_step:
        return ApolloError(
            f"step {number} is not in this journal, which begins after step {begun.last_step}",
            f"ask its archive: --file {begun.archive}",
        )
    if last is None:
        return ApolloError(f"there is no step {number}: nothing was learned yet", "see `apollod ctl status`")
    return ApolloError(f"there is no step {number}: the last one is {last}", f"ask for a step from 1 to {last}")


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
    """The last nanosecond of the second (or tenth, millisecond ...) that is named; the times shown by views are cut
    off so."""
    at = datetime.fromisoformat(text).astimezone(UTC)
    digits = re.search(r"[.,]([0-9]{1,6})", text)
    unit: int = SECOND_NS // 10 ** (len(digits[1]) if digits else 0)
    return (at - EPOCH) // timedelta(microseconds=1) * 1000 + unit - 1
