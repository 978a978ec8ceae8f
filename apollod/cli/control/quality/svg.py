"""Charts as inline SVG for a page without scripts: colours and sizes of text are of the page's style. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

Object = Mapping[str, Any]
Place = Callable[[float], float]
"""value -> coordinate"""
WIDTH, HEIGHT = 320, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 16, 22
_PAD = 0.12
"""of the range of values, above and below"""
_FLAT = 0.05
"""range that is shown of values that are all the same, of their size"""


def figure(value: float) -> str:
    """A short number."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def chart(series: Object) -> str:
    """One metric over steps: its points, the baseline as a line, the margin as a band, and alarms. Hollow points are of
    steps that were taken back."""
    points, name = series["points"], series["metric"]
    low, high = _range(series)
    first, last = min(p["step"] for p in points), max(p["step"] for p in points)

    def x(step: int) -> float:
        inner = WIDTH - _LEFT - _RIGHT
        return _LEFT + inner * ((step - first) / (last - first) if last > first else 0.5)

    def y(value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (high - min(high, max(low, value))) / (high - low)

    parts = [*_band(series, y), *_frame(low, high, first, last, x, y)]
    before = y(series["baseline"])
    parts.append(
        f'<line class="base" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{before:.1f}" y2="{before:.1f}">'
        f"<title>baseline {figure(series['baseline'])}</title></line>"
    )
    kept = [p for p in points if not p["undone"]]
    line = " ".join(f"{x(p['step']):.1f},{y(p['value']):.1f}" for p in kept)
    parts.append(f'<polyline class="line" points="{line}"/>')
    size = 3.5 if len(points) <= 40 else 1.8
    parts += [_point(p, x(p["step"]), y(p["value"]), size) for p in points]
    alarms = [p["incident"] for p in points if p["incident"] is not None]
    told = f"{name} from step {first} to {last}: baseline {figure(series['baseline'])}, "
    told += f"last {figure(points[-1]['value'])}" + (f", alarms {', '.join(map(str, alarms))}" if alarms else "")
    return _svg(told, HEIGHT, parts)


def _range(series: Object) -> tuple[float, float]:
    """Range of the vertical axis: all points, the baseline and the band. Rates stay within 0 and 1."""
    values = [series["baseline"], *(p["value"] for p in series["points"])]
    low, high = min(values), max(values)
    if series["margin"] is not None:
        bound = series["baseline"] + (-1 if series["worse"] == "lower" else 1) * series["margin"]
        low, high = min(low, bound), max(high, bound)
    spread = (high - low) or abs(high) * _FLAT or _FLAT
    low, high = low - _PAD * spread, high + _PAD * spread
    if series["metric"].endswith(".passed"):
        low, high = max(0.0, low), min(1.0, high)
    return low, high


def _band(series: Object, y: Place) -> list[str]:
    if series["margin"] is None:
        return []
    bound = series["baseline"] + (-1 if series["worse"] == "lower" else 1) * series["margin"]
    top, bottom = sorted((y(series["baseline"]), y(bound)))
    return [
        f'<rect class="band" x="{_LEFT}" y="{top:.1f}" width="{WIDTH - _LEFT - _RIGHT}" height="{bottom - top:.1f}">'
        f"<title>margin {figure(series['margin'])}: no alarm between here and the baseline</title></rect>"
    ]


def _frame(low: float, high: float, first: int, last: int, x: Callable[[int], float], y: Place) -> list[str]:
    marks = [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text class="end" x="{_LEFT - 6}" y="{y(v) + 4:.1f}">{figure(v)}</text>'
        for v in ticks(low, high)
    ]
    bottom = HEIGHT - 6
    if first == last:
        return [*marks, f'<text class="mid" x="{x(first):.1f}" y="{bottom}">step {first}</text>']
    return [
        *marks,
        f'<text x="{_LEFT}" y="{bottom}">step {first}</text>',
        f'<text class="end" x="{WIDTH - _RIGHT}" y="{bottom}">{last}</text>',
    ]


def ticks(low: float, high: float) -> list[float]:
    """Two to five round numbers from low to high."""
    unit = 10.0 ** math.floor(math.log10(high - low))
    step = next(one for one in (unit * 2, unit, unit / 2, unit / 5) if (high - low) / one >= 2)
    return [n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _point(point: Object, x: float, y: float, size: float) -> str:
    told = f"step {point['step']}: {figure(point['value'])}" + (", taken back" if point["undone"] else "")
    kind = "point undone" if point["undone"] else "point"
    dot = f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"><title>{told}</title></circle>'
    if point["incident"] is None:
        return dot
    down = y < HEIGHT / 2
    tip, wide = (y + 6, y + 15) if down else (y - 6, y - 15)
    side = "end" if x > WIDTH / 2 else ""
    return (
        f'{dot}<path class="alarm" d="M{x:.1f} {tip:.1f}L{x - 6:.1f} {wide:.1f}L{x + 6:.1f} {wide:.1f}Z">'
        f"<title>alarm {point['incident']} at step {point['step']}</title></path>"
        f'<text class="alarmed {side}" x="{x + (-9 if side else 9):.1f}" y="{(tip + wide) / 2 + 4:.1f}">'
        f"alarm {point['incident']}</text>"
    )


def interval(before: Object | None, after: Object | None, name: str) -> str:
    """Rates from 0 to 1 with their intervals, before above after."""
    left, right = 52, WIDTH - 20

    def x(rate: float) -> float:
        return left + (right - left) * rate

    rows = [("before", before, 14), ("after", after, 36)]
    parts = [f'<line class="grid" x1="{x(v):.1f}" x2="{x(v):.1f}" y1="4" y2="46"/>' for v in (0, 0.5, 1)]
    parts += [f'<text class="mid" x="{x(v):.1f}" y="60">{v:.0%}</text>' for v in (0, 0.5, 1)]
    for label, rate, y in rows:
        parts.append(f'<text x="0" y="{y + 4}">{label}</text>')
        if rate is None:
            parts.append(f'<text x="{left + 6}" y="{y + 4}">not tested yet</text>')
            continue
        low, high, mean = x(rate["low"]), x(rate["high"]), x(rate["passed"] / rate["of"])
        parts.append(
            f'<g class="{label}"><title>{label}: {rate["passed"]} of {rate["of"]}, {rate["low"]:.0%} to '
            f'{rate["high"]:.0%}</title><line class="reach" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>'
            f'<circle class="point" cx="{mean:.1f}" cy="{y}" r="5"/></g>'
        )
    return _svg(f"{name}: share of tests passed without being told, before and after", 64, parts)


def _svg(label: str, height: int, parts: Sequence[str]) -> str:
    told = escape(label)
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{told}"><title>{told}</title>'
    return f"{head}{''.join(parts)}</svg>"
