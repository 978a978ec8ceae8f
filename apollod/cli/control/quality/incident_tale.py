"""Alarms as the story of their events, in order. Pure."""

from collections.abc import Mapping
from typing import Any

from apollod.adapters.system.clock import iso
from apollod.cli import render
from apollod.core import events as ev
from apollod.core.facts.quality.damage import search_of, total
from apollod.core.facts.quality.day import stops, with_alarm
from apollod.core.facts.quality.looking import speaking
from apollod.core.facts.quality.state import GUARD, Asked

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
TOLD_OF = {"alarmed": "the alarm", "rate": "the learning rate", "settled": "the end"}
OUTCOMES = {"good": "no harm", "bad": "harm", "unclear": "unclear"}


class Tales:
    """The incidents so far, oldest first; examples are ids."""

    def __init__(self) -> None:
        self.incidents: list[Object] = []
        self._measured: ev.QualityMeasured | None = None
        self._search: _Search | None = None
        self._manual = self._unsure = False
        self._alarms_ns: tuple[int, ...] = ()

    def take(self, seq: int, at_ns: int, event: ev.Event) -> None:
        """Take the next event, in the order of the journal."""
        match event:
            case ev.DaemonStarted():
                self._manual = event.settings.quality.resume == "manual"
            case ev.JournalCarried():
                self._alarms_ns = event.alarms_ns
            case ev.QualityMeasured():
                self._look_after(seq, at_ns, event)
            case ev.QualityAlarmed():
                self._alarmed(seq, at_ns, event)
            case ev.QualityTold():
                self._told(seq, at_ns, event)
            case _ if self.incidents and self.incidents[-1]["state"] == "open":
                self._then(self.incidents[-1], seq, at_ns, event)

    def _look_after(self, seq: int, at_ns: int, e: ev.QualityMeasured) -> None:
        """Take a look at the restored weights; or, for a settled alarm, the first one since."""
        self._measured = e
        restored = e.why == "restored"
        if not self.incidents or (self.incidents[-1]["state"] == "open") != restored:
            return
        one = self.incidents[-1]
        outcome = "baseline" if e.why == "baseline" else "passed"
        drops = {name: e.after[name].drop for name in one["metrics"] if name in e.after}
        said = ", ".join(f"{name} is worse by {drop:.4g}" for name, drop in drops.items())
        if restored:
            self._unsure = bool(speaking(e.after))
            _say(one, seq, at_ns, e, f"what came back is measured: {said} (step {e.step})")
            return
        if one["after"] is not None:
            return
        one["after"] = {"at": iso(at_ns), "seq": seq, "step": e.step, "outcome": outcome, "drops": drops}
        what = "a new baseline was measured" if e.why == "baseline" else f"measured again: {said}"
        _say(one, seq, at_ns, e, f"{what} (step {e.step})")

    def _alarmed(self, seq: int, at_ns: int, e: ev.QualityAlarmed) -> None:
        if self.incidents and (after := self.incidents[-1]["after"]) and after["seq"] == seq - 1:
            after["outcome"] = "alarm"
        measured = self._measured
        margins = {n: measured.after[n].margin for n in e.metrics if n in measured.after} if measured else {}
        self._search, self._unsure = _Search(margins), False
        self._alarms_ns = with_alarm(self._alarms_ns, at_ns)
        drops = {name: {"drop": one.drop, "low": one.low, "high": one.high} for name, one in e.drops.items()}
        one: Object = {
            "incident": e.incident, "number": e.incident, "at": iso(at_ns), "seq": seq, "step": e.step, "to": e.to,
            "metrics": list(e.metrics), "drops": drops, "state": "open", "waits_for": "the last good weights",
            "undone": [], "examples": [], "taken_back": 0, "refused": None, "rolled_back": None,
            "window": 0, "replays": 0, "replays_max": 0, "searched": [], "failures": [], "ranked": None,
            "verdict": None, "reason": "", "culprits": [], "suspects": [], "held": [],
            "repeated": 0, "repeats": [], "told": [], "resumed": None, "settled": None, "after": None, "story": [],
        }  # fmt: skip
        self.incidents.append(one)
        worse = ", ".join(one["metrics"])
        _say(one, seq, at_ns, e, f"worse than the baseline at step {e.step}: {worse}; good at step {e.to}")
        if e.step == e.to:
            one["waits_for"] = "the search"

    def _told(self, seq: int, at_ns: int, e: ev.QualityTold) -> None:
        """Take a notification about this alarm or an earlier one, whose end may be told after the next one began."""
        one = next((one for one in reversed(self.incidents) if one["incident"] == e.incident), None)
        if one is None:
            return
        about = TOLD_OF[e.about]
        one["told"].append(
            {"at": iso(at_ns), "seq": seq, "event": e.about, "ok": e.ok, "reason": e.reason, "gives_up": e.gives_up}
        )
        again = "; given up" if e.gives_up else ""
        text = f"told of {about}" if e.ok else f"could not be told of {about}: {e.reason}{again}"
        _say(one, seq, at_ns, e, f"[quality] on_alarm {'was ' if e.ok else ''}{text}")

    def _then(self, one: Object, seq: int, at_ns: int, event: ev.Event) -> None:
        """Take an event about the open alarm."""
        at = {"at": iso(at_ns), "seq": seq}
        match event:
            case ev.QualityNotGood():
                one["to"], one["waits_for"] = event.to, "the last good weights"
                worse = ", ".join(event.metrics)
                text = f"step {event.step} is worse, too: {worse}; good at step {event.to}"
            case ev.RollbackStarted():
                one["undone"] += event.undone
                one["examples"] += event.examples
                one["taken_back"] = len(one["undone"])
                text = f"{render.counted(len(event.undone), 'step')} taken back, from {event.from_step} to {event.to}"
            case ev.RollbackCompleted():
                one["rolled_back"] = {**at, "to": event.to, "how": event.how, "seconds": event.seconds}
                one["waits_for"] = "the search"
                text = f"the weights of step {event.to} are back, from {event.how}, in {event.seconds:.2f} s"
            case ev.RollbackRefused():
                one["refused"], one["waits_for"] = event.reason, "`apollod ctl resume`"
                text = f"no way back to step {event.to}: {event.reason}"
            case ev.QualityNamed():
                text = self._named(one, event)
            case ev.ExampleHeld():
                one["held"].append(event.example)
                text = f"example {event.example} is held"
            case ev.QualityResumed():
                one["resumed"], self._alarms_ns = {**at, "by": event.by}, ()
                one["waits_for"] = "the steps that are repeated"
                text = f"resumed by {event.by}"
            case ev.StepStarted():
                self._repeated(one, seq, at_ns, event)
                return
            case ev.QualitySettled():
                one["state"], one["waits_for"] = "settled", ""
                one["settled"] = {**at, "by": event.by, "how": event.how}
                if event.by != GUARD:
                    self._alarms_ns = ()
                text = f"settled by {event.by}: {event.how}"
            case _:
                text = self._searched(one, at, event)
        if text:
            _say(one, seq, at_ns, event, text)

    def _searched(self, one: Object, at: Object, event: ev.Event) -> str:
        """Take an event of the search; returns its text, empty for single replays."""
        search = self._search
        assert search is not None  # begun with the alarm
        match event:
            case ev.QualitySearchBegun():
                search.window = event.window
                one["window"], one["replays_max"] = len(event.window), event.replays_max
                one["waits_for"] = "the search"
                among = render.counted(len(event.window), "example")
                return f"searched for who did it among {among}, in {event.replays_max} replays at most"
            case ev.QualityReplayBegun():
                one["replays"] = event.number
                search.asked[event.number] = Asked(event.left_out, lr_scale=event.lr_scale)
            case ev.QualityReplayed():
                one["searched"] = search.answered(one["searched"], event)
            case ev.QualityReplayFailed():
                one["failures"].append(
                    {**at, "number": event.number, "reason": event.reason, "gives_up": event.gives_up}
                )
                given_up = ", which ends the search" if event.gives_up else ""
                return f"replay {event.number} failed{given_up}: {event.reason}"
            case ev.QualityRankBegun():
                among = render.counted(len(event.suspects), "example")
                return f"{among} are ranked by how far a step of each would move the probes that fell"
            case ev.QualityRanked():
                one["ranked"] = {**at, "seconds": event.seconds, "scores": event.scores, "unscored": event.unscored}
                harm = sum(score > 0.0 for score in event.scores.values())
                return f"ranked in {event.seconds:.1f} s: {render.counted(harm, 'example')} would make them worse"
            case ev.QualityRankFailed():
                return f"the examples cannot be ranked: {event.reason}"
        return ""

    def _named(self, one: Object, e: ev.QualityNamed) -> str:
        one["verdict"], one["reason"] = e.verdict, e.reason
        one["replays"] = e.replays or one["replays"]
        one["culprits"], one["suspects"] = list(e.culprits), list(e.suspects)
        unsure = self._unsure or e.verdict in ("elsewhere", "rate") or one["step"] == one["to"]
        asks = self._manual or unsure or stops(self._alarms_ns)
        one["waits_for"] = "`apollod ctl resume`" if asks else "the steps that are repeated"
        return verdict(one)

    def _repeated(self, one: Object, seq: int, at_ns: int, e: ev.StepStarted) -> None:
        """Keep one entry for all repeated steps."""
        again = any(each["step"] == e.step for each in one["repeats"])  # it was begun before, and given up
        if not again:
            one["repeats"].append({"step": e.step, "again_of": e.again_of, "at": iso(at_ns), "seq": seq})
        one["repeated"] = len({each["again_of"] for each in one["repeats"]})
        text = f"{render.counted(one['repeated'], 'step')} repeated with the examples that are left"
        entry = next((each for each in one["story"] if each["kind"] == e.kind), None)
        if entry is None:
            _say(one, seq, at_ns, e, text)
        else:
            entry["text"] = text


