"""Alarms as a person reads them: a table, and each as a story. Pure; what comes from outside is not made harmless yet,
but in tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from apollod.cli import render
from apollod.cli.control.quality.incident_tale import OUTCOMES, TOLD_OF, verdict

Object = Mapping[str, Any]
NAMED_MAX = 20
"""examples, or steps, that are listed"""
_LISTED = ("incident", "at", "step", "back to", "metrics", "steps undone", "verdict", "did it", "state", "how")
_REPLAYS = ("replay", "left out", "of the rate", "damage in margins", "outcome", "seconds")
_STATES = {
    "held": "held", "undone": "taken back", "pending": "waits to be learned", "trained": "learned since",
    "declined": "declined since", "edited": "edited since", "withdrawn": "withdrawn since",
}  # fmt: skip


def incident_list(found: Sequence[Object]) -> str:
    """One a line."""
    cells = [
        (one["incident"], one["at"][:19], one["step"], one["to"], ", ".join(one["metrics"]), one["taken_back"],
         one["verdict"] or "", len(one["culprits"]), one["state"], how(one))
        for one in found
    ]  # fmt: skip
    return render.table(_LISTED, cells)


def how(one: Object) -> str:
    """How it was settled, or what it waits for."""
    if one["settled"] is not None:
        return str(one["settled"]["how"])
    if one["rolled_back"] is None and one["refused"]:
        return f"no way back: {one['refused']}; waits for `apollod ctl resume`"
    if one["rolled_back"] is None and one["step"] != one["to"]:
        return "the last good weights are wanted back"
    return f"the last good weights are back; waits for {one['waits_for']}"


def incident(one: Object, verbose: bool = False) -> list[str]:
    """Lines. `verbose`: with each replay of the search, and every event."""
    lines = [
        f"incident    {one['incident']}, {one['state']}",
        f"alarm       {one['at']} at step {one['step']} (event {one['seq']}); good at step {one['to']}",
        "worse",
        *(f"    {name}{_drop(one['drops'].get(name))}" for name in one["metrics"]),
        f"taken back  {_steps(one['undone'])}",
    ]
    if one["refused"]:
        lines.append(f"refused     {one['refused']}")
    if (back := one["rolled_back"]) is not None:
        lines.append(f"rolled back {back['at']} to step {back['to']}, from {back['how']}, in {back['seconds']:.2f} s")
    lines += [*_search(one, verbose), *_blamed(one)]
    if one["repeated"]:
        lines.append(f"repeated    {_repeated(one)}")
    lines += [f"told        {_told(each)}" for each in one["told"]]
    if (resumed := one["resumed"]) is not None:
        lines.append(f"resumed     {resumed['at']} by {resumed['by']}")
    settled = one["settled"]
    done = f"not yet: {how(one)}" if settled is None else f"{settled['at']} by {settled['by']}: {settled['how']}"
    lines.append(f"settled     {done}")
    if (after := one["after"]) is not None:
        lines.append(f"afterwards  {_after(after)}")
    if verbose:
        lines += ["", *(f"{each['at']}  {each['seq']:>6}  {each['text']}" for each in one["story"])]
    return lines


def _drop(drop: Object | None) -> str:
    return "" if drop is None else f" by {drop['drop']:.4g} ({drop['low']:.4g} to {drop['high']:.4g})"


def _steps(undone: Sequence[int]) -> str:
    if len(undone) <= NAMED_MAX:
        return ", ".join(map(str, undone)) or "no step"
    return f"{len(undone)} steps, {undone[0]} to {undone[-1]}"


def _search(one: Object, verbose: bool) -> list[str]:
    lines = []
    if one["replays_max"]:
        lines.append(
            f"search      {one['replays']} replays of at most {one['replays_max']}, over {one['window']} examples"
        )
    if verbose and one["searched"]:
        cells = [
            (
                each["number"],
                each["left_out"],
                each["lr_scale"],
                each["damage"],
                OUTCOMES.get(each["outcome"], "-"),
                each["seconds"],
            )
            for each in one["searched"]
        ]
        lines += [f"    {line}" for line in render.table(_REPLAYS, cells).split("\n")]
    for each in one["failures"]:
        given_up = ", which ended the search" if each["gives_up"] else ""
        lines.append(f"    {each['at']} replay {each['number']} failed{given_up}: {each['reason']}")
    if (ranked := one["ranked"]) is not None:
        how_far = f"{len(ranked['scores'])} examples in {ranked['seconds']:.1f} s, by how far a step of each would move"
        lines.append(f"ranked      {how_far} the probes that fell")
    if one["verdict"] is not None:
        lines.append(f"verdict     {one['verdict']}: {verdict(one)}")
    return lines


def _blamed(one: Object) -> list[str]:
    """Who did it and who may have; where nobody is named, what was taken back."""
    lines = [
        *(["did it"] if one["culprits"] else []), *_examples(one["culprits"]),
        *(["may have"] if one["suspects"] else []), *_examples(one["suspects"], (one["ranked"] or {}).get("scores")),
    ]  # fmt: skip
    if one["verdict"] == "not_searched" and one["examples"]:
        lines += [
            "learned by the steps that were taken back; `apollod ctl relearn ID...` learns one again",
            *_examples(one["examples"]),
        ]
    return lines


def _examples(found: Sequence[Object], scores: Mapping[str, float] | None = None) -> list[str]:
    """`scores`: of a ranking."""
    lines = []
    for each in found[:NAMED_MAX]:
        state = _STATES.get(each["state"], each["state"] or "not in this journal")
        text = f", teaches: {each['text']}" if each["text"] else ""
        score = (scores or {}).get(each["example"])
        rank = "" if score is None else f", score {score:.3g}"
        lines += [f"    {each['example']}  {_place(each)}", f"        {state}{rank}{text}"]
    more = len(found) - NAMED_MAX
    return [*lines, f"    and {more} more: --json has them"] if more > 0 else lines


def _place(example: Object) -> str:
    return "-" if example["path"] is None else f"{example['path']}:{example['line']}"


def _repeated(one: Object) -> str:
    first, last = one["repeats"][0], one["repeats"][-1]
    pairs = f"step {first['again_of']} as {first['step']}"
    if first is not last:
        pairs += f" to step {last['again_of']} as {last['step']}"
    return f"{one['repeated']} innocent step{'' if one['repeated'] == 1 else 's'}: {pairs}"


def _told(each: Object) -> str:
    about = TOLD_OF[each["event"]]
    if each["ok"]:
        return f"{each['at']} [quality] on_alarm, of {about}"
    return f"{each['at']} nobody of {about}: {each['reason']}" + ("; given up" if each["gives_up"] else "")


def _after(after: Object) -> str:
    if after["outcome"] == "baseline":
        return f"{after['at']} step {after['step']} became the baseline"
    drops = ", ".join(f"{name} {drop:+.4f}" for name, drop in after["drops"].items())
    said = "the next alarm" if after["outcome"] == "alarm" else "no alarm"
    return f"{after['at']} step {after['step']} was measured: {said}" + (f" (drop: {drops})" if drops else "")
