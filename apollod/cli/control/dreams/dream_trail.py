"""One dream as a story that a person can read: what happened to it, in order. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apollod.cli.render import indented

Object = Mapping[str, Any]
_PURPOSES = {
    "held-out": "held out: imagined before practice began, and only ever tested",
    "contrast": "in contrast: answered and judged with a text under which the behaviour is wrong; steps hold it",
    "practice": "practised: answered with the instruction, judged, and learned without it",
    "variation": "a variation: new after a practice, and only tested",
}


def trail(d: Object) -> list[str]:
    """Lines; what comes from outside is not made harmless yet."""
    lines = [
        f"dream       {d['dream']} of {d['pattern'] or '-'}, {d['state']}"
        + (f": {d['reason']}" if d["reason"] else ""),
        f"purpose     {_purpose(d)}",
        f"requested   {d.get('at', '-')} (event {d.get('seq', '-')})",
        f"cost        {d['tokens']} tokens",
    ]
    if d["instruction"]:
        lines += ["", "== to be learned", *indented(d["instruction"])]
    for event in d["trail"]:
        if (told := _TOLD.get(event["kind"])) is not None:
            lines += ["", *told(d, event)]
    if d["variations"]:
        lines += ["", f"== tested with variations: {' '.join(d['variations'])}"]
    return lines


def _purpose(d: Object) -> str:
    told = _PURPOSES.get(d["purpose"] or "", "-")
    if d["variation_of"]:
        told += f" ({d['variation_of']})"
    if d["purpose"] == "practice" and d["mode"] == "contrast":
        told = "practised in contrast: answered, judged and learned with a text under which the behaviour is wrong"
    return told


def _imagined(d: Object, e: Object) -> list[str]:
    places = e.get("places") or ()
    by = f" by {e['model']}" if e.get("model") else ""
    lines = [f"== a situation is imagined{by}{_cost(e)}"]
    lines += [f"    from {place}" for place in places] or ["    from the instruction alone"]
    scenario = e.get("scenario")
    for turn in scenario if isinstance(scenario, Sequence) and not isinstance(scenario, str) else ():
        lines += [f"  -- {turn['role']}", *indented(turn["content"])]
    return [*lines, *_surrounding(e)]


def _surrounding(e: Object) -> list[str]:
    """Lines about the surrounding of a dream: its system message; `--json` has the rest."""
    around, left_out = e.get("surrounding") or {}, e.get("left_out")
    lines = [f"  -- no other surrounding could be had ({left_out})"] if left_out else []
    if not (messages := around.get("messages", ())):
        return lines
    more = f", {len(messages) - 1} earlier turns" if len(messages) > 1 else ""
    tools = f", {len(around['tools'])} tools" if around.get("tools") else ""
    lines.append(f"  -- before it stands a surrounding of kind {around['kind']} ({around['id']}{more}{tools})")
    return [*lines, *indented(messages[0]["content"])]


def _answered(d: Object, e: Object) -> list[str]:
    sure = "" if e.get("logprob") is None else f", mean log-probability {e['logprob']:.2f} a token"
    weights = "" if e.get("weights_version") is None else f", weights of step {e['weights_version']}"
    return [
        "== the model is told",
        *indented(e["told"]),
        f"  -- and answers{_cost(e)}{weights}{sure}",
        *indented(e["answer"]),
    ]


def _judged(d: Object, e: Object) -> list[str]:
    what = "the better answer" if e.get("answer") else "the answer"
    lines = [f"== {_who(e['by'])} says that {what} is {e['verdict']}" + (f": {e['reason']}" if e.get("reason") else "")]
    lines += [f'    "{e["quote"]}"'] if e.get("quote") else []
    if e.get("better") is not None:
        lines += ["  -- and writes a better one", *indented(e["better"])]
    return lines


def _trained(d: Object, e: Object) -> list[str]:
    loss = "" if d["loss"] is None else f", loss {d['loss']:.4g}"
    how = "with that text" if d["mode"] == "contrast" else "without the instruction"
    return [f"== learned {how}: example {e['example']}, step {e['step']}{loss}"]


def _tested(d: Object, e: Object) -> list[str]:
    when = f", {e['round']}" if e.get("round") else ""
    when += f", sampled answer {e['sample']}" if e.get("sample") else ""
    how = {"bare": "without being told", "told": "told", "contrast": "where it would be wrong"}[e["mode"]]
    how += f", surrounding {e['surrounding']}" if e.get("surrounding", "none") != "none" else ""
    passed = "passed" if e["passed"] else "failed"
    lines = [f"== tested {how}{when}: {passed}, says {_who(e['by'])}" + (f": {e['reason']}" if e.get("reason") else "")]
    if e.get("contrast"):
        lines += ["  -- it is told", *indented(e["contrast"]), "  -- and answers"]
    return [*lines, *indented(e["answer"])]


def _failed(d: Object, e: Object) -> list[str]:
    return [f"== {e['stage']}, attempt {e['attempt']}, gave nothing usable ({e['cause']}): {e['reason']}"]


def _abandoned(d: Object, e: Object) -> list[str]:
    return [f"== abandoned: {e['reason']}"]


def _who(by: str) -> str:
    return "the judge" if by == "judge" else f"the check ({by})" if by in ("regex", "schema", "command") else by


def _cost(e: Object) -> str:
    return f" ({e.get('tokens', 0)} tokens, {e.get('seconds', 0.0):.1f} s)"


_TOLD: Mapping[str, Callable[[Object, Object], list[str]]] = {
    "dream.imagined": _imagined,
    "dream.answered": _answered,
    "dream.judged": _judged,
    "dream.trained": _trained,
    "dream.tested": _tested,
    "dream.failed": _failed,
    "dream.abandoned": _abandoned,
}