class _Search:
    """The replays of a search, judged as the guard judges them."""

    def __init__(self, margins: Mapping[str, float]) -> None:
        self.window: tuple[str, ...] = ()
        self.asked: dict[int, Asked] = {}
        self._margins = margins
        self._answered: list[Asked] = []

    def answered(self, rows: list[Object], e: ev.QualityReplayed) -> list[Object]:
        """All replays so far; the outcome of one may only be clear after the next."""
        asked = self.asked.get(e.number) or Asked(())
        self._answered.append(Asked(asked.left_out, e.drops, asked.lr_scale))
        first = total(self._answered[0].drops or {}, self._margins)
        row = {
            "number": e.number, "left_out": len(asked.left_out), "lr_scale": asked.lr_scale, "drops": e.drops,
            "damage": total(e.drops, self._margins) - first, "outcome": None, "seconds": e.seconds,
            "fingerprint": e.fingerprint,
        }  # fmt: skip
        outcomes = search_of(self.window, 1, self._answered, self._margins).told if self.window else ()
        found = [*rows, row]
        return [
            one | {"outcome": "bad" if told.bad else "good"} for one, told in zip(found, outcomes, strict=False)
        ] or found


def verdict(one: Mapping[str, Any]) -> str:
    """A verdict in words, with the number of examples held for it."""
    culprits, suspects = len(one["culprits"]), len(one["suspects"])
    if one["verdict"] == "named":
        text = f"{render.counted(culprits, 'example')} did it; all others are good together"
    else:
        text = VERDICTS.get(one["verdict"], one["verdict"])
        text += f"; {render.counted(culprits, 'example')} did part of it" if culprits else ""
    text += f"; {suspects} more may have done it, and are held, too" if suspects else ""
    return text + (f" ({one['reason']})" if one["reason"] else "")


def _say(one: Object, seq: int, at_ns: int, event: ev.Event, text: str) -> None:
    one["story"].append({"at": iso(at_ns), "seq": seq, "kind": event.kind, "text": text})
