"""Figures about poison from a journal: alarms, named examples, lost probes, steps that wrote, fingerprints of
replays."""

import json
import subprocess
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from apollod.testing.daemon import Daemon

Body = dict[str, Any]
Events = list[tuple[int, Body]]
"""(number, body) of events, in order"""


class Alarm(NamedTuple):
    """An alarm and its end. `why`: the reason for the measurement that raised it; `fingerprint`: the weights' when the
    alarm was settled, empty while it is not."""

    step: int
    why: str
    metrics: list[str]
    verdict: str
    reason: str
    held: list[str]
    fingerprint: str


def story(daemon: Daemon, since: int, poison: Sequence[tuple[str, int]]) -> Body:
    """All figures about the events after event `since`, against the planted lines (file name, line)."""
    there = planted(daemon, poison)
    found = alarms(daemon, since)
    held = {one for alarm in found for one in alarm.held}
    ended = [one for one in found if one.fingerprint]
    same = [without(daemon, one.step, one.held) == one.fingerprint for one in ended]
    replays = [one["seconds"] for _, one in _events(daemon, "quality.replayed", since)]
    return {
        "alarms": len(found), "why": [one.why for one in found], "metrics": [one.metrics for one in found],
        "verdicts": [f"{one.verdict} {one.reason}".strip() for one in found], "planted": len(there),
        "held": len(held), "precision": len(held & there) / max(1, len(held)),
        "recall": len(held & there) / max(1, len(there)), "replays": len(replays), "replay_s": round(sum(replays), 1),
        "same_fingerprint": float(bool(same) and all(same)), "compared": len(same),
        **wrote(daemon, since, there), **fell(daemon, since),
    }  # fmt: skip


def alarms(daemon: Daemon, since: int) -> list[Alarm]:
    """Every alarm after event `since`, in order."""
    named = {one["incident"]: one for _, one in _events(daemon, "quality.named", since)}
    settled = {one["incident"]: seq for seq, one in _events(daemon, "quality.settled", since)}
    looks, found = _events(daemon, "quality.measured", since), list[Alarm]()
    for seq, one in _events(daemon, "quality.alarmed", since):
        why = [look["why"] for before, look in looks if before < seq][-1]
        of = named.get(one["incident"], {"verdict": "none", "culprits": [], "suspects": [], "reason": ""})
        end = settled.get(one["incident"], 0)
        held = sorted({*of["culprits"], *of["suspects"]})
        fingerprint = _fingerprint(daemon, seq, end, one["to"]) if end else ""
        found.append(Alarm(one["step"], why, one["metrics"], of["verdict"], of["reason"], held, fingerprint))
    return found


def planted(daemon: Daemon, lines: Iterable[tuple[str, int]]) -> set[str]:
    """Ids of the examples that came from these lines (file name, line)."""
    rows = daemon.query("SELECT examples.id, sources.path, examples.line FROM examples JOIN sources USING (source)")
    places = {(str(path).rpartition("/")[2], line): str(id_) for id_, path, line in rows}
    return {places[line] for line in lines if line in places}


def wrote(daemon: Daemon, since: int, poison: set[str]) -> Body:
    """Shares of good and of poisonous examples whose first step wrote weights; the number of lines that became no
    example."""
    first = dict[str, bool]()
    steps = [one for _, one in _events(daemon, "step.completed", since)]
    for one in steps:
        first.setdefault(one["example"], one["applied"])
    good = [applied for id_, applied in first.items() if id_ not in poison]
    bad = [applied for id_, applied in first.items() if id_ in poison]
    return {
        "good_wrote": _mean(good), "poison_wrote": _mean(bad), "steps": len(steps),
        "step_s": round(sum(one["seconds"] for one in steps), 1),
        "refused": len(_events(daemon, "source.quarantined", since)),
    }  # fmt: skip


def fell(daemon: Daemon, since: int) -> Body:
    """Share of the probes that passed: at the baseline, at the worst whole measurement, and at the last one."""
    looks = [one for _, one in _events(daemon, "quality.measured", since) if one["why"] != "baseline"]
    whole = [_passed(one) for one in looks if one["share"] >= 1.0]
    groups = {name for one in looks for name in one["figures"] if name.endswith(".passed")}
    before = _passed(next(one for _, one in _events(daemon, "quality.measured", 0)), groups)
    return {
        "looks": len(looks), "look_s": round(sum(one["seconds"] for one in looks), 1), "passed_before": before,
        "passed_worst": min(whole, default=before, key=lambda one: one["all"]),
        "passed_after": whole[-1] if whole else before,
    }  # fmt: skip


def without(daemon: Daemon, step: int, examples: Sequence[str]) -> str:
    """Fingerprint of the weights at a step without these examples, computed by `apollod replay`."""
    command = daemon.command("replay", "--to", str(step), "--json", *(["--without", *examples] if examples else []))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return str(json.loads(done.stdout)["fingerprint"])


def _passed(look: Body, groups: set[str] | None = None) -> dict[str, float]:
    """The share of passed probes of each group, and of all of them (`all`)."""
    rates = {
        name.removesuffix(".passed"): [*items.values()]
        for name, items in look["figures"].items()
        if name.endswith(".passed") and (groups is None or name in groups)
    }
    return {"all": _mean(one for items in rates.values() for one in items)} | {g: _mean(i) for g, i in rates.items()}


def _mean(values: Iterable[Any]) -> float:
    found = [float(one or 0.0) for one in values]
    return round(fmean(found), 4) if found else 0.0


def _fingerprint(daemon: Daemon, alarmed: int, settled: int, to: int) -> str:
    """Fingerprint of the weights when an incident was settled: after its last repeated step, else at step `to`."""
    repeated = [one for seq, one in _events(daemon, "step.completed", alarmed) if seq < settled]
    to_ = [one for _, one in _events(daemon, "step.completed", 0) if one["step"] == to]
    found = repeated or to_ or [one for _, one in _events(daemon, "trainer.bound", 0)][:1]
    return str(found[-1]["fingerprint"])


def _events(daemon: Daemon, kind: str, since: int) -> Events:
    rows = daemon.query(f"SELECT seq, body FROM events WHERE kind = '{kind}' AND seq > {since} ORDER BY seq")
    return [(seq, json.loads(body)) for seq, body in rows]
