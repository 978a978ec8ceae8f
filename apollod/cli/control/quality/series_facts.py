"""Each metric over the looks, as a chart needs it. Reads only."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from apollod.adapters.journal.journal_reader import stream
from apollod.core.quality.baseline import Baseline, drops
from apollod.core.quality.looking import worse

POINTS_MAX = 500
"""of a metric; a chart has fewer columns"""
SECONDS = 60.0
Object = dict[str, Any]
_LOOKS = (
    "SELECT kind, body FROM events WHERE kind IN ('quality.measured', 'quality.alarmed', 'rollback.started') "
    "ORDER BY seq"
)


def series(path: str, metrics: Sequence[Object], baselines: Mapping[str, Baseline]) -> list[Object]:
    """One a metric, in the order of `metrics` (rows of the report). `points`: one a look, in the order of time, with

    - `value`: the baseline's mean, worse by the mean drop of the items that were asked (not all are in every look); of
      a baseline's own measurement the plain mean
    - `undone`: the step was taken back later; `incident`: its alarm, or null

    `margin`: the drop above which an alarm may be raised, or null."""
    looks = _looks(path, metrics, baselines)
    return [
        {
            "metric": m["metric"], "worse": m["worse"], "baseline": m["baseline"], "margin": m["margin"],
            "points": thinned([one for one in looks if one["values"].get(m["metric"]) is not None], m["metric"]),
        }
        for m in metrics
    ]  # fmt: skip


def _looks(path: str, metrics: Sequence[Object], baselines: Mapping[str, Baseline]) -> list[Object]:
    scales = {m["metric"]: _scale(m) for m in metrics}
    found = list[Object]()
    for kind, text in stream(path, _LOOKS, SECONDS):
        body = json.loads(text)
        if kind == "quality.measured" and "figures" in body:
            values = {
                name: _value(name, body["figures"][name], baselines[name], scale, body["why"] == "baseline")
                for name, scale in scales.items()
                if name in body["figures"]
            }
            found.append({"step": body["step"], "values": values, "undone": False, "alarm": None, "metrics": ()})
        elif kind == "quality.alarmed" and found and "incident" in body:
            found[-1] |= {"alarm": body["incident"], "metrics": tuple(body["metrics"])}
        elif kind == "rollback.started":
            gone = set(body["undone"])
            for one in found:
                one["undone"] = one["undone"] or one["step"] in gone
    return found


def _scale(metric: Object) -> float:
    """What an item without a figure counts as; see `core.quality.looking.begun`."""
    return 1.0 if metric["metric"].endswith(".passed") or not metric["margin"] else 10 * float(metric["margin"])


def _value(name: str, figures: Mapping[str, float | None], before: Baseline, scale: float, plain: bool) -> float | None:
    if plain:
        known = [one for item, one in figures.items() if one is not None and item in before.figures]
        return sum(known) / len(known) if known else None
    fell = drops(before, figures, worse(name), scale)
    mean = sum(before.figures.values()) / len(before.figures)
    drop = sum(fell) / len(fell) if fell else None
    return None if drop is None else mean - drop if worse(name) == "lower" else mean + drop


def thinned(looks: Sequence[Object], metric: str) -> list[Object]:
    """At most POINTS_MAX: evenly over the looks, with the last one, and every alarm of this metric that finds room."""
    points = [
        {
            "step": one["step"], "value": one["values"][metric], "undone": one["undone"],
            "incident": one["alarm"] if metric in one["metrics"] else None,
        }
        for one in looks
    ]  # fmt: skip
    if len(points) <= POINTS_MAX:
        return points
    alarms = [n for n, one in enumerate(points) if one["incident"] is not None][-(POINTS_MAX // 2) :]
    room = POINTS_MAX - len(alarms)
    even = (round(n * (len(points) - 1) / (room - 1)) for n in range(room))
    return [points[n] for n in sorted({*alarms, *even})]
