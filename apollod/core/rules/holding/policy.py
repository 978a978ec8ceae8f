"""Freezes anchors, and retires those that are no longer useful.

Nothing is learned meanwhile: an answer counts only if the weights did not change. Steps wait for the first few and for
wanted ones, steps of a lesson for all that ship; the others are frozen when nothing waits to be learned.
"""

from itertools import islice

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.holding import APPROVED_NAME, NEIGHBOUR_NAME, SHIPPED_NAME, drift_of
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rules.lessons.standing import standing
from apollod.core.schedules import RETRY_MAX_S, backoff_s
from apollod.core.shared.missing_anchors import is_on, missing, urgent
from apollod.core.state import State

AT_ONCE = 8
"""answers requested from the engine at the same time"""


def advance(state: State, now_ns: int) -> Outcome:
    """Record anchors that are no longer held as retired."""
    stale = state.holding.stale
    if not stale or state.daemon.settings is None:
        return nothing()
    reason = next(iter(stale.values()))
    return Outcome([ev.AnchorsRetired(anchors=tuple(one for one in stale if stale[one] == reason), reason=reason)], [])


def repeat(state: State, now_ns: int) -> list[fx.Effect]:
    """Calls by which the engine answers for the next anchors; repeated until an event records their outcome."""
    own = state.holding
    if state.daemon.stopping or not is_on(state.daemon.settings) or own.unable or not own.retry.is_due(now_ns):
        return []
    if (state.due and not urgent(state)) or blocked(Activity.FREEZING, state):
        return []
    return list(islice(missing(state), AT_ONCE))


def _on_answered(state: State, input_: inp.AnchorAnswered, now_ns: int) -> Outcome:
    """Freeze the answer, if the weights did not change meanwhile; else it is asked again."""
    own, version = state.holding, state.training.version
    ready = state.children.trainer.phase == "ready"
    wanted = own.wanted.get(input_.wanted) or own.renewed.get(input_.wanted)
    question, example = _asked(state, input_)
    if input_.wanted in own.settled or not (wanted or example or input_.wanted.startswith(SHIPPED_NAME)):
        return nothing()
    moving = not ready or state.training.running or state.rollback.wanted or state.rollback.under_way
    if moving or {input_.first, input_.last} - {-1, version}:
        return nothing()
    if question and (lesson := standing(state.lessons, question)) is not None:
        why = f"lesson {lesson.id} teaches what it asks"
        return Outcome([ev.AnchorFailed(wanted=input_.wanted, reason=why, gives_up="one")], [])
    frozen = composed(
        ev.AnchorFrozen, input_, lesson=wanted.lesson if wanted else "", weights_version=input_.last,
        question=question, example=wanted.example if wanted else example, pattern=wanted.pattern if wanted else "",
    )  # fmt: skip
    return Outcome([frozen], [fx.EncodeAnchors((input_.anchor,))])


def _asked(state: State, input_: inp.AnchorAnswered) -> tuple[str, str]:
    """Key of the question of an anchor, and the example whose approved answer it is; both empty for an anchor of a
    lesson."""
    if input_.wanted.startswith(APPROVED_NAME):
        example = input_.wanted.removeprefix(APPROVED_NAME)
        return next((pair for pair in state.holding.approved.items() if pair[1] == example), ("", ""))
    return (input_.question if input_.wanted.startswith((SHIPPED_NAME, NEIGHBOUR_NAME)) else ""), ""


def _on_failed(state: State, input_: inp.AnchorCallFailed, now_ns: int) -> Outcome:
    own, reason = state.holding, one_line(input_.reason)
    if input_.cause == "answer":
        return Outcome([ev.AnchorFailed(wanted=input_.wanted, reason=reason, gives_up="one")], [])
    if own.unable or not own.retry.is_due(now_ns):
        return nothing()  # several are asked at the same time, and the first failure counted for all
    if input_.cause == "unable":
        return Outcome([ev.AnchorFailed(wanted=input_.wanted, reason=reason, gives_up="all")], [])
    retry_s = backoff_s(own.retry.failures + 1, RETRY_MAX_S)
    return Outcome([ev.AnchorFailed(wanted=input_.wanted, reason=reason, retry_s=retry_s)], [])


def _on_encoded(state: State, input_: inp.EncodeDone, now_ns: int) -> Outcome:
    """Record tokenised anchors; retire those that the trainer cannot learn or whose prompt is cut."""
    events: list[ev.Event] = []
    for found in input_.results:
        anchor = state.holding.anchors.get(found.example)
        if anchor is None or anchor.digest:
            continue
        if found.refused or found.cut:
            why = found.refused or "it has more tokens than [trainer] max_tokens"
            events.append(ev.AnchorsRetired(anchors=(found.example,), reason=why))
        else:
            events.append(composed(ev.AnchorEncoded, found, anchor=found.example))
    return Outcome(events, [])


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Anchors: the model's earlier answers that steps hold."""

    hold: float = 0.0
    """as in [lessons]; 0: none is held"""
    anchors: int = 0
    """answers that can be held"""
    approved: int = 0
    """those among them that are approved answers of the model to users"""
    missing: int = 0
    """anchors still to be frozen"""
    moved: float | None = None
    """mean divergence from them, nats a token, as last measured; null: not measured yet"""
    reason: str = ""
    """why the last attempt to freeze failed; empty: all is well"""


def status(state: State) -> Holding:
    """Anchors that steps hold; empty if [lessons] hold is 0."""
    own, settings = state.holding, state.daemon.settings
    if settings is None or not settings.lessons.hold:
        return Holding()
    usable = [one for one in own.anchors.values() if one.digest]
    measured = any(one.moved is not None for one in own.anchors.values())
    return Holding(
        hold=settings.lessons.hold, anchors=len(usable), approved=sum(one.sort == "approved" for one in usable),
        missing=sum(1 for _ in missing(state)), moved=round(drift_of(own), 6) if measured else None, reason=own.error,
    )  # fmt: skip


HANDLERS: Handlers = {inp.AnchorAnswered: _on_answered, inp.AnchorCallFailed: _on_failed, inp.EncodeDone: _on_encoded}
