"""Reads dreams from the journal: the newest ones, and all of one.

Asked of the events themselves and not of the view `dreams`, which puts all of them together first.
"""

import json
from collections.abc import Iterable
from typing import Any

from apollod.adapters.journal.journal_reader import continued, literal
from apollod.adapters.system.clock import iso
from apollod.cli.control.questions import rows
from apollod.errors import ApolloError, ConfigError

COURSE = (
    "dream.requested", "dream.imagined", "dream.answered", "dream.judged", "dream.trained", "dream.tested",
    "dream.settled", "dream.abandoned", "dream.failed",
)  # fmt: skip
_KINDS = ", ".join(f"'{kind}'" for kind in COURSE)
_HIDDEN = ("dream", "sketch", "votes")
"""fields that say nothing to a person, or what is said already"""


def newest(path: str, pattern: str = "", limit: int = 20) -> list[dict[str, Any]]:
    """The newest dreams, of one pattern or of all, the newest first; limit 0: all of them."""
    of = f"AND body ->> '$.pattern' = {literal(pattern)}" if pattern else ""
    chosen = rows.tuples(
        path,
        f"SELECT key, seq FROM events WHERE kind = 'dream.requested' {of} ORDER BY seq DESC LIMIT "
        f"{limit or rows.ROWS_MAX}",
    )
    if not chosen:
        return []
    wanted, first = {key for key, _ in chosen}, chosen[-1][1]
    # one dream is under way at a time: what lies before the first of them is of others
    long = "'$.sketch', '$.answer', '$.better', '$.surrounding.messages', '$.surrounding.tools'"
    shown = f"CASE WHEN kind = 'dream.failed' THEN '' ELSE json_remove(body, {long}) END"
    found = rows.tuples(
        path,
        f"SELECT key, kind, seq, at_ns, {shown} FROM events WHERE kind IN ({_KINDS}) AND seq >= {first} ORDER BY seq",
    )
    by_dream: dict[str, list[tuple[str, int, int, dict[str, Any]]]] = {}
    for key, kind, seq, at_ns, body in found:
        if key in wanted and body:
            by_dream.setdefault(key, []).append((kind, seq, at_ns, json.loads(body)))
    return [_row(key, by_dream[key]) for key, _ in chosen]


def _row(dream: str, events: Iterable[tuple[str, int, int, dict[str, Any]]]) -> dict[str, Any]:
    """As the view `dreams` has it, with the last words of the scenario."""
    row: dict[str, Any] = {"dream": dream, "tokens": 0}
    empty = ("reason", "verdict", "example", "step", "passed", "said", "surrounding")
    row |= dict.fromkeys(empty)
    for kind, seq, at_ns, body in events:
        round_ = body.get("round", "")
        if kind == "dream.requested":
            row |= {
                "pattern": body.get("pattern"), "purpose": body.get("purpose"), "mode": body.get("mode", "bare"),
                "contrast": body.get("contrast") or None, "variation_of": body.get("of") or None, "at": iso(at_ns),
                "seq": seq,
            }  # fmt: skip
        if not round_:
            row["state"] = kind.removeprefix("dream.")
            row["tokens"] += body.get("tokens", 0)
            row["example"] = body.get("example") or row["example"]
        if kind == "dream.imagined":
            row["said"] = _last_said(body.get("scenario"))
            row["surrounding"] = body.get("surrounding", {}).get("kind", "none")
        elif kind == "dream.judged":
            row["verdict"] = body["verdict"]
        elif kind == "dream.trained":
            row["step"] = body["step"]
        elif kind == "dream.tested" and body["mode"] == "bare":
            row["passed"] = body["passed"]
        elif kind == "dream.abandoned":
            row["reason"] = body["reason"]
    return row


def _last_said(scenario: Any) -> str | None:
    return str(scenario[-1]["content"]) if isinstance(scenario, list) and scenario else None


def one(path: str, what: str) -> dict[str, Any]:
    """All that is known of a dream, as `dream show --json` has it. Raises ConfigError for what is no dream's id,
    ApolloError where there is none."""
    number = what.lower().removeprefix("d")
    if not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise ConfigError(f"{what!r} is no dream", "give an id such as d12; `apollod ctl dream list` has them")
    dream = f"d{int(number)}"
    found = rows.tuples(
        path, f"SELECT kind, seq, at_ns, body FROM events WHERE kind IN ({_KINDS}) AND key = '{dream}' ORDER BY seq"
    )
    events = [(kind, seq, at_ns, json.loads(body)) for kind, seq, at_ns, body in found]
    if not events:
        raise _unknown(path, dream)
    row = _row(dream, events)
    trail = [
        {"seq": seq, "at": iso(at_ns), "kind": kind, **{k: v for k, v in body.items() if k not in _HIDDEN}}
        for kind, seq, at_ns, body in events
    ]
    return {**row, "instruction": _instruction(path, row), "loss": _loss(path, row), "trail": trail,
            "variations": _variations(path, dream)}  # fmt: skip


_LISTED = "`apollod ctl dream list` has them"


def _unknown(path: str, dream: str) -> ApolloError:
    last = newest(path, limit=1)
    if not last:
        return ApolloError(f"there is no dream {dream}: nothing was dreamt yet", "`apollod ctl dream start` begins")
    why, begun = f"there is no dream {dream}: the last one is {last[0]['dream']}", continued(path)
    if begun is not None and int(dream[1:]) < int(last[0]["dream"][1:]):
        return ApolloError(f"{dream} is not in this journal", f"ask its archive: --file {begun.archive}")
    return ApolloError(why, _LISTED)


def _instruction(path: str, row: dict[str, Any]) -> str | None:
    """Of the pattern, as it was when this was dreamt."""
    found = rows.tuples(
        path,
        "SELECT body ->> '$.pattern.instruction' FROM events WHERE kind = 'pattern.added' AND key = "
        f"{literal(row.get('pattern') or '')} AND seq < {row.get('seq', 0)} ORDER BY seq DESC LIMIT 1",
    )
    return str(found[0][0]) if found else None


def _loss(path: str, row: dict[str, Any]) -> float | None:
    """Of the step that learned it."""
    if row["step"] is None:
        return None
    found = rows.tuples(
        path, f"SELECT body ->> '$.loss' FROM events WHERE kind = 'step.completed' AND key = '{int(row['step'])}'"
    )
    return found[0][0] if found else None


def _variations(path: str, dream: str) -> list[str]:
    found = rows.tuples(
        path, f"SELECT key FROM events WHERE kind = 'dream.requested' AND body ->> '$.of' = '{dream}' ORDER BY seq"
    )
    return [str(key) for (key,) in found]
