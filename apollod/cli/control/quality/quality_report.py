"""`apollod ctl quality report`: metrics against their baseline, looks, incidents, anchors, series for charts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from apollod.adapters.journal.journal_reader import stream
from apollod.cli import render
from apollod.cli.control import rows
from apollod.cli.control.quality import incident, learned_facts
from apollod.cli.control.quality.incident import GuardRecord, how
from apollod.cli.control.quality.incident_words import row
from apollod.core.facts.quality.events import NO_JUDGE, NO_ROOM, NO_VERDICT
from apollod.core.facts.quality.looking import compared_with, may_alarm, standing, worse
from apollod.core.facts.quality.sequential import Baseline, drops, interval

Object = dict[str, Any]


def metrics_of(record: GuardRecord) -> list[Object]:
    """Metrics of the baseline, by name. `now`, `drop` and its interval are null before a look, `margin` of a metric
    that raises no alarm."""
    last = record.last
    figures: Mapping[str, Mapping[str, float | None]] = (
        last.figures if last is not None and last.why != "baseline" else {}
    )
    before = compared_with(record.state.quality, figures)
    return [_metric(record, name, one, figures.get(name)) for name, one in sorted(before.items())]


def _metric(record: GuardRecord, name: str, before: Baseline, figures: Mapping[str, float | None] | None) -> Object:
    test = standing(record.state.quality, name, record.settings, before)
    row: Object = {
        "metric": name, "worse": worse(name), "baseline": _mean(before.figures), "now": None, "drop": None,
        "low": None, "high": None, "margin": test.margin if may_alarm(name, before, record.settings) else None,
        "looks": test.looks, "items": len(before.figures),
        "e_value": test.e_value,
    }  # fmt: skip
    if figures is None:
        return row
    found = drops(before, figures, worse(name), test.scale)
    low, high = interval(found, test.scale)
    measured = {item: value for item, value in figures.items() if value is not None and item in before.figures}
    dropped = sum(found) / len(found) if found else None
    return row | {"now": _mean(measured), "drop": dropped, "low": low, "high": high}


def _mean(figures: Mapping[str, float]) -> float | None:
    return sum(figures.values()) / len(figures) if figures else None


def answers(path: str, after: int) -> list[Object]:
    """Measurements, failures and alarms after an event: kind, seq and body, oldest first."""
    found = rows.tuples(
        path,
        "SELECT kind, seq, body FROM events WHERE kind IN ('quality.measured', 'quality.failed', 'quality.alarmed') "
        f"AND seq > {int(after)} ORDER BY seq",
    )
    return [{"kind": kind, "seq": seq, "body": json.loads(body)} for kind, seq, body in found]


_INCIDENT_FIELDS = (
    "incident", "at", "seq", "step", "to", "metrics", "drops", "state", "waits_for", "undone", "examples", "refused",
    "rolled_back", "settled",
)  # fmt: skip


def report(path: str) -> Object:
    """The report as `quality report --json` has it."""
    found = incident.read(path)
    own, metrics, incidents = found.state.quality, metrics_of(found), map(row, found.stories)
    return {
        "enabled": found.settings.every_steps > 0, "every_steps": found.settings.every_steps,
        "resume": found.settings.resume, "baseline_step": own.at if own.baseline else None, "probes": own.probes,
        "silent": {group: list(passed) for group, passed in own.silent.items()}, "holding": _held(path),
        "metrics": metrics, "looks": found.looks,
        "incidents": [{name: one[name] for name in _INCIDENT_FIELDS} for one in incidents],
        "patterns": _patterns(path), "series": _series(path, metrics, own.baseline), **learned_facts.facts(path),
    }  # fmt: skip


def _patterns(path: str) -> list[Object]:
    """Tests of the patterns: before the first practice, and of the last round."""
    if not rows.has(path, "patterns"):
        return []
    names = "name, state, held_out, baseline_bare, last_bare, baseline_contrast, last_contrast, last_round"
    return rows.objects(path, f"SELECT {names} FROM patterns ORDER BY seq")


POINTS_MAX = 500
"""Most points of a metric; a chart has fewer columns."""
_LOOKS = (
    "SELECT kind, body FROM events WHERE kind IN ('quality.measured', 'quality.alarmed', 'rollback.started') "
    "ORDER BY seq"
)


def _series(path: str, metrics: Sequence[Object], baselines: Mapping[str, Baseline]) -> list[Object]:
    """One series a metric, in the order of `metrics` (rows of the report). `points`: one a look, in the order of time,
    with

    - `value`: the baseline's mean, worse by the mean drop of the items that were asked (not all are in every look); for
      a baseline's own measurement the plain mean
    - `undone`: the step was taken back later; `incident`: its alarm, or null

    `margin`: the drop above which an alarm may be raised, or null."""
    looks = _series_looks(path, metrics, baselines)
    return [
        {
            "metric": m["metric"], "worse": m["worse"], "baseline": m["baseline"], "margin": m["margin"],
            "points": _thinned([one for one in looks if one["values"].get(m["metric"]) is not None], m["metric"]),
        }
        for m in metrics
    ]  # fmt: skip


def _series_looks(path: str, metrics: Sequence[Object], baselines: Mapping[str, Baseline]) -> list[Object]:
    scales = {m["metric"]: _scale(m) for m in metrics}
    found = list[Object]()
    for kind, text in stream(path, _LOOKS, rows.SECONDS):
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
    """Value for an item without a figure; see `core.facts.quality.looking.begun`."""
    return 1.0 if metric["metric"].endswith(".passed") or not metric["margin"] else 10 * float(metric["margin"])


def _value(name: str, figures: Mapping[str, float | None], before: Baseline, scale: float, plain: bool) -> float | None:
    if plain:
        known = [one for item, one in figures.items() if one is not None and item in before.figures]
        return sum(known) / len(known) if known else None
    fell = drops(before, figures, worse(name), scale)
    mean = sum(before.figures.values()) / len(before.figures)
    drop = sum(fell) / len(fell) if fell else None
    return None if drop is None else mean - drop if worse(name) == "lower" else mean + drop


def _thinned(looks: Sequence[Object], metric: str) -> list[Object]:
    """At most POINTS_MAX points: evenly over the looks, with the last one, and alarms of this metric that fit."""
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


STEPS = 200
"""Last steps that the figures of anchors are taken from."""
_FROZEN = "SELECT count(*) FROM events WHERE kind = 'anchor.frozen'"
_RETIRED = "SELECT count(*) FROM events, json_each(body, '$.anchors') WHERE kind = 'anchor.retired'"
_MOVED = f"""
SELECT count(DISTINCT done.seq), avg(held.value), max(held.value)
FROM (SELECT seq, body FROM events WHERE kind = 'step.completed' ORDER BY seq DESC LIMIT {STEPS}) AS done,
     json_each(done.body, '$.held') AS held
