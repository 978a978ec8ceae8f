"""`apollod ctl pattern list|show|add|retire|propose`: behaviours that are learned by dreaming."""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from apollod.cli import commands, render
from apollod.cli.control import ctl, dream, pattern_given, rows
from apollod.cli.render import indented
from apollod.errors import unknown
from apollod.wire import control_messages as msg

EPILOG = """\
A pattern is a text that should become unnecessary. Situations are imagined, answered with the text, judged, and the
answers are learned without it, until new situations are answered so untold. docs/dreams.md has more.

examples:
  apollod ctl pattern add ask --instruction 'Ask before you act.' --seed ~/notes --seed view:signals
  apollod ctl pattern add json --instruction-file json.md --schema answer.schema.json --settle 9/10 --dreams 50
  apollod ctl pattern list
  apollod ctl pattern show ask
  apollod ctl pattern retire ask
  apollod ctl pattern propose >> apollod.toml
"""
SHOWN_DREAMS = 10
_COLUMNS: tuple[render.Column, ...] = (
    ("pattern", "name"), "state", ("told", lambda p: _passed(p["baseline"].get("told"))),
    ("bare", lambda p: _moved(p, "bare")), ("contrast", lambda p: _moved(p, "contrast")),
    ("last", lambda p: _of(p["window"]["bare"])), "practices", "dreams", "tokens",
    ("next, or why not", lambda p: p["reason"] if p["state"] == "retired" else p["next"]),
)  # fmt: skip
"""Pairs are of before the first practice, and of the last round of tests."""
Object = Mapping[str, Any]


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "behaviours that are learned by dreaming until they need no instruction"
    commands.epilog(parser, EPILOG)
    name = ctl.argument("name", metavar="NAME", help="of the pattern")
    ctl.actions(
        parser,
        ("list", "every pattern, how far it is, and what comes next", _list, ctl.of_a_copy),
        ("show", "one pattern in full: definition, tests, budget, why nothing happens, its last dreams", _show, name,
         ctl.of_a_copy),
        ("add", "have a behaviour learned, or change one", _add, pattern_given.arguments),
        ("retire", "dream of a pattern no more; what was learned stays learned",
         ctl.telling(lambda args: msg.PatternRetireRequest(args.name, ctl.by()), _retired), name),
        ("propose", "patterns made of what is stripped most often and was learned most, as TOML; adds none",
         pattern_given.propose, pattern_given.propose_arguments),
    )  # fmt: skip


def folded(path: str) -> dict[str, Any]:
    """State of patterns by a journal, without its daemon."""
    from apollod.supervisor.lesson_view import patterns_view

    view = patterns_view(rows.folded_state(path), time.time_ns())
    stopped = "no daemon was asked"
    for pattern in view["patterns"]:
        pattern["waits"] = pattern["waits"] if pattern["state"] == "retired" or not pattern["next"] else stopped
    return view | {"reason": stopped}


def _list(args: argparse.Namespace) -> int:
    view = ctl.ask_or_fold(args, msg.PatternsRequest(), folded)
    return render.show(args, view, lambda: _page_of_all(view))


def _page_of_all(view: dict[str, Any]) -> str:
    if not view["patterns"]:
        return "there is no pattern; `apollod ctl pattern add --help` says how to add one"
    why = f"; waits: {view['reason']}" if view["reason"] else ""
    return f"{render.listed(_COLUMNS, view['patterns'])}\n\n{view['next'] or 'nothing is left to do'}{why}"


def _show(args: argparse.Namespace) -> int:
    view = ctl.ask_or_fold(args, msg.PatternsRequest(), folded)
    patterns = {one["name"]: one for one in view["patterns"]}
    if (found := patterns.get(args.name)) is None:
        raise unknown("pattern", args.name, patterns)
    dreams = newest(args, args.name)
    return render.show(args, {"pattern": found, "dreams": dreams}, lambda: page_with_dreams(found, dreams))


def newest(args: argparse.Namespace, name: str) -> list[dict[str, Any]]:
    """The last dreams of a pattern."""
    return dream.newest(ctl.journal_path(args), name, SHOWN_DREAMS)


def page_with_dreams(pattern: dict[str, Any], dreams: Sequence[dict[str, Any]]) -> str:
    """A pattern in full, and these dreams of it."""
    return "\n".join([*page(pattern), *(["", render.listed(dream.COLUMNS, dreams)] if dreams else [])])


