"""Runs an incident from alarm to end: restore the last good weights, find the harmful examples, hold them, learn the
others again.

Law: every replay of the search is an intent before it is run, and its result is an event, so that a crash repeats one
of them and forgets none. A replay that cannot be run ends the search after REPLAY_ATTEMPTS_MAX without a culprit. Then
the trainer ranks the suspects (below), and the first are held; without a ranking all are.
"""

from collections.abc import Collection, Mapping, Sequence

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.quality.culprits import Replay, Verdict, given_up, longest, next_replay
from apollod.core.facts.quality.state import (
    GUARD,
    Incident,
    examples_of,
    may_repeat,
    scored_after,
    searched,
    unit,
    waits_for,
)
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rules.quality import incidents
from apollod.core.rules.rollback import begun, request
from apollod.core.schedules import backoff_s
from apollod.core.settings import QualitySettings
from apollod.core.shared.given_up import is_given_up
from apollod.core.shared.places import places_of
from apollod.core.shared.repeating import next_repeat
from apollod.core.state import State

# Ranks the suspects if replays cannot be run, by how far a step of each moves the probes, and holds the first.
#
# The score is a derivative, not an experiment: it shows where harm is likely, without proof. So few are held, the
# others are learned again, and all probes are asked before anything else is learned. If the model is still worse, that
# is the next alarm, in which the held ones are no longer suspects, and the next ones come first.
#
# Law: a request is an intent before it is made, and the verdict follows from the recorded scores alone. After the end
# of trainer or daemon the request is repeated, for a trainer at most ATTEMPTS_MAX times; if it fails, the verdict is
# that without a ranking.

ATTEMPTS_MAX = 3
SHARE = 0.1
"""share of the highest score below which an example is not among the first"""


def verdict(state: State, incident: Incident, unfinished: Verdict) -> Verdict | Outcome:
    """The verdict in place of `unfinished`, or the request for a ranking; nothing while it is awaited."""
    own, suspects = incident.ranking, [incident.window[place] for place in unfinished.held]
    if own.gave_up or len(suspects) < 2:
        return unfinished
    if own.scores is not None:
        return _verdict(own.scores, own.unscored, incident.window, incident.culprits_max, unfinished)
    if own.open or blocked(Activity.RANKING, state):
        return nothing()
    if own.ended >= ATTEMPTS_MAX:
        reason = f"the trainer ended {own.ended} times while it ranked them"
        return Outcome([ev.QualityRankFailed(incident=incident.number, number=own.number, reason=reason)], [])
    asked = ev.QualityRankBegun(incident=incident.number, number=own.number + 1, suspects=tuple(suspects))
    ask = fx.RankExamples(
        incident.number, asked.number, tuple(ranked_steps(incident, suspects)), incident.fell,
        {name: 1.0 / unit(name, incident.margins) for name in incident.fell}, state.quality.references,
    )  # fmt: skip
    return Outcome([asked], [ask])


def ranked_steps(incident: Incident, suspects: Collection[str]) -> list[fx.RankedStep]:
    """Each suspect once, with its share of the learning rates of the steps that learned it: the examples of a step
    share its rate equally."""
    found = dict[str, fx.RankedStep]()
    for step in incident.steps:
        share = step.lr / len(step.examples)
        for example, digest in zip(step.examples, step.digests, strict=True):
            lr = share + (found[example].lr if example in found else 0.0)
            found[example] = fx.RankedStep(example, digest, step.objective, lr)
    return [found[example] for example in suspects]


def first(scores: Mapping[str, float], most: int) -> list[str]:
    """The first examples of the ranking: harmful ones, down to SHARE of the highest score, at most `most`; empty if
    none is harmful."""
    ordered = sorted(scores, key=lambda one: -scores[one])
    highest = scores[ordered[0]] if ordered else 0.0
    return [one for one in ordered[:most] if scores[one] > 0.0 and scores[one] >= SHARE * highest]


