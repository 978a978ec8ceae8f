"""An incident of the quality guard as a few sentences. Pure; what comes from outside is not made harmless yet."""

from collections.abc import Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]
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


def story(incident: Object, search: Object | None) -> tuple[str, Told]:
    """A heading, and what happened in its order. `search`: see `learned_facts.searches`."""
    head = f"Alarm {incident['incident']} at step {incident['step']}, {incident['state']}"
    lines: Told = [f"{incident['at'][:16].replace('T', ' ')} UTC: {_worse(incident)}", _taken_back(incident)]
    if search is not None:
        lines += _search(search)
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


def _search(search: Object) -> Told:
    said = _VERDICTS.get(search["verdict"], str(search["verdict"]))
    replays = f", in {search['replays']} replays" if search.get("replays") else ""
    why = f": {search['reason']}" if search.get("reason") else ""
    lines: Told = [f"{said}{replays}{why}."]
    if search["culprits"]:
        lines += ["Held, since they did it:", _places(search["culprits"])]
    if search["suspects"]:
        lines += ["Held, since they may have done it:", _places(search["suspects"])]
    return lines


def _places(examples: Sequence[Object]) -> list[str]:
    shown = [one["place"] or one["example"] for one in examples[:PLACES_SHOWN]]
    more = len(examples) - len(shown)
    return [*shown, f"and {more} more"] if more else shown
