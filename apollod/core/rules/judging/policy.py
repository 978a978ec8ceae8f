"""Asks the judge about examples, and acts on its verdicts.

Law: a failed question, differing votes or an untrusted judge never cause learning. A person's decision counts, whatever
is under way; a verdict that comes later is recorded and changes nothing.
"""

from collections.abc import Iterable
from itertools import islice, takewhile

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.forgetting import Wish
from apollod.core.facts.judging.events import JUDGE, agreed, spokesman
from apollod.core.facts.judging.state import (
    WINDOW,
    JudgingState,
    agreement,
    alarming,
    distrust,
    is_promising,
    shortfall,
    suspected,
)
from apollod.core.facts.review import ExampleDeclined
from apollod.core.kernel.composing import composed
from apollod.core.kernel.event import Event
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rules.intake.accepting import accepted, begin_encoding, held_for_leak
from apollod.core.schedules import RETRY_MAX_S, backoff_s
from apollod.core.settings import JudgeSettings
from apollod.core.shared.places import places_of, taken_back
from apollod.core.state import State

HANDED_OVER_MAX = 1000  # examples in one transaction


def _on_started(state: State, input_: inp.Started, now_ns: int) -> Outcome:
    """Configure the judge of this life, and fail the questions that the last life left open, so that they are
    repeated."""
    settings = input_.settings.judge
    events: list[ev.Event] = []
    for subject, asked in state.judging.open.items():
        reason = "the daemon ended before the answer"
        lost = inp.JudgeFailed(subject, asked.attempt, "restart", reason)
        events += _failed(state, settings, lost)
    dreams = any(not pattern.check.by_code for pattern in input_.settings.dream.pattern) or state.dreams.judged
    if input_.judge is not None and (settings.mode != "off" or dreams):
        events.append(input_.judge)
    return Outcome(events, [])


def advance(state: State, now_ns: int) -> Outcome:
    """The next question, if one may be asked."""
    settings, own = state.daemon.settings, state.judging
    if settings is None or state.daemon.stopping:
        return nothing()
    if settings.judge.mode == "off" and (left := _unwanted(state)):
        return _hand_over(state, left)
    if settings.judge.mode == "off" and not state.dreams.judged:
        return nothing()
    if doubt := _trust_ends(state, settings.judge.trust_min):
        return _distrusted(state, doubt)
    # an unresponsive judge is asked one question at a time until it answers
    at_once = 1 if own.retry.failures else settings.judge.concurrency
    if len(own.open) >= at_once or not own.retry.is_due(now_ns) or blocked(Activity.JUDGING, state):
        return nothing()
    return _ask(state, settings.judge, *_next(own, settings.judge))


def _trust_ends(state: State, trust_min: float) -> str:
    """Reason to end trust; empty: the judge stays trusted, or never was. Cases not asked about yet do not count, and a
    judge without trust has none to lose, unless an example that it approved waits or was learned."""
    own = state.judging
    if own.due:
        return ""
    if own.approved and (doubt := distrust(own, trust_min)) and _at_stake(state):
        return doubt
    return _alarm(own, trust_min)


def _alarm(own: JudgingState, trust_min: float) -> str:
    return "" if shortfall(agreement(own), trust_min) else alarming(own.suspicions)


def _distrusted(state: State, doubt: str) -> Outcome:
    """Hold for a person the examples approved since the judge last passed its checks; name those already learned."""
    at_stake = _at_stake(state)
    recalled = {one: place.tier for one, place in places_of(state, at_stake).items()}
    learned = tuple(one for one in at_stake if one not in recalled)
    ended = ev.JudgeDistrusted(model=state.judging.judge.model, reason=doubt, recalled=tuple(recalled), learned=learned)
    why = f"the judge approved it when it was no longer sure: {doubt}"
    return Outcome([ended, *(_for_a_person(one, tier, why, JUDGE) for one, tier in recalled.items())], [])


def _at_stake(state: State) -> list[str]:
    """Examples approved since the judge last passed its checks that wait to be learned or were learned: neither taken
    back nor decided otherwise since."""
    review, intake = state.review, state.intake
    out = (review.held, review.dismissed, intake.undone, intake.withdrawn)
    return [one for one in state.judging.approved if not any(one in gone for gone in out)]


def _ask(state: State, judge: JudgeSettings, example: str, case: str) -> Outcome:
    own, subject = state.judging, example or case
    if not subject:
        return nothing()
    asked = composed(
        ev.VerdictRequested, own.judge, attempt=own.attempts.get(subject, 0) + 1, votes=judge.votes, example=example,
        case=case,
    )  # fmt: skip
    check = state.bootstrap.asked_of_judge(example) if example else None
    rubric = check.rubric if check is not None else ""
    return Outcome([asked], [fx.AskJudge(subject, asked.attempt, bool(case), judge.votes, judge.temperature, rubric)])