def _verdict(
    scores: Mapping[str, float], unscored: Collection[str], window: Sequence[str], most: int, unfinished: Verdict
) -> Verdict:
    """Verdict with the first examples and those without a score as suspects; `unfinished` if there is no first one."""
    blamed = first(scores, most)
    if not blamed:
        return unfinished
    held = {*blamed, *unscored}
    places = tuple(place for place, example in enumerate(window) if example in held)
    return Verdict("ranked", suspects=places, replays=unfinished.replays)


def on_ranked(state: State, input_: inp.ExamplesRanked, now_ns: int) -> Outcome:
    """Record the scores, or the failure."""
    incident = state.quality.incident
    if incident is None or incident.number != input_.incident or not incident.ranking.open:
        return nothing()
    if incident.ranking.number != input_.number:
        return nothing()
    if input_.error:
        reason = one_line(input_.error)
        return Outcome([ev.QualityRankFailed(incident=input_.incident, number=input_.number, reason=reason)], [])
    scored = composed(ev.QualityRanked, input_)
    return Outcome([scored], [])


REPLAY_ATTEMPTS_MAX = 3
REPLAY_RETRY_MAX_S = 60.0
REPLAY_BEGINS_S = 900.0
"""time for a process to start, to check the journal, and to read and write the weights"""
REPLAY_SLOWER = 10.0
"""times that a replay's step may take longer than a step: it has the lowest priority for processor and disk, and a
forward pass counts as a step"""
OF_ENVIRONMENT = "[[environment]] lr"
UNKNOWN_STEP_S = 10.0
"""duration of a step if none is known"""


def advance(state: State, incident: Incident) -> Outcome:
    """The next action about an alarm."""
    match incident.phase:
        case "alarmed":
            return request(state, incident.to, GUARD)
        case "restored":
            return _begin_search(state, incident)
        case "searching":
            return _search(state, incident)
        case "named":
            return _end(state, incident)
        case "stuck":
            return nothing()


def _begin_search(state: State, incident: Incident) -> Outcome:
    settings, own = state.daemon.settings, state.quality
    assert settings is not None
    window = examples_of(incident.steps)
    if incident.restored == "bad":
        reason = f"the weights of step {incident.to} are worse than the baseline, too, and no earlier ones are known"
    elif incident.step == incident.to:
        reason = "the weights are those of the baseline or of the last good look: the probes say now this, now that"
    elif not settings.quality.culprits_max:
        reason = "[quality] culprits_max = 0"
    elif not incident.whole or not window:
        reason = "too many steps were learned since the last good look"
    elif not incident.fell:
        reason = "only lessons fell, and replays do not measure what they say"
    elif not own.references:
        reason = "the baseline has no references; `apollod ctl quality baseline` measures one that does"
    else:
        most = settings.quality.culprits_max
        search = ev.QualitySearchBegun(
            incident=incident.number, window=window, replays_max=longest(len(window), most), culprits_max=most
        )
        return Outcome([search], [])
    return Outcome([ev.QualityNamed(incident=incident.number, verdict="not_searched", reason=reason)], [])


def _search(state: State, incident: Incident) -> Outcome:
    """Begin the next replay, or record the verdict."""
    if incident.open_replay is not None and not incident.gave_up:
        return nothing()
    found: Verdict | Replay | Outcome
    if incident.gave_up:
        found = incidents.verdict(state, incident, given_up(searched(incident)))
    else:
        found = next_replay(searched(incident))
    if isinstance(found, Outcome):
        return found
    if isinstance(found, Verdict):
        return _name(state, incident, found)
    left_out = tuple(incident.window[place] for place in found.left_out)
    asked = ev.QualityReplayBegun(
        incident=incident.number, number=len(incident.replays) + 1, left_out=left_out, lr_scale=found.lr_scale
    )
    return Outcome([asked], [])


