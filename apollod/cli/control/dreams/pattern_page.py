"""Patterns as a person reads them: a table of all, a page of one. Pure."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from apollod.cli import render
from apollod.cli.render import indented

Object = Mapping[str, Any]
_COLUMNS = ("pattern", "state", "told", "bare", "contrast", "last", "practices", "dreams", "tokens", "next, or why not")


def table(patterns: Sequence[Object]) -> str:
    """One line each; pairs are of before the first practice and of the last round of tests."""
    cells = [
        (
            p["name"], p["state"], _passed(p["baseline"].get("told")), _moved(p, "bare"), _moved(p, "contrast"),
            _of(p["window"]["bare"]), p["practices"], p["dreams"], p["tokens"], _why(p),
        )
        for p in patterns
    ]  # fmt: skip
    return render.table(_COLUMNS, cells)


def _why(p: Object) -> str:
    return str(p["reason"] if p["state"] == "retired" else p["next"])


def _moved(p: Object, mode: str) -> str:
    before, last = _passed(p["baseline"].get(mode)), _passed(p["final"].get(mode))
    return f"{before} -> {last}" if last != "-" else before


def _passed(rate: Object | None) -> str:
    return "-" if rate is None else f"{rate['passed']}/{rate['of']}"


def _of(window: Object) -> str:
    return f"{window['passed']}/{window['of']}" if window["of"] else "-"


def page(p: Object) -> list[str]:
    """Lines; what comes from outside is not made harmless yet."""
    window, settle = p["window"], p["settle"]
    lines = [
        f"pattern     {p['name']}",
        f"state       {p['state']}" + (f": {p['reason']}" if p["reason"] else ""),
        f"added       {time.strftime('%Y-%m-%d %H:%M', time.localtime(p['added_at']))} by {p['by']}",
        "instruction",
        *indented(p["instruction"]),
        f"seeds       {', '.join(p['seeds']) or 'none: scenarios are imagined from the instruction alone'}",
        f"check       {_check(p['check'])}",
        "contrast" if p["contrast_given"] else "contrast    none was given, so the instruction is taken back:",
        *(line for text in p["contrast"] for line in indented(text)),
        "only tested",
        *(line for text in p["contrast_held_out"] for line in indented(text)),
        f"learned by  {_OBJECTIVES.get(p['objective'], p['objective'])}",
        f"settles     when {settle[0]} of the last {settle[1]} new scenarios show it untold and not where it is wrong, "
        f"then as many of {p['held_out']} held-out ones, and sampled answers to these",
        f"situations  {_situations(p['situations'])}",
        f"budget      {_budget(p)}",
        f"before      {_rates(p['baseline'])}",
        f"last round  {_rates(p['final'])}",
        *([f"sampled     {_rates(p['sampled'])}, where 70 of 100 would not do"] if p["sampled"] else []),
        *([f"only tested {_rates(p['final_held_out'])}"] if p["final_held_out"] else []),
        *_around(p),
        f"lately      bare {_of(window['bare'])}, contrast {_of(window['contrast'])}"
        + (f"; shows too often where it would be wrong, under: {_short(window['leaks'])}" if window["leaks"] else ""),
        f"so far      {p['practices']} practices, {p['dreams']} dreams, {p['tokens']} tokens",
    ]
    if (cases := p["guarded"]) is not None and p["state"] != "retired":
        missing = (
            "none of its contrast cases is a probe yet; `apollod ctl quality baseline` takes in those there are then"
        )
        lines.append(f"guard       {f'{cases} of its contrast cases are probes' if cases else missing}")
    if p["misses"]:
        lines.append(f"misses      {p['misses']} dreams in a row ended early, the last one because: {p['missed']}")
    lines += [f"harmed      {times} times when {name} settled" for name, times in p["harmed_by"].items()]
    if p["settled_at"] is not None:
        lines.append(f"settled     with the weights of step {p['settled_at']}")
    if not p["next"]:
        return [*lines, f"next        nothing: {p['waits']}"]
    return [*lines, f"next        {p['next']}", *([f"waits for   {p['waits']}"] if p["waits"] else [])]


def _around(p: Object) -> list[str]:
    """By kind of surrounding: of before the first practice and of the last round."""
    before, last, left_out = p["baseline_around"], p["final_around"], p["left_out"]
    why = {kind: f"not to be had, {reason}" for kind, reason in left_out.items()} | p["not_followed"]
    kinds = list(dict.fromkeys([*p["surroundings"], *before, *last, *left_out]))
    told = [
        "    " + f"{kind:<8}" + (", ".join(_modes(before.get(kind, {}), last.get(kind, {}))) or "not tested yet")
        + (f"; {why[kind]}" if kind in why else "")
        for kind in kinds
    ]  # fmt: skip
    return [f"around      what stands before a request, in turn: {', '.join(p['surroundings'])}", *told]


def _modes(before: Object, last: Object) -> list[str]:
    return [f"{mode} {_moved({'baseline': before, 'final': last}, mode)}" for mode in before or last if mode != "told"]


_OBJECTIVES = {
    "sft": "sft: the tokens of a good answer",
    "context": "context: what the model says of each of them when it is told",
}


def _short(texts: Sequence[str]) -> str:
    return "; ".join(json.dumps(text[:60], ensure_ascii=False) for text in texts)


def _check(check: Object) -> str:
    if not check:
        return "none: the judge judges by the instruction"
    ((kind, value),) = check.items()
    told = " ".join(value) if isinstance(value, list) else str(value)
    return f"{kind}: {told}" + (" (told to the judge besides the instruction)" if kind == "rubric" else "")


def _situations(s: Object) -> str:
    """In which the behaviour would be wrong without a word against it."""
    if not s["wanted"]:
        return "none (situations = 0): whether it shows where it is wrong is tested under contrast texts alone"
    told = f"{s['there']} of {s['wanted']} in which it would be wrong, only tested"
    return told + (f"; no more could be imagined: {s['reason']}" if s["reason"] else "")


def _budget(p: Object) -> str:
    names = {"dreams": "practices", "tokens": "tokens", "days": "days"}
    told = [
        f"{p['budget'][key]:g} {name} ({p['left'][key]:g} left)" if p["budget"][key] else f"no limit of {name}"
        for key, name in names.items()
    ]
    return ", ".join(told)


def _rates(tests: Object) -> str:
    """With the 95 % interval of each rate."""
    told = [f"{mode} {r['passed']} of {r['of']} ({r['low']:.2f} to {r['high']:.2f})" for mode, r in tests.items()]
    return ", ".join(told) or "not tested yet"
