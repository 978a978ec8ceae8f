"""Reads how much better the model says a line since it was learned, for `example show`, `why` and the report."""

from collections.abc import Mapping
from typing import Any

from apollod.cli.control.questions import rows

REPLACED = """SELECT said.key FROM events AS said WHERE said.kind = 'example.replaced' AND NOT EXISTS (
    SELECT 1 FROM events AS over WHERE over.kind = 'lesson.given-up' AND over.key = said.body ->> '$.lesson'
        AND over.seq > said.seq AND over.body ->> '$.by' <> 'apollod')"""
"""SQL: examples that are wrong since a lesson was given that stands, or that nobody took back. How well such a one was
learned says nothing."""


def gain_of(path: str, example: str) -> dict[str, Any] | None:
    """The row of the view `gains`; None: it was not scored again, or an older apollod wrote this journal last."""
    if not rows.has(path, "gains"):
        return None
    wanted = f"weak AND example NOT IN ({REPLACED}) AS weak"
    found = rows.objects(path, f"SELECT *, {wanted} FROM gains WHERE example = '{example}'")
    return {**found[0], "weak": bool(found[0]["weak"])} if found else None


def told(gain: Mapping[str, Any], targets: int | None) -> str:
    """A gain for people. `targets`: tokens of the example that are learned."""
    later = gain["weights_version"] - gain["step"]
    when = f"{later} step{'s' if later > 1 else ''} later" if later else "right after its step"
    of = f"{gain['tokens']} of {targets or gain['tokens']} tokens"
    weak = "; it hardly moved: given again, it is taught again" if gain["weak"] else ""
    return f"loss {gain['before']:.2f} -> {gain['after']:.2f} nats a token ({of}), scored {when}{weak}"


def totals(path: str) -> dict[str, Any] | None:
    """Figures of all examples that were scored again: how many, their mean losses before and after, and how many
    were learned weakly; None: none was."""
    if not rows.has(path, "gains"):
        return None
    means = "count(*) AS scored, avg(before) AS before, avg(after) AS after, sum(weak) AS weak"
    sql = f"SELECT {means} FROM gains WHERE example NOT IN ({REPLACED})"
    (found,) = rows.objects(path, sql)
    return found if found["scored"] else None


def told_totals(found: Mapping[str, Any]) -> str:
    """The same for people."""
    gain = f"loss {found['before']:.2f} -> {found['after']:.2f} nats a token on average"
    return f"of {found['scored']:,} scored again, {gain}; {found['weak']:,} hardly moved"