def replay(state: State, now_ns: int) -> list[fx.Effect]:
    """The open replay, until its result is recorded. It may take hours, while serving goes on."""
    incident, settings = state.quality.incident, state.daemon.settings
    if incident is None or settings is None or incident.phase != "searching":
        return []
    if (asked := incident.open_replay) is None or incident.gave_up or not incident.retry.is_due(now_ns):
        return []
    asking = fx.ReplayWindow(
        incident.number, len(incident.replays), incident.to, incident.step, asked.left_out, incident.fell,
        state.quality.references, _limit_s(state, incident, settings.quality), asked.lr_scale,
    )  # fmt: skip
    return [asking]


def _limit_s(state: State, incident: Incident, settings: QualitySettings) -> float:
    """Longest time of every replay, in seconds: that of the first one, which also runs the steps since the
    checkpoint."""
    if settings.replay_s:
        return settings.replay_s
    slowest_s = max((pace.seconds for pace in state.training.recent), default=UNKNOWN_STEP_S)
    items = sum(map(len, incident.fell.values()))
    passes = len(state.recovery.since) + len(incident.steps) + items * len(scored_after(len(incident.steps)))
    return REPLAY_BEGINS_S + REPLAY_SLOWER * slowest_s * passes


def _name(state: State, incident: Incident, found: Verdict) -> Outcome:
    """Record the verdict, and hold every example it blames."""
    window = incident.window
    named = ev.QualityNamed(
        incident=incident.number, verdict=found.kind, culprits=tuple(window[place] for place in found.culprits),
        suspects=tuple(window[place] for place in found.suspects), replays=found.replays,
        reason=_slower(incident, found) or _gave_up(incident), lr_scale=found.lr_scale,
    )  # fmt: skip
    tiers = {example: step.tier for step in incident.steps for example in step.examples}
    worse = ", ".join(incident.metrics)
    waiting = places_of(state, (window[place] for place in found.held))  # a user requested it again
    waiting = {example: place for example, place in waiting.items() if place.state == "pending"}
    why = {place: f"it made {worse} worse" for place in found.culprits}
    may = f"it may have made {worse} worse"
    if found.kind == "ranked":
        may += ": it stands among the first by how far a step of it moves the probes, which is no proof"
    held = [
        ev.ExampleHeld(
            example=window[place], tier=tiers[window[place]], by=GUARD,
            reason=f"alarm {incident.number} of the quality guard: {why.get(place, may)}",
        )
        for place in found.held
        if window[place] in state.intake.undone or window[place] in waiting
    ]  # fmt: skip
    return Outcome([named, *held], [fx.EndSearch()])


def _gave_up(incident: Incident) -> str:
    """Reason why replays could not be run, then the reason why there is no ranking."""
    rest = f"; nor can the examples be ranked: {incident.ranking.gave_up}" if incident.ranking.gave_up else ""
    return incident.gave_up + rest


def _slower(incident: Incident, found: Verdict) -> str:
    """Why examples are learned again at a lower rate, for `rate` with the settings at which a replay did no harm; empty
    if none are."""
    if found.lr_scale == 1.0:
        return ""
    if found.kind == "named":
        return f"the others harm together at their learning rate, and are learned again at {found.lr_scale:g} of it"
    highest = dict[str, float]()
    for step in incident.steps:
        key = {"direct": "lr_direct", "rollout": OF_ENVIRONMENT}.get(step.tier, "lr")
        highest[key] = max(step.lr, highest.get(key, 0.0))
    use = [f"{key} = {lr * found.lr_scale:.3g}" for key, lr in sorted(highest.items()) if key != OF_ENVIRONMENT]
    use = [f"[trainer] {' and '.join(use)}"] if use else []
    use += [f"{OF_ENVIRONMENT} = {highest[OF_ENVIRONMENT] * found.lr_scale:.3g}"] if OF_ENVIRONMENT in highest else []
    return (
        f"every example harms at this learning rate: use {' and '.join(use)} and `apollod ctl resume`, which learns "
        "them again at that rate"
    )


