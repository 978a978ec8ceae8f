"""The report as one HTML page that can be sent on: no script, no external resource. Pure.

Words and layout are in the template, `data/quality_report.html`; here is what it needs worked out: the state of the
model, the coordinates of charts, the form of figures. Everything that the template prints is escaped, and made safe for
a terminal.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from apollod.cli import render
from apollod.cli.control.quality import learned_facts

Object = Mapping[str, Any]
INCIDENTS_SHOWN = PLACES_SHOWN = 20
_VERDICTS = {
    "named": "The examples that did it were found",
    "elsewhere": "It came from elsewhere than the examples of these steps",
    "not_repeated": "It did not come again when the steps were repeated",
    "spread": "No few examples did it by themselves",
    "rate": "No few examples did it by themselves, and at a lower learning rate they do no harm",
    "ranked": "No replay could be run, so the examples were ranked by how far a step of each moves the probes",
    "unfinished": "The search ended before it was found out who did it",
    "not_searched": "It was not looked for who did it",
}


def page(report: Object, incidents: Sequence[Object], written: str) -> str:
    """`report`: as `--json` has it; `incidents`: as `incident list --json` has them; `written`: see `learned_facts`."""
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, finalize=_plain
    )
    environment.filters |= _FILTERS
    template = environment.from_string((files("apollod") / "data" / "quality_report.html").read_text(encoding="utf-8"))
    kind, answer, grounds = well(report)
    text = template.render(
        report=report, incidents=incidents, written=written, charts=_charts(report), rewards=_rewards(report),
        verdicts=_VERDICTS, well={"kind": kind, "answer": answer, "grounds": grounds}, shown=INCIDENTS_SHOWN,
    )  # fmt: skip
    return f"{text.lstrip()}\n"


def well(report: Object) -> tuple[str, str, str]:
    """good, bad or warn; the answer; and its grounds."""
    unsettled = next((one for one in report["incidents"] if one["state"] != "settled"), None)
    if unsettled is not None:
        worse = ", ".join(unsettled["metrics"])
        return "bad", "No.", f"Alarm {unsettled['incident']} is not settled: at step {unsettled['step']} {worse} fell."
    if report["baseline_step"] is None:
        return "warn", "Nobody knows yet.", "There is no baseline to compare with: `apollod ctl quality baseline`."
    looks = [one for one in report["looks"] if one["why"] != "baseline"]
    if not looks:
        told = f"Nothing was measured since the baseline at step {report['baseline_step']}."
        return "warn", "Nobody knows yet.", told
    last, past = looks[-1], len(report["incidents"])
    if last["outcome"] == "failed":
        return "warn", "Nobody knows.", f"The last measurement failed: {last['reason']}"
    beyond = [m["metric"] for m in report["metrics"] if _beyond(m)]
    ended = f" {past} alarm{'s' if past > 1 else ''} came before, and {'all are' if past > 1 else 'is'} settled."
    tail = ended if past else ""
    if last["outcome"] == "alarm":
        return "warn", "It was put back.", f"Nothing was measured since the alarm at step {last['step']}.{tail}"
    if beyond:
        told = f"At step {last['step']} {', '.join(beyond)} fell by more than the margin; that alone is no alarm yet."
        return "warn", "Perhaps.", told + tail
    return "good", "Yes.", f"At step {last['step']} nothing had fallen by more than its margin.{tail}"


def _beyond(m: Object) -> bool:
    return m["margin"] is not None and m["drop"] is not None and m["drop"] > m["margin"]


# --- charts -------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 320, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 310, 16, 128
"""Edges of the part in which points are."""
_PAD = 0.12
"""of the range of values, above and below"""
_FLAT = 0.05
"""range that is shown of values that are all the same, of their size"""


def _charts(report: Object) -> list[Object]:
    """Charts of all metrics that were measured, in the order of the page."""
    metrics = {m["metric"]: m for m in report["metrics"]}
    drawn = [one for one in report["series"] if one["points"]]
    ordered = sorted(drawn, key=lambda one: _rank(metrics[one["metric"]], one))
    return [{**_chart(one), "metric": (m := metrics[one["metric"]]), "beyond": _beyond(m)} for one in ordered]


def _rewards(report: Object) -> list[Object]:
    """The curves of rewards, each with its chart."""
    return [{**one, "chart": _chart(_rewarded(one))} for one in report["rewards"]]


def _rewarded(curve: Object) -> Object:
    """Mean rewards as a metric over steps, with the first one as its baseline."""
    points = [{"step": p["step"], "value": p["reward"], "undone": False, "incident": None} for p in curve["points"]]
    name = f"mean reward of {curve['environment']}"
    return {"metric": name, "points": points, "baseline": points[0]["value"], "margin": None, "worse": "lower"}


def _rank(m: Object, one: Object) -> tuple[bool, bool, float, str]:
    """Sort key: metrics that alarmed first, then by drop in margins; those that raise no alarm last."""
    alarmed = any(p["incident"] is not None for p in one["points"])
    fallen = (m["drop"] or 0.0) / m["margin"] if m["margin"] else 0.0
    return not alarmed, m["margin"] is None, -fallen, m["metric"]


def _chart(series: Object) -> dict[str, Any]:
    """Coordinates of one metric over steps: `before` of the baseline, `band` of the margin, and points."""
    points, baseline, margin = series["points"], series["baseline"], series["margin"]
    bound = None if margin is None else baseline + (-margin if series["worse"] == "lower" else margin)
    low, high = _range(series, bound)
    first, last = min(p["step"] for p in points), max(p["step"] for p in points)

    def x(step: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * ((step - first) / (last - first) if last > first else 0.5)

    def y(value: float) -> float:
        return _TOP + (_BOTTOM - _TOP) * (high - min(high, max(low, value))) / (high - low)

    band = None
    if bound is not None:
        top, bottom = sorted((y(baseline), y(bound)))
        band = {"top": top, "height": bottom - top, "margin": margin}
    alarms = [str(p["incident"]) for p in points if p["incident"] is not None]
    told = f"{series['metric']} from step {first} to {last}: baseline {figure(baseline)}, "
    told += f"last {figure(points[-1]['value'])}" + (f", alarms {', '.join(alarms)}" if alarms else "")
    return {
        "told": told, "width": WIDTH, "height": HEIGHT, "left": _LEFT, "right": _RIGHT, "first": first, "last": last,
        "baseline": baseline, "before": y(baseline), "band": band, "size": 3.5 if len(points) <= 40 else 1.8,
        "ticks": [{"y": y(value), "value": value} for value in ticks(low, high)],
        "points": [{**p, "x": x(p["step"]), "y": y(p["value"])} for p in points],
    }  # fmt: skip


def _range(series: Object, bound: float | None) -> tuple[float, float]:
    """Range of the vertical axis: all points, the baseline and the band. Rates stay within 0 and 1."""
    values = [series["baseline"], *(p["value"] for p in series["points"]), *([] if bound is None else [bound])]
    low, high = min(values), max(values)
    spread = (high - low) or abs(high) * _FLAT or _FLAT
    low, high = low - _PAD * spread, high + _PAD * spread
    return (max(0.0, low), min(1.0, high)) if series["metric"].endswith(".passed") else (low, high)


def ticks(low: float, high: float) -> list[float]:
    """Two to five round numbers from low to high."""
    unit = 10.0 ** math.floor(math.log10(high - low))
    step = next(one for one in (unit * 2, unit, unit / 2, unit / 5) if (high - low) / one >= 2)
    return [n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


# --- figures and texts --------------------------------------------------------------------------------------------


def _plain(value: object) -> object:
    return render.plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def figure(value: float) -> str:
    """A short number."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _drop(drop: float) -> str:
    """A drop in the metric's unit; positive is worse."""
    return "no drop" if abs(drop) < 1e-9 else f"{'worse' if drop > 0 else 'better'} by {abs(drop):.3g}"


def _prose(text: object) -> Markup:
    """Text with commands in backticks, as in a terminal."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(_plain(text)))))


def _places(examples: Sequence[Object]) -> list[str]:
    return render.first([_place(one) for one in examples], PLACES_SHOWN, "and {} more")


def _place(example: Object) -> str:
    line = f":{example['line']}" if example["line"] else ""
    return f"{example['path']}{line}" if example["path"] else str(example["example"])


def _counted(things: Sized, noun: str) -> str:
    return render.counted(len(things), noun)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else render.duration(seconds)


_FILTERS: Mapping[str, Callable[..., object]] = {
    "counted": _counted, "drop": _drop, "figure": figure, "number": "{:,}".format, "places": _places, "prose": _prose,
    "px": "{:.1f}".format, "seconds": _seconds, "share": "{:.0%}".format, "totals": learned_facts.told_totals,
    "untold": learned_facts.untold, "rewarded": learned_facts.rewarded, "compared": learned_facts.compared,
}  # fmt: skip
"""Filters of the template."""