def _add(args: argparse.Namespace) -> int:
    pattern = pattern_given.pattern_of(args)
    answer = ctl.ask(ctl.socket_path(args), msg.PatternAddRequest(pattern, ctl.by()))
    said = {
        "added": "is added; its held-out scenarios are imagined first",
        "again": "was retired, and begins anew",
        "replaced": "was another pattern, and begins anew; what was learned of that one stays learned",
        "unchanged": "is there already, just so; nothing was changed",
    }[answer["became"]]
    waits = f" (waits: {answer['waits']})" if answer["waits"] else ""
    return render.show(args, answer, f"{pattern.name} {said}{waits}")


def _retired(answer: Object) -> str:
    stays = f"; what {answer['practices']} practices taught stays learned" if answer["practices"] else ""
    return f"{answer['pattern']} is retired{stays}"


def _moved(p: Object, mode: str) -> str:
    before, last = _passed(p["baseline"].get(mode)), _passed(p["final"].get(mode))
    return f"{before} -> {last}" if last != "-" else before


def _passed(rate: Object | None) -> str:
    return "-" if rate is None else f"{rate['passed']}/{rate['of']}"


def _of(window: Object) -> str:
    return f"{window['passed']}/{window['of']}" if window["of"] else "-"


def page(p: Object) -> list[str]:
    """Lines about a pattern, not made safe for a terminal yet."""
    window, (passes, of), cases = p["window"], p["settle"], p["guarded"]
    leaks = f"; shows too often where it would be wrong, under: {_short(window['leaks'])}" if window["leaks"] else ""
    missing = "none of its contrast cases is a probe yet; `apollod ctl quality baseline` takes in those there are then"
    probes = f"{cases} of its contrast cases are probes" if cases else missing
    return [
        f"pattern     {p['name']}",
        f"state       {p['state']}" + (f": {p['reason']}" if p["reason"] else ""),
        f"added       {render.minute(p['added_at'])} by {p['by']}",
        "instruction",
        *indented(p["instruction"]),
        f"seeds       {', '.join(p['seeds']) or 'none: scenarios are imagined from the instruction alone'}",
        f"check       {_check(p['check'])}",
        "contrast" if p["contrast_given"] else "contrast    none was given, so the instruction is taken back:",
        *(line for text in p["contrast"] for line in indented(text)),
        "only tested",
        *(line for text in p["contrast_held_out"] for line in indented(text)),
        f"learned by  {_OBJECTIVES.get(p['objective'], p['objective'])}",
        f"settles     when {passes} of the last {of} new scenarios show it untold and not where it is wrong, "
        f"then as many of {p['held_out']} held-out ones, and sampled answers to these",
        f"situations  {_situations(p['situations'])}",
        f"budget      {_budget(p)}",
        f"before      {_rates(p['baseline'])}",
        f"last round  {_rates(p['final'])}",
        *render.fields(
            ("sampled", p["sampled"] and f"{_rates(p['sampled'])}, where 70 of 100 would not do"),
            ("only tested", p["final_held_out"] and _rates(p["final_held_out"])),
        ),
        *_around(p),
        *render.fields(
            ("lately", f"bare {_of(window['bare'])}, contrast {_of(window['contrast'])}{leaks}"),
            ("so far", f"{p['practices']} practices, {p['dreams']} dreams, {p['tokens']} tokens"),
            ("guard", cases is not None and p["state"] != "retired" and probes),
            (
                "misses",
                p["misses"] > 0 and f"{p['misses']} dreams in a row ended early, the last one because: {p['missed']}",
            ),
            *(("harmed", f"{times} times when {name} settled") for name, times in p["harmed_by"].items()),
            ("settled", p["settled_at"] is not None and f"with the weights of step {p['settled_at']}"),
            ("next", p["next"] or f"nothing: {p['waits']}"),
            ("waits for", p["next"] and p["waits"]),
        ),
    ]


def _around(p: Object) -> list[str]:
    """Tests by kind of surrounding: before the first practice, and of the last round."""
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
    """Situations in which the behaviour would be wrong although nobody says so."""
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
    """Rates with their 95 % intervals."""
    told = [f"{mode} {r['passed']} of {r['of']} ({r['low']:.2f} to {r['high']:.2f})" for mode, r in tests.items()]
    return ", ".join(told) or "not tested yet"