def _end(state: State, incident: Incident) -> Outcome:
    """Settle the incident once its innocent examples are learned again, unless a person has to decide."""
    settings, own = state.daemon.settings, state.quality
    assert settings is not None
    if state.training.running is not None or next_repeat(state) is not None:
        return nothing()
    if waits_for(own, incident, settings.quality.resume == "manual") != "steps":
        return nothing()
    slower = ", those taken back at a lower learning rate" if incident.lr_scale < 1.0 else ""
    how = f"the weights of step {incident.to} are back, and steps go on{slower}"
    return Outcome([_settled(incident, GUARD, how)], [])


def _settled(incident: Incident, by: str, how: str) -> ev.QualitySettled:
    return ev.QualitySettled(incident=incident.number, how=how, by=by, taken_back=len(incident.undone))


def _on_replayed(state: State, input_: inp.WindowReplayed, now_ns: int) -> Outcome:
    incident = state.quality.incident
    if incident is None or not _is_open(incident, input_.incident, input_.number):
        return nothing()
    drops = dict(input_.drops)
    for name in drops:
        if name.endswith(".loss") and (baseline := state.quality.baseline.get(name)) is not None:
            items = [baseline.figures[item] for item in incident.fell.get(name, ()) if item in baseline.figures]
            drops[name] -= sum(items) / len(items) if items else 0.0
    replayed = composed(ev.QualityReplayed, input_, incident=incident.number, drops=drops)
    return Outcome([replayed], [])


def _on_replay_failed(state: State, input_: inp.WindowReplayFailed, now_ns: int) -> Outcome:
    incident = state.quality.incident
    if incident is None or not _is_open(incident, input_.incident, input_.number):
        return nothing()
    gives_up = input_.for_good or incident.retry.failures + 1 >= REPLAY_ATTEMPTS_MAX
    failed = ev.QualityReplayFailed(
        incident=incident.number, number=input_.number, reason=input_.reason, gives_up=gives_up,
        retry_s=0.0 if gives_up else backoff_s(incident.retry.failures + 1, REPLAY_RETRY_MAX_S),
    )  # fmt: skip
    return Outcome([failed], [])


def _is_open(incident: Incident, number: int, replay: int) -> bool:
    return incident.number == number and incident.open_replay is not None and len(incident.replays) == replay


def _on_resume(state: State, input_: inp.TrainingResumed, now_ns: int) -> Outcome:
    """Go on at a person's request. Innocent examples are learned before anything else; a search under way is given up,
    and its steps stay taken back, unless the request may concern a pause or another halt."""
    own, incident = state.quality, state.quality.incident
    if incident is None or incident.phase == "alarmed":
        return nothing()
    if incident.phase == "named" and (incident.again or state.training.running or not may_repeat(own, incident)):
        resumed = ev.QualityResumed(incident=incident.number, by=input_.by)
        return nothing() if incident.resumed else Outcome([resumed], [])
    if incident.phase in ("searching", "stuck") and is_given_up(state):
        return nothing()
    return Outcome([_settled(incident, input_.by, f"resumed by {input_.by}")], [fx.EndSearch()])


def _on_rollback(state: State, input_: inp.RollbackPlanned, now_ns: int) -> Outcome:
    """Settle the incident when a person rolls back to other weights. A refused request changes nothing."""
    incident, wanted = state.quality.incident, state.rollback.wanted
    if incident is None or incident.phase == "alarmed" or not isinstance(begun(state, input_), ev.RollbackStarted):
        return nothing()
    assert wanted is not None
    how = f"{wanted.by} wants the weights of step {wanted.to}"
    return Outcome([_settled(incident, wanted.by, how)], [fx.EndSearch()])


HANDLERS: Handlers = {
    inp.WindowReplayed: _on_replayed,
    inp.WindowReplayFailed: _on_replay_failed,
    inp.ExamplesRanked: incidents.on_ranked,
    inp.TrainingResumed: _on_resume,
    inp.RollbackPlanned: _on_rollback,
}
