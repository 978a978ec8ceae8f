"""The report as one HTML page that can be sent on: no script, no external resource. Pure.

Everything from outside (names of patterns and metrics, paths, reasons) goes through `escape`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape as _escape
from typing import Any

from apollod.cli import render
from apollod.cli.control.quality import learned_facts, svg
from apollod.cli.control.quality.learned_facts import untold

Object = Mapping[str, Any]
INCIDENTS_SHOWN = 20


def escape(value: object) -> str:
    """Escape text from outside, for use between tags and in quoted attributes."""
    return _escape(render.plain(str(value)))


def page(report: Object, incidents: Sequence[Object], written: str) -> str:
    """`report`: as `--json` has it; `incidents`: as `incident list --json` has them; `written`: see `learned_facts`."""
    sections = [_state(report), _learned(report), _metrics(report), _incidents(incidents), _spent(report)]
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


def _learned(report: Object) -> str:
    learned = report["learned"]
    tiers = [(t["tier"], t["examples"], t["steps"], t["tokens"], _seconds(t["seconds"])) for t in learned["tiers"]]
    body = _table(("tier", "examples", "steps", "tokens", "time"), tiers) if tiers else "<p>Nothing yet.</p>"
    known = learned["known"]
    were = "examples were" if known > 1 else "example was"
    body += f'<p class="note">{known:,} {were} known already and wrote nothing.</p>' if known else ""
    if gains := report["gains"]:
        body += f'<p class="note">{learned_facts.told_totals(gains).capitalize()}.</p>'
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
    head = _table(("learning", "examples", "told", "untold", "difference"), rows)
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
    """Sort key: metrics that alarmed first, then by drop in margins; those that raise no alarm last."""
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
    """A drop in the metric's unit; positive is worse."""
    return "no drop" if abs(drop) < 1e-9 else f"{'worse' if drop > 0 else 'better'} by {abs(drop):.3g}"


def _incidents(newest: Sequence[Object]) -> str:
    told = "".join(
        f"<article><h3>{escape(head)}</h3>{_paragraphs(lines)}</article>"
        for head, lines in map(_story, newest[:INCIDENTS_SHOWN])
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
    body = _table(("", "times", "time", "tokens"), rows) if rows else "<p>Nothing yet.</p>"
    note = '<p class="note">Time from beginning to end of each; the joules it took are not recorded.</p>'
    return f'<section id="spent"><h2>What did it cost?</h2>{body}{note}</section>'


def _prose(text: str) -> str:
    """Text with commands in backticks, as in a terminal."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else render.duration(seconds)


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; numbers have separators of thousands."""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in columns)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return f"<td>{value:,}</td>" if isinstance(value, int) else f"<td>{escape(value)}</td>"


Told = list[str | Sequence[str]]
"""Sentences, and lists of places."""
PLACES_SHOWN = 20
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


def _story(incident: Object) -> tuple[str, Told]:
    """Heading and sentences of an incident, not escaped yet."""
    head = f"Alarm {incident['incident']} at step {incident['step']}, {incident['state']}"
    lines: Told = [f"{incident['at'][:16].replace('T', ' ')} UTC: {_worse(incident)}", _taken_back(incident)]
    if incident["verdict"] is not None:
        lines += _search(incident)
    settled = incident["settled"]
    if settled is not None:
        lines.append(f"Settled by {settled['by']}: {settled['how']}.")
    elif incident["refused"]:
        lines.append(f"Not settled; there is no way back: {incident['refused']}")
    else:
        lines.append("Not settled yet.")
    return head, [one for one in lines if one]


def _worse(incident: Object) -> str:
    fell = []
    for name in incident["metrics"]:
        drop = incident["drops"].get(name)
        by = "" if drop is None else f" by {drop['drop']:.3g} ({drop['low']:.3g} to {drop['high']:.3g})"
        fell.append(f"{name}{by}")
    return f"worse than the baseline: {', '.join(fell)}."


def _taken_back(incident: Object) -> str:
    steps, examples, back = len(incident["undone"]), len(incident["examples"]), incident["rolled_back"]
    took = "" if back is None else f", from {back['how']}, in {back['seconds']:.1f} s"
    if not steps:
        return "No step was taken back."
    return (
        f"{steps} step{'s' if steps > 1 else ''} with {examples} example{'s' if examples != 1 else ''} were taken back "
        f"to step {incident['to']}{took}."
    )


