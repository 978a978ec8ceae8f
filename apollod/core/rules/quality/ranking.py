"""Ranks the suspects if replays cannot be run, by how far a step of each moves the probes, and holds the first. Pure.

The score is a derivative, not an experiment: it shows where harm is likely, without proof. So few are held, the others
are learned again, and all probes are asked before anything else is learned. If the model is still worse, that is the
next alarm, in which the held ones are no longer suspects, and the next ones come first.

Law: a request is an intent before it is made, and the verdict follows from the recorded scores alone. After the end of
trainer or daemon the request is repeated, for a trainer at most ATTEMPTS_MAX times; if it fails, the verdict is that
without a ranking.
"""

from collections.abc import Collection, Mapping, Sequence

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.quality.culprits import Verdict
from apollod.core.facts.quality.damage import unit
from apollod.core.facts.quality.state import Incident
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.reasons import one_line
from apollod.core.state import State

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
