"""Apply evidence from logs: an answer with evidence against it is held until a judge or a person decides.

Pure. An example is held on arrival if the evidence came first, and pulled from the queue if the evidence comes later;
if it was learned already, the weights forget it (`core.rules.forgetting`). Examples a person approved stay approved.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from apollod.core import events as ev
from apollod.core.facts.forgetting import Wish
from apollod.core.facts.intake.events import Evidence, Learn, rejections, speaks_against, speaks_for
from apollod.core.facts.intake.inputs import Line
from apollod.core.facts.review import BY_EVIDENCE, Decider
from apollod.core.kernel.event import Event
from apollod.core.rules.intake.accepting import family
from apollod.core.settings import JudgeMode
from apollod.core.shared.places import Place, places_of, taken_back
from apollod.core.state import State

QUOTED = 80  # characters
UNSHOWN = "nothing shows yet that it was right"


class Shown:
    """Evidence in the lines of a batch, by the example that learns the answer; `flagged`: ids of evidence recorded
    earlier."""

    def __init__(self, flagged: Iterable[str]) -> None:
        self._flagged = frozenset(flagged)
        self._of: dict[str, list[Evidence]] = {}
        self._about: dict[str, list[Evidence]] = {}
        """by the key of the answer, which all parts of a long one share"""
        self._lines: dict[str, Line] = {}

    def accept(self, line: Line) -> None:
        """Register the example that this line becomes."""
        self._lines[line.example] = line

    def add(self, example: str, one: Evidence) -> None:
        """Register evidence about an example's answer."""
        self._of.setdefault(example, []).append(one)
        self._about.setdefault(one.answer, []).append(one)

    def held(self, taken: ev.ExampleAccepted, learn: Learn, judge: JudgeMode) -> ev.ExampleHeld | None:
        """The event that holds an example of the batch, if evidence requires it and no person has to decide anyway."""
        line = self._lines[taken.example]
        if line.decided:
            return None
        later = next((one.key for one in line.responses if one.part), "")
        shown = [*(self._about.get(later, ()) if later else ()), *self._of.get(taken.example, ())]
        reason = ""
        if learn != "all" and line.of_log:
            reason = self._rejected(line, shown)
            if not reason and learn == "positive" and not any(speaks_for(o.polarity, o.strength) for o in shown):
                return _held(taken.example, taken.tier, UNSHOWN, judge, otherwise=BY_EVIDENCE)
        if reason:
            return _held(taken.example, taken.tier, reason, judge)
        if wants_judge(judge, taken.tier, bool(shown)):
            reason = "a judge decides about its source" if judge == "all" else "a judge decides: it has a signal"
            return ev.ExampleHeld(example=taken.example, tier=taken.tier, reason=reason, waits_for="judge")
        return None

    def _rejected(self, line: Line, shown: Sequence[Evidence]) -> str:
        if against := [one for one in shown if speaks_against(one.polarity, one.strength)]:
            return _rejected(against[0].kind, against[0].quote)
        known = (id_ for one in line.responses for id_ in rejections(one.key))
        return "rejected, as an earlier log shows" if not self._flagged.isdisjoint(known) else ""


def decided_since(state: State, late: Sequence[ev.SignalFlagged], taken: Collection[str] = ()) -> list[Event]:
    """Events that follow from evidence about examples accepted earlier; those in `taken` are decided elsewhere."""
    rejected = {one: why for one, why in rejected_since(state, late).items() if one not in taken}
    places = places_of(state, rejected)
    wishes = {example: Wish(BY_EVIDENCE, reason) for example, reason in rejected.items()}
    return [
        *stopped(state, rejected, places), *released(state, late, rejected), *taken_back(state, wishes, places)
    ]  # fmt: skip


def rejected_since(state: State, signals: Iterable[ev.SignalFlagged]) -> dict[str, str]:
    """Reason against learning, by example: for examples that these signals count against and no person approved."""
    found: dict[str, str] = {}
    for one in signals:
        named = (one.example, *one.also) if speaks_against(one.polarity, one.strength) else ()
        for example in family(state.intake.again, named):
            if example and example not in state.review.approved:
                found.setdefault(example, _rejected(one.cue, one.quote))
    return found


def stopped(state: State, rejected: Mapping[str, str], places: Mapping[str, Place]) -> Iterator[Event]:
    """Hold those of these examples that are queued or await positive evidence."""
    judge: JudgeMode = state.daemon.settings.judge.mode if state.daemon.settings else "off"
    for example, reason in rejected.items():
        place = places.get(example)
        if place is not None and (place.state == "pending" or _waits_for_evidence(state, example)):
            yield _held(example, place.tier, reason, judge)


def released(
    state: State, signals: Iterable[ev.SignalFlagged], rejected: Mapping[str, str]
) -> list[ev.ExampleApproved]:
    """Release examples that awaited positive evidence and now have it."""
    signs = {one.example: one for one in signals if one.example and speaks_for(one.polarity, one.strength)}
    return [
        ev.ExampleApproved(example=example, tier=state.review.held[example].tier, by=BY_EVIDENCE, reason=_told(one))
        for example, one in signs.items()
        if example not in rejected and _waits_for_evidence(state, example)
    ]


def _waits_for_evidence(state: State, example: str) -> bool:
    held = state.review.held.get(example)
    return held is not None and held.waits_for == BY_EVIDENCE


def _held(example: str, tier: ev.Tier, reason: str, judge: JudgeMode, otherwise: Decider = "person") -> ev.ExampleHeld:
    """Hold for the judge if one is configured and covers such examples, else for a person."""
    judged = wants_judge(judge, tier, flagged=True)
    return ev.ExampleHeld(
        example=example, tier=tier, reason=reason, waits_for="judge" if judged else otherwise, by=BY_EVIDENCE
    )


def _told(one: ev.SignalFlagged) -> str:
    return one.cue + (f': "{_short(one.quote)}"' if one.quote else "")


def _rejected(kind: str, quote: str) -> str:
    return f"rejected ({kind})" + (f': "{_short(quote)}"' if quote else "")


def _short(text: str) -> str:
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 3]}..."


def wants_judge(mode: JudgeMode, tier: ev.Tier, flagged: bool) -> bool:
    """True if an example that is not held for a person waits for the judge. Direct examples never do; `flagged`: it has
    a signal."""
    return tier == "bulk" and (mode == "all" or (mode == "flagged" and flagged))
