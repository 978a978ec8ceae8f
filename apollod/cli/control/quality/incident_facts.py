"""Reads alarms from the journal, each from what fell to the measurement afterwards.

The guard's events are told in their order; of examples only those that an alarm was about are looked up.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from apollod.adapters.journal.journal_reader import literal, stream
from apollod.adapters.system.clock import iso
from apollod.cli.control.quality.culprit_lines import culprit_lines
from apollod.cli.control.quality.incident_tale import Tales
from apollod.core import events as ev
from apollod.core.quality.state import GUARD
from apollod.errors import ApolloError
from apollod.wire.event_codec import decode_event

SECONDS = 60.0
_KINDS = (
    "daemon.started", "journal.carried", "quality.measured", "quality.alarmed", "quality.search_begun",
    "quality.not_good", "quality.replay_begun", "quality.replayed", "quality.replay_failed", "quality.rank_begun",
    "quality.ranked", "quality.rank_failed", "quality.named", "quality.resumed", "quality.settled", "quality.told",
    "rollback.started", "rollback.refused", "rollback.completed",
)  # fmt: skip
_DECIDED = ("example.approved", "example.declined", "example.edited", "example.requeued")
Object = dict[str, Any]


def incidents(path: str) -> list[Object]:
    """All of them, the newest first, with the lines of those that did it; `examples` are ids."""
    found = _tales(path).incidents
    lines = culprit_lines(path, set[str]().union(*(_named(one) for one in found)))
    return _with_lines(path, found, found, lines)[::-1]


def incident(path: str, number: int | None) -> Object:
    """One, or the last one, with the line of each example that its steps had learned. Raises ApolloError where there
    is none."""
    found = _tales(path).incidents
    one = next((one for one in reversed(found) if number in (None, one["incident"])), None)
    if one is None and number is None:
        raise ApolloError("the guard raised no alarm", "`apollod ctl quality report` says what was measured")
    if one is None:
        last = f"the last one is {found[-1]['incident']}" if found else "the guard raised no alarm"
        raise ApolloError(f"there is no incident {number}: {last}", "`apollod ctl quality incident list` has them")
    lines = culprit_lines(path, _named(one) | set(one["examples"]))
    (told,) = _with_lines(path, [one], found, lines)
    return told | {"examples": [lines[each] for each in one["examples"]]}


def _tales(path: str) -> Tales:
    tales = Tales()
    for seq, at_ns, event in _events(path):
        tales.take(seq, at_ns, event)
    return tales


def _events(path: str) -> Iterator[tuple[int, int, ev.Event]]:
    """What is told of alarms: of steps those that repeat one, of examples those that the guard held."""
    since = "(SELECT min(seq) FROM events WHERE kind = 'quality.alarmed')"
    kinds = ", ".join(f"'{kind}'" for kind in _KINDS)
    sql = (
        "SELECT seq, at_ns, kind, version, body FROM events WHERE "
        f"kind IN ({kinds}) OR (kind = 'step.started' AND seq > {since} AND body ->> '$.again_of' > 0) "
        f"OR (kind = 'example.held' AND seq > {since} AND body ->> '$.by' = '{GUARD}') ORDER BY seq"
    )
    for seq, at_ns, kind, version, body in stream(path, sql, SECONDS):
        yield seq, at_ns, decode_event(kind, version, body)


def _with_lines(path: str, found: list[Object], all_: list[Object], lines: Mapping[str, Object]) -> list[Object]:
    """With what is known of the examples that they name (`lines`), and what was decided about those since; `all_`: all
    alarms of the journal."""
    named = set[str]().union(*(_named(one) for one in found))
    since: dict[int, list[Object]] = {}
    for example, decision in _decided(path, named):
        blamed = [one["seq"] for one in all_ if example in _named(one) and one["seq"] < decision["seq"]]
        if blamed:
            since.setdefault(blamed[-1], []).append(decision)
    return [
        one
        | {
            "culprits": [lines[each] for each in one["culprits"]],
            "suspects": [lines[each] for each in one["suspects"]],
            "story": sorted([*one["story"], *since.get(one["seq"], [])], key=lambda each: int(each["seq"])),
        }
        for one in found
    ]


def _named(one: Object) -> set[str]:
    return {*one["culprits"], *one["suspects"]}


def _decided(path: str, examples: set[str]) -> Iterator[tuple[str, Object]]:
    """What somebody decided about these, oldest first."""
    if not examples:
        return
    ids = ", ".join(literal(one) for one in sorted(examples))
    kinds = ", ".join(f"'{kind}'" for kind in _DECIDED)
    sql = (
        "SELECT seq, at_ns, kind, key, coalesce(body ->> '$.by', '') FROM events "
        f"WHERE kind IN ({kinds}) AND key IN ({ids}) ORDER BY seq"
    )
    for seq, at_ns, kind, key, by in stream(path, sql, SECONDS):
        done = kind.removeprefix("example.") + (f" by {by}" if by else "")
        yield key, {"at": iso(at_ns), "seq": seq, "kind": kind, "text": f"example {key} was {done}"}
