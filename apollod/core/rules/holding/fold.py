"""Fold events into the anchors and their divergences."""

from collections.abc import Collection
from typing import Literal

from apollod.core import events as ev
from apollod.core.facts.dreams.events import LEARNED_FROM
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.dreams.state import Dream
from apollod.core.facts.holding import (
    APPROVED_NAME,
    CONTRAST_NAME,
    NEIGHBOUR_NAME,
    SHIPPED_NAME,
    TOLD_NAME,
    Anchor,
    HoldingState,
)
from apollod.core.facts.intake.events import speaks_for
from apollod.core.facts.lessons.events import Worded, keys_of
from apollod.core.kernel.composing import composed
from apollod.core.kernel.policy import Folds
from apollod.core.schedules import NO_FAILURE
from apollod.core.state import State

APPROVED_MAX = 64
"""most approved answers held, and most waiting to be frozen; the newest ones are kept"""
NEIGHBOURS_MAX = 128
"""most neighbours of lessons held; the newest ones are kept"""
CONTRASTS_MAX = 128
"""most contrasts of a pattern held; the newest ones are kept"""
TOLD_MAX = 8
"""most answers of a pattern held under its instruction: two in each kind of surrounding; the first ones are kept"""
GIVEN_MAX = 1000
"""most answers of the served model remembered until they are approved"""

_Disapproved = ev.ExampleHeld | ev.ExampleDeclined | ev.ExampleEdited
_DisapprovedSeveral = ev.ExampleExpired | ev.ExampleWithdrawn | ev.ForgetRequested | ev.RollbackStarted


