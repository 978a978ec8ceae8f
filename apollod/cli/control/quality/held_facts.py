"""Figures of the anchors: how many steps hold, and how far the model moved from them, which each step measures."""

from collections.abc import Mapping
from typing import Any

from apollod.cli.control.questions import rows

STEPS = 200
"""the last ones, of which it is told"""
_FROZEN = "SELECT count(*) FROM events WHERE kind = 'anchor.frozen'"
_RETIRED = "SELECT count(*) FROM events, json_each(body, '$.anchors') WHERE kind = 'anchor.retired'"
_MOVED = f"""
SELECT count(DISTINCT done.seq), avg(held.value), max(held.value)
FROM (SELECT seq, body FROM events WHERE kind = 'step.completed' ORDER BY seq DESC LIMIT {STEPS}) AS done,
     json_each(done.body, '$.held') AS held
"""


def held(path: str) -> dict[str, Any]:
    """The figures of the anchors. `anchors`: answers that are held; `steps`: of the last STEPS those that held any;
    `moved`, `moved_max`: mean and largest divergence (KL) from them, nats a token, null where nothing was held."""
    (frozen,), (retired,), (steps, moved, most) = (rows.tuples(path, sql)[0] for sql in (_FROZEN, _RETIRED, _MOVED))
    return {"anchors": max(0, frozen - retired), "steps": steps, "moved": moved, "moved_max": most}


def line(found: Mapping[str, Any]) -> list[str]:
    """The figures as a line for people; none where nothing was ever frozen."""
    if not found["anchors"] and found["moved"] is None:
        return []
    moved = "no step held one yet"
    if found["moved"] is not None:
        moved = f"the last {found['steps']} steps found the model {found['moved']:.3f} nats a token from them"
        moved += f", {found['moved_max']:.3f} at most"
    return [f"holding     {found['anchors']} answers of before; {moved}"]