def _search(incident: Object) -> Told:
    said = _VERDICTS.get(incident["verdict"], str(incident["verdict"]))
    replays = f", in {len(incident['searched'])} replays" if incident["searched"] else ""
    why = f": {incident['reason']}" if incident["reason"] else ""
    lines: Told = [f"{said}{replays}{why}."]
    if incident["culprits"]:
        lines += ["Held, since they did it:", _places(incident["culprits"])]
    if incident["suspects"]:
        lines += ["Held, since they may have done it:", _places(incident["suspects"])]
    return lines


def _places(examples: Sequence[Object]) -> list[str]:
    return render.first([_place(one) for one in examples], PLACES_SHOWN, "and {} more")


def _place(example: Object) -> str:
    line = f":{example['line']}" if example["line"] else ""
    return f"{example['path']}{line}" if example["path"] else str(example["example"])


CSS = """
:root{color-scheme:light dark;--page:#fcfcfb;--card:#ffffff;--ink:#1b1c1e;--soft:#5c6066;--rule:#dcdee1;--line:#1f63c4;
--band:#1f63c41f;--alarm:#b3261e;--good:#1d7440;--warn:#8a5a00}
@media (prefers-color-scheme:dark){:root{--page:#141517;--card:#1d1f22;--ink:#eceef0;--soft:#a3a8af;--rule:#373b40;
--line:#82b1ff;--band:#82b1ff29;--alarm:#ff8f86;--good:#7dd19a;--warn:#f0c060}}
*{box-sizing:border-box}
body{margin:0 auto;padding:16px;max-width:1120px;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;line-height:1.25;margin:8px 0 4px}
h2{font-size:1.15rem;margin:36px 0 8px;padding-top:12px;border-top:1px solid var(--rule)}
h3{font-size:1rem;margin:0 0 4px}section>h3{margin:22px 0 8px}
p{margin:4px 0 10px;max-width:70ch}
.soft,figcaption,.note{color:var(--soft);font-size:.875rem}
.state{font-size:1.05rem;border-left:5px solid var(--soft);padding:8px 12px;background:var(--card);margin:12px 0}
.state.good{border-color:var(--good)}.state.bad{border-color:var(--alarm)}.state.warn{border-color:var(--warn)}
.state b{display:block}
.good b{color:var(--good)}.bad b{color:var(--alarm)}.warn b{color:var(--warn)}
.many{display:grid;gap:12px;grid-template-columns:repeat(auto-fill,minmax(min(100%,310px),1fr))}
figure,article{margin:0;padding:12px;background:var(--card);border:1px solid var(--rule);border-radius:8px;min-width:0}
article{margin-bottom:12px}article p:last-child{margin-bottom:0}
figure.worse{border-color:var(--alarm)}
ul{margin:4px 0 10px;padding-left:20px}
code{font:.875em ui-monospace,Menlo,Consolas,monospace}
table{border-collapse:collapse;width:100%;max-width:560px;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:5px 4px;border-bottom:1px solid var(--rule);text-align:right;font-weight:400;vertical-align:top}
th:first-child,td:first-child{text-align:left;padding-left:0}
thead th{color:var(--soft);font-size:.8rem}
thead th,td:not(:first-child){overflow-wrap:normal}
svg{display:block;width:100%;height:auto;margin:6px 0;max-width:420px}
svg text{font-size:11px;fill:var(--soft)}
svg .end{text-anchor:end}svg .mid{text-anchor:middle}
.grid{stroke:var(--rule);stroke-width:1}.base{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:5 3}
.band{fill:var(--band)}.line{fill:none;stroke:var(--line);stroke-width:2;stroke-linejoin:round}
.point{fill:var(--line);stroke:var(--card);stroke-width:1}.undone{fill:var(--card);stroke:var(--line);stroke-width:1.5}
.alarm{fill:var(--alarm)}svg .alarmed{fill:var(--alarm);font-weight:600}
.reach{stroke:var(--line);stroke-width:3;stroke-linecap:round}.before .reach{stroke:var(--soft)}
.before .point{fill:var(--soft)}
footer{margin-top:36px;padding-top:12px;border-top:1px solid var(--rule)}
"""
