"""Renders the report as one HTML page that can be sent on: no script, no external resource. Pure.

Everything from outside (names of patterns and metrics, paths, reasons) goes through `escape`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape as _escape
from typing import Any

from apollod.cli import render
from apollod.cli.control.quality import svg
from apollod.cli.control.quality.learned_page import untold
from apollod.cli.control.quality.report_style import CSS
from apollod.cli.control.quality.stories import story
from apollod.cli.control.questions import gain_facts

Object = Mapping[str, Any]
INCIDENTS_SHOWN = 20


def escape(value: object) -> str:
    """Text from outside, for between tags and in quoted attributes."""
    return _escape(render.plain(str(value)))


def page(report: Object, searches: Mapping[int, Object], written: str) -> str:
    """`report`: as `--json` has it; `searches` and `written`: see `learned_facts`."""
    sections = [_state(report), _learned(report), _metrics(report), _incidents(report, searches), _spent(report)]
    as_of = f"As of {escape(written)} UTC." if written else "The journal is empty."
    return "\n".join(
        (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1"><title>apollod: quality</title>',
            f"<style>{CSS}</style></head><body>",
            "<header><h1>Quality of the model</h1>",
            f'<p class="soft">{as_of} {_every(report)}</p></header><main>',
            *sections,
            '</main><footer class="soft">Written by <code>apollod ctl quality report --html</code> from the journal.'
            "</footer></body></html>\n",
        )
    )


def _every(report: Object) -> str:
    return f"Measured every {report['every_steps']} steps." if report["enabled"] else "Measured only when asked for."


def _state(report: Object) -> str:
    kind, head, more = well(report)
    return f'<section id="well"><h2>Is it well?</h2><p class="state {kind}"><b>{head}</b> {_prose(more)}</p></section>'


def well(report: Object) -> tuple[str, str, str]:
    """good, bad or warn; the answer; and what it rests on."""
    unsettled = next((one for one in report["incidents"] if one["state"] != "settled"), None)
    if unsettled is not None:
        worse = ", ".join(unsettled["metrics"])
        return "bad", "No.", f"Alarm {unsettled['incident']} is not settled: at step {unsettled['step']} {worse} fell."
    if report["baseline_step"] is None:
        return "warn", "Nobody knows yet.", "There is no baseline to compare with: `apollod ctl quality baseline`."
    looks = [one for one in report["looks"] if one["why"] != "baseline"]
    if not looks:
        return (
            "warn",
            "Nobody knows yet.",
            f"Nothing was measured since the baseline at step {report['baseline_step']}.",
        )
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


def _learned(report: Object) -> str:
    learned = report["learned"]
    tiers = [(t["tier"], t["examples"], t["steps"], t["tokens"], _seconds(t["seconds"])) for t in learned["tiers"]]
    body = table(("tier", "examples", "steps", "tokens", "time"), tiers) if tiers else "<p>Nothing yet.</p>"
    known = learned["known"]
    were = "examples were" if known > 1 else "example was"
    body += f'<p class="note">{known:,} {were} known already and wrote nothing.</p>' if known else ""
    if gains := report["gains"]:
        body += f'<p class="note">{gain_facts.told_totals(gains).capitalize()}.</p>'
    patterns = "".join(_pattern(one) for one in learned["patterns"])
    many = f'<h3>Patterns, untold</h3><div class="many">{patterns}</div>' if patterns else ""
    return (
        '<section id="learned"><h2>What did it learn?</h2>'
        f"{body}{many}<h3>Does it say so without being told?</h3>{_divergence(report['divergence'])}</section>"
    )


def _pattern(one: Object) -> str:
    rates = f"{_rate(one['before'])} before, {_rate(one['after'])} after"
    return (
        f"<figure><h3>{escape(one['pattern'])}</h3>{svg.interval(one['before'], one['after'], str(one['pattern']))}"
        f"<figcaption>{escape(one['state'])}. {rates}; 95 % intervals. {one['practices']:,} practices, "
        f"{one['dreams']:,} dreams, {one['tokens']:,} tokens.</figcaption></figure>"
    )


def _rate(rate: Object | None) -> str:
    return f"{rate['passed']} of {rate['of']}" if rate is not None else "not tested"


def _divergence(found: Object) -> str:
    before, after = found["before"], found["after"]
    if before is None and after is None:
        return "<p>No learned example has a score.</p>"
    rows = [(label, one["examples"], *(svg.figure(one[name]) for name in ("told", "untold", "divergence")))
            for label, one in (("before", before), ("after", after)) if one is not None]  # fmt: skip
    told = (
        f"Untold, {escape(untold(found))}."
        if found["both"]
        else "Examples are scored while they wait to be learned, and once more when nothing waits; none was yet."
    )
    head = table(("learning", "examples", "told", "untold", "difference"), rows)
    tiers = "".join(
        f"<br>{escape(one['tier'])}: {escape(untold(one))}." for one in found["tiers"] if len(found["tiers"]) > 1
    )
    return f'{head}<p class="note">Mean log-probability a token of the answer. {told}{tiers}</p>'


def _metrics(report: Object) -> str:
    rows = {m["metric"]: m for m in report["metrics"]}
    drawn = [one for one in report["series"] if one["points"]]
    ordered = sorted(drawn, key=lambda one: _rank(rows[one["metric"]], one))
    charts = "".join(_chart(one, rows[one["metric"]]) for one in ordered)
    body = (
        '<p class="note">Dashed: the baseline. Shaded: the margin, within which no alarm is raised. Hollow: steps that '
        f'were taken back.</p><div class="many">{charts}</div>'
        if charts
        else "<p>Nothing was measured yet.</p>"
    )
    return f'<section id="worse"><h2>Did it get worse?</h2>{body}</section>'


def _rank(m: Object, one: Object) -> tuple[bool, bool, float, str]:
    """What alarmed first, then by how much of its margin it fell; what raises no alarm last."""
    alarmed = any(p["incident"] is not None for p in one["points"])
    fallen = (m["drop"] or 0.0) / m["margin"] if m["margin"] else 0.0
    return not alarmed, m["margin"] is None, -fallen, m["metric"]


def _chart(one: Object, m: Object) -> str:
    now = f", now {svg.figure(m['now'])}" if m["now"] is not None else ""
    drop = f"; {_drop(m['drop'])} (95 %: {m['low']:+.3g} to {m['high']:+.3g})" if m["low"] is not None else ""
    nothing = "nothing passed then, so it cannot get worse" if m["metric"].endswith(".passed") else "raises no alarm"
    margin = f"margin {svg.figure(m['margin'])}" if m["margin"] is not None else nothing
    kind = ' class="worse"' if _beyond(m) else ""
    return (
        f"<figure{kind}><h3>{escape(m['metric'])}</h3>{svg.chart(one)}"
        f"<figcaption>Baseline {svg.figure(m['baseline'])}{now}{drop}; {margin}. {m['items']:,} items.</figcaption>"
        "</figure>"
    )


def _drop(drop: float) -> str:
    """In the metric's unit; whichever way is worse."""
    return "no drop" if abs(drop) < 1e-9 else f"{'worse' if drop > 0 else 'better'} by {abs(drop):.3g}"


