"""Quality as a person reads it: a report of one screen. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from apollod.cli import render
from apollod.cli.control.quality import held_facts, learned_page
from apollod.core.quality.events import NO_JUDGE, NO_ROOM, NO_VERDICT

Object = Mapping[str, Any]
LOOKS_SHOWN = 20
INCIDENTS_SHOWN = 5
LEFT_OUT_SHOWN = 5
_METRICS = ("metric", "baseline", "now", "drop", "95 % interval", "margin", "looks", "items")
_INCIDENTS = ("incident", "at", "step", "back to", "metrics", "steps undone", "state", "how")


def report(r: Object) -> list[str]:
    """Lines; what comes from outside is made harmless in tables only."""
    every = f"every {r['every_steps']} steps" if r["enabled"] else "only when somebody asks"
    lines = [f"measured    {every}; after an alarm: {_AFTER[r['resume']]}"]
    if r["baseline_step"] is None:
        return [*lines, "baseline    none yet: `apollod ctl quality baseline` measures it", *_rest(r)]
    lines += [f"baseline    step {r['baseline_step']}", *silent(r["silent"]), *held_facts.line(r["holding"])]
    return [*lines, "", metrics(r["metrics"]), *_rest(r)]


def silent(groups: Mapping[str, Sequence[int]]) -> list[str]:
    """A line: of which groups the model passes too few for anything to show; no line where there is none."""
    named = ", ".join(f"{group} ({passed} of {of} pass)" for group, (passed, of) in groups.items())
    return [f"not asked   {named}: too hard for this model; `probe` takes easier ones"] if named else []


_AFTER = {
    "auto": "the last good weights come back, and steps go on",
    "manual": "the last good weights come back, and `apollod ctl resume` goes on",
}


def _rest(r: Object) -> list[str]:
    lines: list[str] = []
    if r["looks"]:
        shown = r["looks"][-LOOKS_SHOWN:]
        lines += ["", f"looks       {len(r['looks'])}" + (f", the last {len(shown)}:" if len(shown) > 1 else ":")]
        lines += ["  " + "  ".join(_look(one) for one in shown[n : n + 5]) for n in range(0, len(shown), 5)]
        lines += left_out(r["looks"][-1]["left_out"])
    lines += ["", incident_table(r["incidents"][::-1][:INCIDENTS_SHOWN])] if r["incidents"] else ["", "no alarm"]
    if r["patterns"]:
        columns = ("pattern", "state", "untold", "where it is wrong", "of")
        lines += ["", render.table(columns, [_pattern(one) for one in r["patterns"]])]
    return [*lines, *learned_page.lines(r)]


def left_out(probes: Mapping[str, str]) -> list[str]:
    """Lines: what was not asked, by the example that holds it, or for want of a judge; no line where all was."""
    broken = [why for why in probes.values() if why.startswith(NO_VERDICT)]
    long = [why for why in probes.values() if why.startswith(NO_ROOM)]
    unjudged = sum(why == NO_JUDGE for why in probes.values())
    held = [f"  {one}: example {why}" for one, why in probes.items() if why not in (NO_JUDGE, *broken, *long)]
    named = held[:LEFT_OUT_SHOWN]
    head = ["not asked, since examples hold them:"] if held else []
    more = [f"  and {len(held) - len(named)} more"] if len(held) > len(named) else []
    last = [f"not asked, since {NO_JUDGE}: {unjudged} for a judge"] if unjudged else []
    if broken:
        last += [f"without a verdict: {len(broken)} of patterns, since {broken[0].removeprefix(NO_VERDICT)}"]
    if long:
        last += [f"not asked, since {long[0].removeprefix(NO_ROOM)}: {len(long)} that are longer with an answer"]
    return [*head, *map(render.plain, [*named, *more, *last])]


def _look(one: Object) -> str:
    outcome = f"alarm {one['incident']}" if one["outcome"] == "alarm" else one["outcome"]
    return f"step {one['step']} {outcome}" if one["step"] is not None else outcome


def _pattern(p: Object) -> tuple[Any, ...]:
    return (
        p["name"], p["state"], _moved(p["baseline_bare"], p["last_bare"]),
        _moved(p["baseline_contrast"], p["last_contrast"]), p["held_out"],
    )  # fmt: skip


def _moved(before: int | None, last: int | None) -> str:
    return "-" if before is None else f"{before}" + (f" -> {last}" if last is not None else "")


def metrics(found: Sequence[Object]) -> str:
    """One a line; a drop is what is worse, whichever way that is."""
    cells = [
        (m["metric"], _figure(m["baseline"]), _figure(m["now"]), _signed(m["drop"]), _range(m), _figure(m["margin"]),
         m["looks"], m["items"])
        for m in found
    ]  # fmt: skip
    return render.table(_METRICS, cells)


def incident_table(found: Sequence[Object]) -> str:
    """One a line."""
    cells = [
        (one["incident"], one["at"][:19], one["step"], one["to"], ", ".join(one["metrics"]), len(one["undone"]),
         one["state"], how(one))
        for one in found
    ]  # fmt: skip
    return render.table(_INCIDENTS, cells)


def how(one: Object) -> str:
    """How it was settled, or why it is not."""
    if one["settled"] is not None:
        return str(one["settled"]["how"])
    if one["rolled_back"] is not None:
        return "the last good weights are back; waits for `apollod ctl resume`"
    return f"no way back: {one['refused']}" if one["refused"] else "the last good weights are wanted back"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4f}"


def _range(m: Object) -> str:
    return "-" if m["low"] is None else f"{m['low']:+.4f} to {m['high']:+.4f}"
