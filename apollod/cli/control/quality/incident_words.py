"""An incident as `incident show --json` has it, with its story in words. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from apollod.adapters.system.clock import iso
from apollod.cli import render
from apollod.core import events as ev
from apollod.core.facts.quality.culprits import are_bad
from apollod.core.facts.quality.state import WaitsFor, searched, total
from apollod.core.rules.quality.status import Kind, Story

Object = dict[str, Any]

VERDICTS = {
    "elsewhere": "the larger part of the drop was there before these steps: none of their examples is to blame",
    "not_repeated": "replays of all of the steps do no harm: none of their examples is to blame",
    "spread": "no few examples did it: more than are looked for",
    "rate": "no few examples did it, and at a lower learning rate all of them together do no harm",
    "unfinished": "the search came to no end",
    "ranked": "no replay could be run: it is not proven who did it, and all but the first by rank are learned again",
    "not_searched": "it was not searched for who did it",
}
"""Texts of verdicts; `named` has one of its own."""
WAITS_FOR: Mapping[WaitsFor | None, str] = {
    "weights": "the last good weights", "search": "the search", "steps": "the steps that are repeated",
    "person": "`apollod ctl resume`", None: "",
}  # fmt: skip
TOLD_OF = {"alarmed": "the alarm", "rate": "the learning rate", "settled": "the end"}
OUTCOMES = {"good": "no harm", "bad": "harm", "unclear": "unclear"}


def row(story: Story) -> Object:
    """The facts of an incident; examples are ids."""
    one = story.incident
    ((begun, alarm),) = story.all(ev.QualityAlarmed)
    refused, named = story.last(ev.RollbackRefused), story.last(ev.QualityNamed)
    repeats = _repeats(story)
    undone = {*one.undone}  # a person's rollback, which settles the incident, takes back others
    return {
        "incident": one.number, "number": one.number, **_place(begun), "step": one.step, "to": one.to,
        "metrics": list(one.metrics), "drops": _drops(alarm), "answers": _answers(story, alarm),
        "state": "settled" if story.waits is None else "open",
        "waits_for": WAITS_FOR[story.waits], "undone": list(one.undone),
        "examples": [id_ for _, e in story.all(ev.RollbackStarted) if undone >= {*e.undone} for id_ in e.examples],
        "taken_back": len(one.undone), "refused": refused.reason if refused is not None else None,
        "rolled_back": _newest(_facts(story, ev.RollbackCompleted, "to", "how", "seconds")),
        "window": len(one.window), "replays": (named.replays if named is not None else 0) or len(one.replays),
        "replays_max": one.replays_max, "searched": _searched(story),
        "failures": _facts(story, ev.QualityReplayFailed, "number", "reason", "gives_up"),
        "ranked": _newest(_facts(story, ev.QualityRanked, "seconds", "scores", "unscored")),
        "verdict": one.verdict, "reason": named.reason if named is not None else "",
        "culprits": list(one.culprits), "suspects": list(named.suspects) if named is not None else [],
        "held": [e.example for _, e in story.all(ev.ExampleHeld)],
        "repeated": len({each["again_of"] for each in repeats}), "repeats": repeats,
        "told": [
            {**_place(at), "event": e.about, "ok": e.ok, "reason": e.reason, "gives_up": e.gives_up}
            for at, e in story.all(ev.QualityTold)
        ],
        "resumed": _newest(_facts(story, ev.QualityResumed, "by")),
        "settled": _newest(_facts(story, ev.QualitySettled, "by", "how")),
        "after": _after(story),
        "story": _story(story, len({each["again_of"] for each in repeats})),
    }  # fmt: skip


def _place(recorded: ev.Recorded) -> Object:
    return {"at": iso(recorded.at_ns), "seq": recorded.seq}


def _facts(story: Story, kind: type[Kind], *names: str) -> list[Object]:
    """Events of a kind: the place of each, and these fields."""
    return [_place(at) | {name: getattr(e, name) for name in names} for at, e in story.all(kind)]


def _newest(found: Sequence[Object]) -> Object | None:
    return found[-1] if found else None


def _drops(alarm: ev.QualityAlarmed) -> Object:
    return {name: {"drop": one.drop, "low": one.low, "high": one.high} for name, one in alarm.drops.items()}


def _answers(story: Story, alarm: ev.QualityAlarmed) -> list[Object]:
    """Probes that passed at the baseline and failed at the alarm, with the beginnings of both answers."""
    return [
        {"metric": name, "probe": id_, "before": story.answers[id_][0], "at_alarm": story.answers[id_][1]}
        for name, items in sorted(alarm.fell.items())
        for id_ in items
        if id_ in story.answers
    ]


def _repeats(story: Story) -> list[Object]:
    """Repeated steps, each once: one may be begun, given up and begun again."""
    found = dict[int, Object]()
    for at, e in story.all(ev.StepStarted):
        found.setdefault(e.step, {"step": e.step, "again_of": e.again_of, **_place(at)})
    return [*found.values()]


def _searched(story: Story) -> list[Object]:
    """Measured replays, with the outcomes that the guard concludes from all of them."""
    one, replays = story.incident, story.all(ev.QualityReplayed)
    if not replays:
        return []
    first, search = total(replays[0][1].drops, one.margins), searched(one)
    return [
        {
            "number": e.number, "left_out": len(told.left_out), "lr_scale": told.lr_scale, "drops": e.drops,
            "damage": total(e.drops, one.margins) - first, "outcome": "bad" if bad else "good",
            "seconds": e.seconds, "fingerprint": e.fingerprint,
        }
        for (_, e), told, bad in zip(replays, search.told, are_bad(search), strict=True)
    ]  # fmt: skip


def _after(story: Story) -> Object | None:
    if (at := story.after) is None or not isinstance(e := at.event, ev.QualityMeasured):
        return None
    outcome = "alarm" if story.alarm_after else "baseline" if e.why == "baseline" else "passed"
    return {**_place(at), "step": e.step, "outcome": outcome, "drops": _measured(story, e)}


def _measured(story: Story, e: ev.QualityMeasured) -> dict[str, float]:
    return {name: e.after[name].drop for name in story.incident.metrics if name in e.after}


# --- in words -----------------------------------------------------------------------------------------------------


def verdict(one: Mapping[str, Any]) -> str:
    """A verdict in words, with the number of examples held for it."""
    return _verdict(one["verdict"], len(one["culprits"]), len(one["suspects"]), one["reason"])


def _verdict(kind: str, culprits: int, suspects: int, reason: str) -> str:
    if kind == "named":
        text = f"{render.counted(culprits, 'example')} did it; no other does harm by itself"
    else:
        text = VERDICTS.get(kind, kind)
        text += f"; {render.counted(culprits, 'example')} did part of it" if culprits else ""
    text += f"; {suspects} more may have done it, and are held, too" if suspects else ""
    return text + (f" ({reason})" if reason else "")


def _story(story: Story, repeated: int) -> list[Object]:
    """The events that have a text, in order. `repeated`: number of repeated steps, which are one entry."""
    found, first = list[Object](), True
    for at in story.events:
        text = _text(story, at)
        if isinstance(at.event, ev.StepStarted):
            text = f"{render.counted(repeated, 'step')} repeated with the examples that are left" if first else ""
            first = False
        if text:
            found.append(_place(at) | {"kind": at.event.kind, "text": text})
    return found


def _text(story: Story, at: ev.Recorded) -> str:
    """Text of an event; empty for one that is not told."""
    match at.event:
        case ev.QualityAlarmed() as e:
            return f"worse than the baseline at step {e.step}: {', '.join(e.metrics)}; good at step {e.to}"
        case ev.QualityNotGood() as e:
            return f"step {e.step} is worse, too: {', '.join(e.metrics)}; good at step {e.to}"
        case ev.QualityMeasured() as e:
            said = ", ".join(f"{name} is worse by {drop:.4g}" for name, drop in _measured(story, e).items())
            if e.why == "restored":
                return f"what came back is measured: {said} (step {e.step})"
            what = "a new baseline was measured" if e.why == "baseline" else f"measured again: {said}"
            return f"{what} (step {e.step})" if at is story.after else ""
        case ev.RollbackStarted() as e:
            return f"{render.counted(len(e.undone), 'step')} taken back, from {e.from_step} to {e.to}"
        case ev.RollbackCompleted() as e:
            return f"the weights of step {e.to} are back, from {e.how}, in {e.seconds:.2f} s"
        case ev.RollbackRefused() as e:
            return f"no way back to step {e.to}: {e.reason}"
        case ev.QualitySearchBegun() as e:
            among = render.counted(len(e.window), "example")
            return f"searched for who did it among {among}, in {e.replays_max} replays at most"
        case ev.QualityReplayFailed() as e:
            given_up = ", which ends the search" if e.gives_up else ""
            return f"replay {e.number} failed{given_up}: {e.reason}"
        case ev.QualityRankBegun() as e:
            among = render.counted(len(e.suspects), "example")
            return f"{among} are ranked by how far a step of each would move the probes that fell"
        case ev.QualityRanked() as e:
            harm = sum(score > 0.0 for score in e.scores.values())
            return f"ranked in {e.seconds:.1f} s: {render.counted(harm, 'example')} would make them worse"
        case ev.QualityRankFailed() as e:
            return f"the examples cannot be ranked: {e.reason}"
        case ev.QualityNamed() as e:
            return _verdict(e.verdict, len(e.culprits), len(e.suspects), e.reason)
        case ev.ExampleHeld() as e:
            return f"example {e.example} is held"
        case ev.QualityResumed() as e:
            return f"resumed by {e.by}"
        case ev.QualitySettled() as e:
            return f"settled by {e.by}: {e.how}"
        case ev.QualityTold() as e:
            again = "; given up" if e.gives_up else ""
            about = TOLD_OF[e.about]
            told = f"was told of {about}" if e.ok else f"could not be told of {about}: {e.reason}{again}"
            return f"[quality] on_alarm {told}"
        case _:
            return ""