def _daemon_started(own: HoldingState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    own.retry, own.error, own.unable = NO_FAILURE, "", False


def _engine_ready(own: HoldingState, state: State, e: ev.EngineReady, at_ns: int) -> None:
    """Forget failures of the engine before, unless it cannot answer such questions at all."""
    if not own.unable:
        own.retry, own.error = NO_FAILURE, ""


def _wanted(own: HoldingState, state: State, e: ev.AnchorWanted, at_ns: int) -> None:
    own.wanted[e.wanted] = e


def _settle(own: HoldingState, wanted: str) -> None:
    own.wanted.pop(wanted, None)
    own.renewed.pop(wanted, None)
    if wanted.startswith(SHIPPED_NAME):
        own.settled[wanted] = None
    elif wanted.startswith(APPROVED_NAME):
        _drop_examples(own.approved, {wanted.removeprefix(APPROVED_NAME)})


def _frozen(own: HoldingState, state: State, e: ev.AnchorFrozen, at_ns: int) -> None:
    own.retry, own.error = NO_FAILURE, ""
    _settle(own, e.wanted)
    if e.lesson:
        _drop(own, _of_lesson(own, e.lesson), "what it says was frozen again")
    if e.question:
        _drop_question(own, e.question, "another answer to its question was frozen")
        own.by_question[e.question] = e.anchor
    own.anchors[e.anchor] = composed(Anchor, e)
    own.pending[e.anchor] = None
    own.stale.pop(e.anchor, None)  # the same answer was frozen again
    approved = [one.anchor for one in own.anchors.values() if one.sort == "approved"]
    _drop(own, approved[: max(0, len(approved) - APPROVED_MAX)], f"{APPROVED_MAX} newer answers were approved")
    contrasts = [one.anchor for one in own.anchors.values() if one.sort == "contrast" and one.pattern == e.pattern]
    _drop(own, contrasts[: max(0, len(contrasts) - CONTRASTS_MAX)], f"{CONTRASTS_MAX} newer contrasts were practised")
    near = [one.anchor for one in own.anchors.values() if one.wanted.startswith(NEIGHBOUR_NAME)]
    _drop(own, near[: max(0, len(near) - NEIGHBOURS_MAX)], f"there are {NEIGHBOURS_MAX} newer neighbours")


def _encoded(own: HoldingState, state: State, e: ev.AnchorEncoded, at_ns: int) -> None:
    if (anchor := own.anchors.get(e.anchor)) is not None:
        anchor.tokens, anchor.digest = e.tokens, e.digest
        own.pending.pop(e.anchor, None)


def _failed(own: HoldingState, state: State, e: ev.AnchorFailed, at_ns: int) -> None:
    if not e.wanted.startswith(APPROVED_NAME) or not e.gives_up:
        own.error = e.reason
    if e.gives_up == "one":
        _settle(own, e.wanted)
        return
    own.retry = own.retry.after(at_ns, e.retry_s)
    own.unable = e.gives_up == "all"


def _retired(own: HoldingState, state: State, e: ev.AnchorsRetired, at_ns: int) -> None:
    _drop(own, e.anchors, e.reason)
    for anchor in e.anchors:
        own.stale.pop(anchor, None)


def _lesson_known(own: HoldingState, state: State, e: ev.LessonKnown, at_ns: int) -> None:
    """Want an anchor of the lesson's present answer: it is held from the next step on."""
    one = _what_is_known(e.lesson, e.prompt)
    own.wanted[one.wanted] = one


def _what_is_known(lesson: str, prompt: str) -> ev.AnchorWanted:
    return ev.AnchorWanted(f"lesson:{lesson}", "lesson", (Turn("user", prompt),), lesson=lesson)


def _lesson_falls(
    own: HoldingState, state: State, e: ev.LessonFading | ev.LessonReplaced | ev.LessonGivenUp, at_ns: int
) -> None:
    """Stop holding the lesson's answer, so that holding never opposes what is taught in its place."""
    _settle(own, f"lesson:{e.lesson}")
    _drop(own, _of_lesson(own, e.lesson), f"lesson {e.lesson} is not known any more")


def _dream_judged(own: HoldingState, state: State, e: ev.DreamJudged, at_ns: int) -> None:
    """Want a good answer in contrast held, and the first ones of practices under the instruction itself, with the
    distribution of the model under everything that it was told."""
    dream = state.dreams.open
    if dream is None or dream.id != e.dream or e.verdict != "good" or e.answer or dream.purpose not in LEARNED_FROM:
        return
    if dream.mode == "contrast":
        _want_beside(own, dream, e.example, "contrast", dream.contrast)
    elif _told_of(own, dream.pattern) < TOLD_MAX:
        _want_beside(own, dream, e.example, "told", state.dreams.courses[dream.pattern].pattern.instruction)


def _want_beside(own: HoldingState, dream: Dream, example: str, sort: Literal["contrast", "told"], system: str) -> None:
    name = (CONTRAST_NAME if sort == "contrast" else TOLD_NAME) + dream.id
    own.wanted[name] = ev.AnchorWanted(
        name, sort, dream.scenario, dream.answer, around=dream.surrounding, system=system, told=dream.told,
        pattern=dream.pattern, example=example,
    )  # fmt: skip


def _told_of(own: HoldingState, pattern: str) -> int:
    """Number of answers of a pattern held under its instruction, including wanted ones."""
    every: list[Anchor | ev.AnchorWanted] = [*own.anchors.values(), *own.wanted.values()]
    return sum(one.sort == "told" and one.pattern == pattern for one in every)


def _patterns_changed(own: HoldingState, state: State, e: ev.PatternAdded | ev.PatternRetired, at_ns: int) -> None:
    """Drop all contrasts: each was given by a model that was told all practised behaviours, which have changed."""
    for name in [name for name in own.wanted if name.startswith((CONTRAST_NAME, TOLD_NAME))]:
        del own.wanted[name]
    contrasts = [one.anchor for one in own.anchors.values() if one.pattern]
    _drop(own, contrasts, "the patterns that are practised are others now")


def _pattern_settled(own: HoldingState, state: State, e: ev.PatternSettled, at_ns: int) -> None:
    """Freeze answers anew that do not show the practised behaviour: holding them would unlearn it. Answers of lessons
    are held until they are frozen anew."""
    if e.practices:
        own.settled = {}
        for lesson in filter(None, (one.lesson for one in own.anchors.values())):
            if (worded := state.lessons.lessons[lesson].worded) is not None:
                one = _what_is_known(lesson, worded.practice[0].prompt)
                own.renewed[one.wanted] = one
        before = [one.anchor for one in own.anchors.values() if one.sort in ("general", "neighbour", "approved")]
        _drop(own, before, f"it was frozen before {e.pattern} settled")


def _lesson_worded(own: HoldingState, state: State, e: ev.LessonWorded, at_ns: int) -> None:
    """Want its neighbours held from before its first step on; those shared with an earlier lesson are held already,
    with the model's earlier answers."""
    _lesson_teaches(own, e.lesson, e.worded)
    there = own.wanted.keys() | {one.wanted for one in own.anchors.values()}
    for prompt in e.worded.neighbours:
        if (name := f"{NEIGHBOUR_NAME}{prompt}") not in there:
            own.wanted[name] = ev.AnchorWanted(name, "neighbour", (Turn("user", prompt),))


def _lesson_requested(own: HoldingState, state: State, e: ev.LessonRequested, at_ns: int) -> None:
    _lesson_teaches(own, e.lesson, state.lessons.lessons[e.lesson].worded)


def _lesson_teaches(own: HoldingState, lesson: str, worded: Worded | None) -> None:
    for key in keys_of(worded):
        _taught(own, key, f"lesson {lesson} teaches what it asks")


def _accepted(own: HoldingState, state: State, e: ev.ExampleAccepted, at_ns: int) -> None:
    """Drop anchors with other answers to the question of an accepted line. If the served model gave the answer,
    remember it: it is held itself once it is approved."""
    if not e.question or e.again_of:
        return
    _taught(own, e.question, f"example {e.example} answers what it asks")
    if any(one.answer for one in e.sampled):
        own.given[e.question] = e.example
        _keep_newest(own.given, GIVEN_MAX)


def _taught(own: HoldingState, question: str, reason: str) -> None:
    """Drop earlier answers to this question."""
    own.given.pop(question, None)
    own.approved.pop(question, None)
    _drop_question(own, question, reason)


def _approved(own: HoldingState, state: State, e: ev.ExampleApproved, at_ns: int) -> None:
    _approve(own, state, e.example)


def _rated(own: HoldingState, state: State, e: ev.FeedbackGiven, at_ns: int) -> None:
    if e.rating == "good" and e.example not in state.review.held:
        _approve(own, state, e.example)


def _flagged(own: HoldingState, state: State, e: ev.SignalFlagged, at_ns: int) -> None:
    if speaks_for(e.polarity, e.strength) and e.example not in state.review.held:
        _approve(own, state, e.example)


def _approve(own: HoldingState, state: State, example: str) -> None:
    """Want the served model's answer held, unless a lesson teaches the question."""
    question = next((question for question, one in own.given.items() if one == example), "")
    if question:
        del own.given[question]
        if question not in state.lessons.by_key:
            own.approved[question] = example
            _keep_newest(own.approved, APPROVED_MAX)


def _keep_newest(found: dict[str, str], most: int) -> None:
    if len(found) > most:
        del found[next(iter(found))]


def _disapproved(own: HoldingState, state: State, e: _Disapproved, at_ns: int) -> None:
    if not isinstance(e, ev.ExampleHeld):
        _drop_examples(own.given, {e.example})
    _no_longer(own, {e.example})


def _disapproved_several(own: HoldingState, state: State, e: _DisapprovedSeveral, at_ns: int) -> None:
    _drop_examples(own.given, set(e.examples))
    _no_longer(own, set(e.examples))


def _distrusted(own: HoldingState, state: State, e: ev.JudgeDistrusted, at_ns: int) -> None:
    _no_longer(own, {*e.recalled, *e.learned})


def _no_longer(own: HoldingState, examples: Collection[str]) -> None:
    """Drop everything of these examples: they are no longer approved or learned."""
    _drop_examples(own.approved, examples)
    for name in [name for name, one in own.wanted.items() if one.example in examples]:
        del own.wanted[name]
    found = [one.anchor for one in own.anchors.values() if one.example in examples]
    _drop(own, found, "its example was taken back")


def _drop_examples(found: dict[str, str], examples: Collection[str]) -> None:
    for question in [question for question, example in found.items() if example in examples]:
        del found[question]


def _drop_question(own: HoldingState, question: str, reason: str) -> None:
    if question in own.by_question:
        _drop(own, [own.by_question[question]], reason)


def _of_lesson(own: HoldingState, lesson: str) -> list[str]:
    return [one.anchor for one in own.anchors.values() if one.lesson == lesson]


def _drop(own: HoldingState, anchors: Collection[str], reason: str) -> None:
    """Stop holding these anchors."""
    for id_ in anchors:
        if (anchor := own.anchors.pop(id_, None)) is not None:
            own.pending.pop(id_, None)
            own.stale[id_] = reason
            if own.by_question.get(anchor.question) == id_:
                del own.by_question[anchor.question]


def _journal_carried(own: HoldingState, state: State, e: ev.JournalCarried, at_ns: int) -> None:
    """Forget answers of accepted lines: a continued journal repeats the acceptances."""
    own.given, own.approved = {}, {}


def _step_started(own: HoldingState, state: State, e: ev.StepStarted, at_ns: int) -> None:
    own.open = e.held
    own.turns += bool(e.held)
    for id_ in e.held:
        if (anchor := own.anchors.get(id_)) is not None:
            anchor.turn = own.turns


def _step_completed(own: HoldingState, state: State, e: ev.StepCompleted, at_ns: int) -> None:
    for id_, moved in zip(own.open, e.held, strict=False):  # e.held is empty if nothing was written
        if (anchor := own.anchors.get(id_)) is not None:
            anchor.moved = moved
    own.open = ()


def _step_failed(own: HoldingState, state: State, e: ev.StepFailed, at_ns: int) -> None:
    own.open = ()


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.EngineReady: _engine_ready,
    ev.AnchorWanted: _wanted,
    ev.AnchorFrozen: _frozen,
    ev.AnchorEncoded: _encoded,
    ev.AnchorFailed: _failed,
    ev.AnchorsRetired: _retired,
    ev.DreamJudged: _dream_judged,
    ev.PatternAdded: _patterns_changed,
    ev.PatternRetired: _patterns_changed,
    ev.PatternSettled: _pattern_settled,
    ev.LessonKnown: _lesson_known,
    ev.LessonWorded: _lesson_worded,
    ev.LessonRequested: _lesson_requested,
    ev.LessonFading: _lesson_falls,
    ev.LessonReplaced: _lesson_falls,
    ev.LessonGivenUp: _lesson_falls,
    ev.ExampleAccepted: _accepted,
    ev.ExampleApproved: _approved,
    ev.FeedbackGiven: _rated,
    ev.SignalFlagged: _flagged,
    ev.ExampleHeld: _disapproved,
    ev.ExampleDeclined: _disapproved,
    ev.ExampleEdited: _disapproved,
    ev.ExampleExpired: _disapproved_several,
    ev.ExampleWithdrawn: _disapproved_several,
    ev.ForgetRequested: _disapproved_several,
    ev.RollbackStarted: _disapproved_several,
    ev.JudgeDistrusted: _distrusted,
    ev.JournalCarried: _journal_carried,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.StepFailed: _step_failed,
}