def _incidents(report: Object, searches: Mapping[int, Object]) -> str:
    newest = report["incidents"][::-1]
    told = "".join(
        f"<article><h3>{escape(head)}</h3>{_paragraphs(lines)}</article>"
        for head, lines in (story(one, searches.get(one["incident"])) for one in newest[:INCIDENTS_SHOWN])
    )
    more = len(newest) - INCIDENTS_SHOWN
    rest = f'<p class="note">{more} more: <code>apollod ctl quality incident list</code>.</p>' if more > 0 else ""
    return f'<section id="incidents"><h2>Incidents</h2>{told or "<p>None.</p>"}{rest}</section>'


def _paragraphs(lines: Iterable[str | Sequence[str]]) -> str:
    return "".join(
        f"<p>{_prose(one)}</p>"
        if isinstance(one, str)
        else f"<ul>{''.join(f'<li><code>{escape(item)}</code></li>' for item in one)}</ul>"
        for one in lines
    )


def _spent(report: Object) -> str:
    spent = [one for one in report["spent"] if one["count"]]
    rows = [(s["what"], s["count"], _seconds(s["seconds"]), "" if s["tokens"] is None else s["tokens"]) for s in spent]
    body = table(("", "times", "time", "tokens"), rows) if rows else "<p>Nothing yet.</p>"
    note = '<p class="note">Time from beginning to end of each; the joules it took are not recorded.</p>'
    return f'<section id="spent"><h2>What did it cost?</h2>{body}{note}</section>'


def _prose(text: str) -> str:
    """Commands stand between backticks, as in a terminal."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else render.duration(seconds)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Numbers with thousands."""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in columns)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return f"<td>{value:,}</td>" if isinstance(value, int) else f"<td>{escape(value)}</td>"
