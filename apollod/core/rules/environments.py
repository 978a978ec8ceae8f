"""Environments: groups of answers are sampled from the served model, scored from outside, and learned. Decisions, folds
and status.

Law: a prompt is asked for until its group, or that there is none, is recorded. At most `ahead` groups of an environment
wait to be learned, and none that was sampled more than `age_max` steps ago is. A group is an example like any other:
it is learned once, its step is replayed from the journal and its file, and it is taken out by its id.
"""

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.environments import (
    BY_RAILS,
    KEPT,
    SOURCE,
    USUAL_OF,
    Environment,
    EnvironmentsState,
    Figures,
    Group,
    unhealthy,
)
from apollod.core.kernel.composing import composed, restore
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rules.intake.accepting import accepted, begin_encoding
from apollod.core.schedules import NO_FAILURE, RETRY_MAX_S, backoff_s
from apollod.core.settings import EnvironmentSettings
from apollod.core.state import State

ATTEMPTS_MAX = 3
"""attempts at a prompt after which it is given up"""
TIER: ev.Tier = "rollout"

# --- folds of events into the state ----------------------------------------------------------------------------------


def _daemon_started(own: EnvironmentsState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    for settings in e.settings.environment:
        own.named.setdefault(settings.name, Environment()).retry = NO_FAILURE


def _fold_sampled(own: EnvironmentsState, state: State, e: ev.GroupSampled, at_ns: int) -> None:
    one = own.named.setdefault(e.environment, Environment())
    one.finish(e.number)
    one.retry = NO_FAILURE
    one.reason = one.reason if one.paused_by else ""
    if e.example:
        one.waiting[e.example] = Group.of(e)
    else:
        one.flat += 1


def _fold_failed(own: EnvironmentsState, state: State, e: ev.GroupFailed, at_ns: int) -> None:
    one = own.named.setdefault(e.environment, Environment())
    one.attempts[e.number] = e.attempt
    if e.given_up:
        one.finish(e.number)
        one.failed += 1
    if not one.paused_by:
        one.reason = e.reason
    one.retry = one.retry.after(at_ns, e.retry_s, one.retry.failures + 1)


def _fold_paused(own: EnvironmentsState, state: State, e: ev.EnvironmentPaused, at_ns: int) -> None:
    one = own.named[e.environment]
    one.paused_by, one.reason = e.by, e.reason


def _fold_resumed(own: EnvironmentsState, state: State, e: ev.EnvironmentResumed, at_ns: int) -> None:
    one = own.named[e.environment]
    one.paused_by, one.reason, one.unhealthy, one.lengths, one.retry = "", "", 0, (), NO_FAILURE


def _completed(own: EnvironmentsState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    for example in ev.all_examples(e):
        if (found := own.of(example)) is None:
            continue
        one, group = found[1], found[1].waiting.pop(example)
        figures = Figures(
            e.step, group.reward, group.spread, group.length, age=max(0, e.parent - group.first) if group.first >= 0
            else 0, note="" if e.applied else e.note, **{name: e.metrics.get(name) for name in _SAID},
        )  # fmt: skip
        one.learned += e.applied
        one.unhealthy = one.unhealthy + 1 if unhealthy(figures, one.usual) else 0
        if len(one.lengths) < USUAL_OF:
            one.lengths += (group.length,)
        one.recent = [*one.recent, figures][-KEPT:]


_SAID = ("ratio", "clipped", "kl", "entropy")


def _lost(own: EnvironmentsState, state: State, e: ev.ExampleRejected | ev.ExampleHeld, at_ns: int) -> None:
    _out(own, e.example)


def _withdrawn(own: EnvironmentsState, state: State, e: ev.ExampleWithdrawn, at_ns: int) -> None:
    for example in e.examples if own.named else ():
        _out(own, example)


def _failed_step(own: EnvironmentsState, state: State, e: ev.StepFailed, at_ns: int) -> None:
    if not e.apart:
        _out(own, e.example)


def _out(own: EnvironmentsState, example: str) -> None:
    if (found := own.of(example)) is not None:
        del found[1].waiting[example]
        found[1].outdated += 1


def _carried(own: EnvironmentsState, state: State, e: ev.EnvironmentCarried, at_ns: int) -> None:
    restore(own.named.setdefault(e.environment, Environment()), e)


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.GroupSampled: _fold_sampled,
    ev.GroupFailed: _fold_failed,
    ev.EnvironmentPaused: _fold_paused,
    ev.EnvironmentResumed: _fold_resumed,
    ev.StepCompleted: _completed,
    ev.StepFailed: _failed_step,
    ev.ExampleRejected: _lost,
    ev.ExampleHeld: _lost,
    ev.ExampleWithdrawn: _withdrawn,
    ev.EnvironmentCarried: _carried,
}


# --- decisions -------------------------------------------------------------------------------------------------------


def advance(state: State, now_ns: int) -> Outcome:
    """Pause an environment whose steps are not healthy, and take out groups that are too old or not to be learned."""
    settings = state.daemon.settings
    for name, one in state.environments.named.items() if settings is not None else ():
        assert settings is not None
        known = settings.environment_named(name)
        if known is not None and known.rails and one.unhealthy >= known.rails and not one.paused_by:
            why = f"{one.unhealthy} steps in a row were not healthy, the last one: {_last_said(one)}"
            return Outcome([ev.EnvironmentPaused(name, BY_RAILS, why)], [])
        if reasons := _not_learned(state, one, known):
            queued = {waiting.example for waiting in state.intake.direct.waiting}
            gone = tuple(example for example in reasons if example in queued)
            if gone:
                return Outcome([ev.ExampleWithdrawn(examples=gone, by=BY_RAILS, reason=reasons[gone[0]])], [])
    return nothing()


def _last_said(one: Environment) -> str:
    return unhealthy(one.recent[-1], one.usual) if one.recent else ""


def _not_learned(state: State, one: Environment, known: EnvironmentSettings | None) -> dict[str, str]:
    """Waiting groups that are not to be learned, and why."""
    if not one.waiting:
        return {}
    if known is None:
        return dict.fromkeys(one.waiting, "its environment is not configured any more")
    if one.paused_by:
        return dict.fromkeys(one.waiting, f"its environment was paused by {one.paused_by}")
    now = state.training.version
    return {
        example: f"it was sampled {now - group.first} steps ago ([[environment]] age_max = {known.age_max})"
        for example, group in one.waiting.items()
        if known.age_max and group.first >= 0 and now - group.first > known.age_max
    }


def repeat(state: State, now_ns: int) -> list[fx.Effect]:
    """The groups to sample now."""
    settings = state.daemon.settings
    if settings is None or not settings.environment or blocked(Activity.ROLLOUTS, state):
        return []
    found = list[fx.Effect]()
    for known in settings.environment:
        one = state.environments.named[known.name]
        if one.paused_by or not one.retry.is_due(now_ns):
            continue
        for number in one.upcoming(known.ahead - len(one.waiting)):
            found.append(fx.SampleGroup(known.name, number, one.attempts.get(number, 0) + 1))
    return found


def _asked(state: State, name: str, number: int) -> Environment | None:
    """The environment, if it waits for the group of this prompt."""
    one = state.environments.named.get(name)
    return one if one is not None and number > one.last and number not in one.done else None


def _on_scored(state: State, input_: inp.GroupScored, now_ns: int) -> Outcome:
    """Record the group, and accept it as an example."""
    if _asked(state, input_.environment, input_.number) is None:
        return nothing()
    line = input_.line
    sampled = composed(ev.GroupSampled, input_, example=line.example if line else "", reason=one_line(input_.reason))
    if line is None:
        return Outcome([sampled], [])
    source = SOURCE + input_.environment
    taken = accepted(line, source, TIER, input_.number, teacher=input_.file, responses=(), signature="")
    return Outcome([sampled, taken], begin_encoding(state, [(line.example, TIER)]))


def _on_not_scored(state: State, input_: inp.GroupNotScored, now_ns: int) -> Outcome:
    """Record the failure: another attempt follows after a back-off, or the prompt is given up."""
    one = _asked(state, input_.environment, input_.number)
    if one is None or input_.attempt != one.attempts.get(input_.number, 0) + 1:
        return nothing()
    retry_s = max(backoff_s(one.retry.failures + 1, RETRY_MAX_S), input_.retry_after_s)
    given_up = input_.for_good or (input_.attempt >= ATTEMPTS_MAX and not input_.outside)
    failed = composed(
        ev.GroupFailed, input_, reason=one_line(input_.reason), retry_s=min(RETRY_MAX_S, retry_s), given_up=given_up
    )
    return Outcome([failed], [])


def _on_paused(state: State, input_: ev.EnvironmentPaused, now_ns: int) -> Outcome:
    one = state.environments.named.get(input_.environment)
    return nothing() if one is None or one.paused_by else Outcome([input_], [])


def _on_resumed(state: State, input_: ev.EnvironmentResumed, now_ns: int) -> Outcome:
    one = state.environments.named.get(input_.environment)
    return nothing() if one is None or not one.paused_by else Outcome([input_], [])


HANDLERS: Handlers = {
    inp.GroupScored: _on_scored,
    inp.GroupNotScored: _on_not_scored,
    inp.EnvironmentPaused: _on_paused,
    inp.EnvironmentResumed: _on_resumed,
}


# --- status ----------------------------------------------------------------------------------------------------------


class EnvironmentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An environment. Figures are means over the last steps that learned a group of it, null before the first."""

    name: str
    state: str = "active"
    """active, paused, waiting (after a failure, or `reason` says for what), or gone (not configured any more)"""
    reason: str = ""
    """why no group is sampled now; or the last failure"""
    prompt: int = 0
    """number of the last prompt up to which all are done"""
    waiting: int = 0
    """groups that wait to be learned"""
    learned: int = 0
    flat: int = 0
    """groups that teach nothing, mostly since all scores are equal"""
    failed: int = 0
    """prompts that were given up"""
    outdated: int = 0
    """groups that were too old to be learned, or could not be"""
    reward: float | None = None
    spread: float | None = None
    """standard deviation of the scores of a group"""
    length: float | None = None
    """tokens of an answer"""
    age: float | None = None
    """steps since the group was sampled"""
    ratio: float | None = None
    clipped: float | None = None
    kl: float | None = None
    entropy: float | None = None
    unhealthy: int = 0
    """last steps in a row whose figures are outside of their range"""


def status(state: State, now_ns: int) -> list[EnvironmentStatus]:
    """All environments, in the order of their first start."""
    return [_status(state, name, one, now_ns) for name, one in state.environments.named.items()]


def _status(state: State, name: str, one: Environment, now_ns: int) -> EnvironmentStatus:
    settings = state.daemon.settings
    known = settings.environment_named(name) if settings is not None else None
    why = blocked(Activity.ROLLOUTS, state)
    now = (
        "gone" if known is None
        else "paused" if one.paused_by
        else "waiting" if why or not one.retry.is_due(now_ns)
        else "active"
    )  # fmt: skip
    figures = {figure: _mean(one, figure) for figure in ("reward", "spread", "length", "age", *_SAID)}
    return EnvironmentStatus(
        name=name, state=now, reason=one.reason or (why if now == "waiting" else ""), prompt=one.last,
        waiting=len(one.waiting), learned=one.learned, flat=one.flat, failed=one.failed, outdated=one.outdated,
        unhealthy=one.unhealthy, **figures,
    )  # fmt: skip


def _mean(one: Environment, figure: str) -> float | None:
    known = [value for step in one.recent if (value := getattr(step, figure)) is not None]
    return sum(known) / len(known) if known else None