def _next(own: JudgingState, judge: JudgeSettings, just_said: str = "") -> tuple[str, str]:
    """The next question as (example, case), of which at least one is empty. `just_said`: a verdict not yet in `own`.

    While the endpoint is down examples come first, so that they reach a person in the end. Otherwise the order is:
    cases that were never asked, cases that resolve a suspicion, cases still needed for trust, then, after some
    verdicts, a case that could show them to be wrong.
    """
    example = next((one for one in own.waiting if one not in own.open), "")
    if own.retry.failures and example:
        return example, ""
    if own.due:
        return "", next((one for one in own.due if one not in own.open), "")
    found = agreement(own)
    if (sort := suspected(own.suspicions)) and not shortfall(found, judge.trust_min):
        return "", _case(own, sort)
    if example and is_promising(found, judge.trust_min):
        return "", _case(own, "good" if len(own.good) < len(own.bad) else "bad")
    for sort, verdict in (("bad", "good"), ("good", "bad")):
        since = own.since.get(sort, 0) + (verdict == just_said)
        if since >= _verdicts_between(own, sort, judge) and (case := _case(own, sort)):
            return "", case
    return example, ""


def _case(own: JudgingState, sort: str) -> str:
    """The next planted case of this sort; empty: it is under way."""
    case = own.next_case(sort)
    return "" if case in own.open else case