"""


def _held(path: str) -> dict[str, Any]:
    """Figures of the anchors. `anchors`: answers that are held; `steps`: number of the last STEPS that held any;
    `moved`, `moved_max`: mean and largest divergence (KL) from them, nats a token, null if nothing was held."""
    (frozen,), (retired,), (steps, moved, most) = (rows.tuples(path, sql)[0] for sql in (_FROZEN, _RETIRED, _MOVED))
    return {"anchors": max(0, frozen - retired), "steps": steps, "moved": moved, "moved_max": most}


def _held_line(found: Mapping[str, Any]) -> list[str]:
    """Figures of the anchors as a line; none if nothing was ever frozen."""
    if not found["anchors"] and found["moved"] is None:
        return []
    moved = "no step held one yet"
    if found["moved"] is not None:
        moved = f"the last {found['steps']} steps found the model {found['moved']:.3f} nats a token from them"
        moved += f", {found['moved_max']:.3f} at most"
    return [f"holding     {found['anchors']} answers of before; {moved}"]


# --- for people ---------------------------------------------------------------------------------------------------

LOOKS_SHOWN = 20
INCIDENTS_SHOWN = LEFT_OUT_SHOWN = 5
_METRICS: tuple[render.Column, ...] = (
    "metric", ("baseline", lambda m: _figure(m["baseline"])), ("now", lambda m: _figure(m["now"])),
    ("drop", lambda m: "-" if m["drop"] is None else f"{m['drop']:+.4f}"),
    ("95 % interval", lambda m: "-" if m["low"] is None else f"{m['low']:+.4f} to {m['high']:+.4f}"),
    ("margin", lambda m: _figure(m["margin"])), "looks", "items",
)  # fmt: skip
_INCIDENTS: tuple[render.Column, ...] = (
    "incident", ("at", lambda one: one["at"][:19]), "step", ("back to", "to"),
    ("metrics", lambda one: ", ".join(one["metrics"])), ("steps undone", lambda one: len(one["undone"])), "state",
    ("how", how),
)  # fmt: skip
_PATTERNS: tuple[render.Column, ...] = (
    ("pattern", "name"), "state", ("untold", lambda p: _moved(p["baseline_bare"], p["last_bare"])),
    ("where it is wrong", lambda p: _moved(p["baseline_contrast"], p["last_contrast"])), ("of", "held_out"),
)  # fmt: skip
_AFTER = {
    "auto": "the last good weights come back, and steps go on",
    "manual": "the last good weights come back, and `apollod ctl resume` goes on",
}


def page(r: Object) -> list[str]:
    """Lines of the report; only tables are made safe for a terminal."""
    every = f"every {r['every_steps']} steps" if r["enabled"] else "only on request"
    lines = [f"measured    {every}; after an alarm: {_AFTER[r['resume']]}"]
    if r["baseline_step"] is None:
        return [*lines, "baseline    none yet: `apollod ctl quality baseline` measures it", *_rest(r)]
    lines += [f"baseline    step {r['baseline_step']}", *silent(r["silent"]), *_held_line(r["holding"])]
    return [*lines, "", metrics_table(r["metrics"]), *_rest(r)]


def silent(groups: Mapping[str, Sequence[int]]) -> list[str]:
    """A line about groups of which the model passes too few for a drop to show; none without such groups."""
    named = ", ".join(f"{group} ({passed} of {of} pass)" for group, (passed, of) in groups.items())
    return [f"not asked   {named}: too hard for this model; `probe` takes easier ones"] if named else []


def _rest(r: Object) -> list[str]:
    lines: list[str] = []
    if r["looks"]:
        shown = r["looks"][-LOOKS_SHOWN:]
        lines += ["", f"looks       {len(r['looks'])}" + (f", the last {len(shown)}:" if len(shown) > 1 else ":")]
        lines += ["  " + "  ".join(_look_text(one) for one in shown[n : n + 5]) for n in range(0, len(shown), 5)]
        lines += left_out(r["looks"][-1]["left_out"])
    newest = r["incidents"][::-1][:INCIDENTS_SHOWN]
    lines += ["", render.listed(_INCIDENTS, newest) if newest else "no alarm"]
    if r["patterns"]:
        lines += ["", render.listed(_PATTERNS, r["patterns"])]
    return [*lines, *learned_facts.lines(r)]


def left_out(probes: Mapping[str, str]) -> list[str]:
    """Lines about probes that were not asked, by the example that holds them, or for want of a judge."""
    broken = [why for why in probes.values() if why.startswith(NO_VERDICT)]
    long = [why for why in probes.values() if why.startswith(NO_ROOM)]
    unjudged = sum(why == NO_JUDGE for why in probes.values())
    held = [f"  {one}: example {why}" for one, why in probes.items() if why not in (NO_JUDGE, *broken, *long)]
    head = ["not asked, since examples hold them:"] if held else []
    named = render.first(held, LEFT_OUT_SHOWN, "  and {} more")
    last = [f"not asked, since {NO_JUDGE}: {unjudged} for a judge"] if unjudged else []
    if broken:
        last += [f"without a verdict: {len(broken)} of patterns, since {broken[0].removeprefix(NO_VERDICT)}"]
    if long:
        last += [f"not asked, since {long[0].removeprefix(NO_ROOM)}: {len(long)} that are longer with an answer"]
    return [*head, *map(render.plain, [*named, *last])]


def _look_text(one: Object) -> str:
    outcome = f"alarm {one['incident']}" if one["outcome"] == "alarm" else one["outcome"]
    return f"step {one['step']} {outcome}" if one["step"] is not None else outcome


def _moved(before: int | None, last: int | None) -> str:
    return "-" if before is None else f"{before}" + (f" -> {last}" if last is not None else "")


def metrics_table(found: Sequence[Object]) -> str:
    """One a line; a drop is a change for the worse, whichever way that is."""
    return render.listed(_METRICS, found)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