def _verdicts_between(own: JudgingState, sort: str, judge: JudgeSettings) -> int:
    """`check_every`; fewer while fewer cases of this sort are known than count."""
    known = len(own.bad if sort == "bad" else own.good)
    return max(1, judge.check_every * known // WINDOW)


def _unwanted(state: State) -> list[str]:
    """The oldest examples that wait for a judge although the settings want none, up to the first one that a bootstrap
    wants judged."""
    waiting = islice(state.judging.waiting, HANDED_OVER_MAX)
    if not state.dreams.judged:
        return list(waiting)
    return list(takewhile(lambda one: state.bootstrap.asked_of_judge(one) is None, waiting))


def _hand_over(state: State, left: Iterable[str]) -> Outcome:
    """Hold these examples for a person, since there is no judge any more."""
    held = state.review.held
    return Outcome([_for_a_person(one, held[one].tier, "there is no judge any more") for one in left], [])


def _on_answered(state: State, input_: inp.JudgeAnswered, now_ns: int) -> Outcome:
    own, settings = state.judging, state.daemon.settings
    asked = own.open.get(input_.subject)
    if asked is None or asked.attempt != input_.attempt or settings is None:
        return nothing()
    judged, subject = input_.judged, input_.subject
    verdict, told = agreed(judged.votes), spokesman(judged.votes)
    example, case = ("", subject) if asked.planted else (subject, "")
    given = composed(
        ev.VerdictGiven, own.judge, asked, told, judged, verdict=verdict, example=example, case=case,
        expected=own.expected(case), votes=tuple(vote.verdict for vote in judged.votes),
    )  # fmt: skip
    outcome = Outcome([given], [])
    if subject in own.waiting:
        outcome = _decided(state, given, input_, distrust(own, settings.judge.trust_min))
    if asked.planted or own.retry.failures or blocked(Activity.JUDGING, state):
        return outcome  # the next question depends on this answer
    # The next question in the same transaction saves an append. The answered one is still open in `own`.
    return outcome.then(_ask(state, settings.judge, *_next(own, settings.judge, verdict)))


def _decided(state: State, given: ev.VerdictGiven, input_: inp.JudgeAnswered, doubt: str) -> Outcome:
    """Apply a verdict to the example that waits for it."""
    example, line = given.example, input_.line
    tier, reason = state.review.held[example].tier, one_line(given.reason)
    said = f"the judge says {given.verdict}" + (f": {reason}" if reason else "")
    if given.verdict == "unsure":
        said = f"the judge is not sure ({', '.join(given.votes)})" + (f": {reason}" if reason else "")
        return Outcome([given, _for_a_person(example, tier, said, "judge")], [])
    if doubt:
        return Outcome([given, _for_a_person(example, tier, f"{said}; it is not trusted: {doubt}", "judge")], [])
    if given.verdict == "good":
        approved = ev.ExampleApproved(example=example, tier=tier, by="judge", reason=reason)
        return Outcome([given, approved], begin_encoding(state, [(example, tier)]))
    if example in state.judging.written:
        return Outcome([given, _for_a_person(example, tier, f"{said}; it wrote this itself", "judge")], [])
    declined = ev.ExampleDeclined(example=example, tier=tier, by="judge", reason=reason)
    if line is None or input_.known or not line.example or line.example == example:
        return Outcome([given, declined], [])
    written = accepted(line, f"judge:{example}", tier)
    waits = ev.ExampleHeld(
        example=line.example, tier=tier, reason=f"the judge wrote it instead of {example}", waits_for="judge",
        by="judge",
    )  # fmt: skip
    into = msgspec.structs.replace(given, into=line.example)
    return Outcome([into, declined, written, *(held_for_leak(written, line) or [waits])], [])


def _on_failed(state: State, input_: inp.JudgeFailed, now_ns: int) -> Outcome:
    asked, settings = state.judging.open.get(input_.subject), state.daemon.settings
    if asked is None or asked.attempt != input_.attempt or settings is None:
        return nothing()
    return Outcome(_failed(state, settings.judge, input_), [])


def _failed(state: State, judge: JudgeSettings, input_: inp.JudgeFailed) -> list[ev.Event]:
    """Record a missing verdict. After enough attempts, or if a repeat is of no use, the example waits for a person; a
    planted case is repeated without limit while the endpoint does not answer."""
    own, subject, cause = state.judging, input_.subject, input_.cause
    asked = own.open[subject]
    gives_up = cause == "refused" or asked.attempt >= judge.attempts
    if asked.planted and cause in ("endpoint", "restart"):
        gives_up = False
    retry_s = 0.0
    if cause == "endpoint":
        retry_s = min(RETRY_MAX_S, max(backoff_s(own.retry.failures + 1, RETRY_MAX_S), input_.retry_after_s))
    reason = one_line(input_.reason)
    failed = ev.VerdictFailed(
        attempt=asked.attempt, cause=cause, reason=reason, gives_up=gives_up, retry_s=retry_s,
        example="" if asked.planted else subject, case=subject if asked.planted else "",
    )  # fmt: skip
    if not gives_up or subject not in own.waiting:
        return [failed]
    times = "once" if asked.attempt == 1 else f"{asked.attempt} times"
    why = f"the judge was asked {times} and gave no verdict: {reason}"
    return [failed, _for_a_person(subject, state.review.held[subject].tier, why, "judge")]


def _for_a_person(example: str, tier: ev.Tier, reason: str, by: str = "") -> ev.ExampleHeld:
    return ev.ExampleHeld(example=example, tier=tier, reason=reason, by=by)


def _on_pattern_wanted(state: State, input_: inp.PatternWanted, now_ns: int) -> Outcome:
    """Configure the judge for the first pattern that needs it; it is asked its planted cases first."""
    needed = not input_.pattern.check.by_code and not state.judging.ready and input_.judge is not None
    return Outcome([input_.judge] if needed and input_.judge else [], [])


def overruled(state: State, approved: Iterable[str], by: str) -> list[Event]:
    """Events that withdraw the judge's replacements for these approved examples, and forget the learned ones."""
    better = {into: example for example in approved if (into := state.judging.better.get(example))}
    if not better:
        return []
    places = places_of(state, better)
    wishes = {
        into: Wish(by, f"{by} approved {example}, in place of which the judge wrote it")
        for into, example in better.items()
    }
    events: list[Event] = [
        ExampleDeclined(example=into, tier=place.tier, by=by, reason=wishes[into].reason)
        for into, place in places.items()
        if place.state in ("held", "pending")
    ]
    return [*events, *taken_back(state, wishes, places, again=True)]


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """The judge of examples, and whether it is trusted."""

    mode: str = "off"
    model: str = ""
    trusted: bool = False
    """its verdicts decide"""
    reason: str = ""
    """why not, or why it is not asked now; empty: all is well"""
    agreement: float | None = None
    """with planted cases and with people: the mean of the rates on good and on bad; null while not known"""
    low: float | None = None
    high: float | None = None
    """95 % interval"""
    good: int = 0
    """counted cases known to be good; likewise `bad`"""
    bad: int = 0
    waiting: int = 0
    """examples that wait for its verdict"""
    asked: int = 0
    """questions under way"""
    verdicts: int = 0
    """number of verdicts on examples, over the life of the journal"""
    failures: int = 0
    """failures of the endpoint in a row"""


def status(state: State) -> Judge:
    """Mode and record of the judge; without one, only counts."""
    own, settings = state.judging, state.daemon.settings
    if settings is None or settings.judge.mode == "off":
        return Judge(waiting=len(own.waiting), verdicts=own.verdicts)
    doubt, found = distrust(own, settings.judge.trust_min), agreement(own)
    low, high = found.interval if found.figure is not None else (None, None)
    return Judge(
        mode=settings.judge.mode, model=own.judge.model, trusted=not doubt,
        reason=own.error or doubt or blocked(Activity.JUDGING, state),
        agreement=_rounded(found.figure), low=_rounded(low), high=_rounded(high), good=found.of_good, bad=found.of_bad,
        waiting=len(own.waiting), asked=len(own.open), verdicts=own.verdicts, failures=own.retry.failures,
    )  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


HANDLERS: Handlers = {
    inp.Started: _on_started,
    inp.PatternWanted: _on_pattern_wanted,
    inp.JudgeAnswered: _on_answered,
    inp.JudgeFailed: _on_failed,
}
