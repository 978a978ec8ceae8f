"""Finds the anchors that are still to be frozen, and decides whether steps wait for them. Pure."""

from collections.abc import Iterator

from apollod.core.facts.holding import APPROVED_NAME, SHIPPED_NAME, AnchorWanted, EncodeAnchors, FreezeAnchor
from apollod.core.kernel.composing import composed
from apollod.core.settings import Settings
from apollod.core.state import State

SHIPPED = 279
"""prompts in `data/anchors.jsonl`"""
FIRST = 16
"""anchors with which steps begin; steps of a lesson begin with all that ship: it repeats the same few tokens until they
are known, and with 16 a model on a busy machine lost five of 17 general answers to four facts. The rest is frozen when
nothing waits to be learned"""


def shipped_name(number: int) -> str:
    """Name of the prompt in line `number`, from 1."""
    return f"{SHIPPED_NAME}{number}"


def missing(state: State) -> Iterator[FreezeAnchor]:
    """Anchors to freeze, in this order: wanted ones, shipped ones, lessons' present answers, and approved ones."""
    yield from _first(state)
    yield from map(_asked_for, state.holding.renewed.values())
    for example in state.holding.approved.values():
        yield FreezeAnchor(f"{APPROVED_NAME}{example}", "approved", example=example)


def _first(state: State) -> Iterator[FreezeAnchor]:
    """Anchors that steps may wait for."""
    yield from map(_asked_for, state.holding.wanted.values())
    for number in range(1, SHIPPED + 1):
        if (name := shipped_name(number)) not in state.holding.settled:
            yield FreezeAnchor(name)


def _asked_for(one: AnchorWanted) -> FreezeAnchor:
    return composed(FreezeAnchor, one, example="")


def unencoded(state: State) -> list[EncodeAnchors]:
    """Ask a newly attached trainer to tokenise anchors that its predecessor may not have answered."""
    anchors = tuple(state.holding.pending)
    return [EncodeAnchors(anchors)] if anchors else []


def is_on(settings: Settings | None) -> bool:
    """True if steps hold anchors."""
    return settings is not None and settings.lessons.hold > 0.0


def urgent(state: State) -> bool:
    """True if steps wait for missing anchors: the first few, all that ship while a lesson is taught, and wanted
    ones."""
    own = state.holding
    some = len(own.anchors) < FIRST or state.lessons.open is not None
    return bool(own.wanted) or (some and next(_first(state), None) is not None)


def lacking(state: State) -> str:
    """Reason why a step waits for anchors; empty: it does not. If the engine does not answer, steps go on with the
    present anchors, since the missing ones may never come."""
    own = state.holding
    if not is_on(state.daemon.settings) or own.retry.failures or state.children.engine.phase != "ready":
        return ""
    usable = len(own.anchors) - len(own.pending)
    if urgent(state) or own.pending:
        needed = (FIRST if state.lessons.open is None else SHIPPED) + len(own.wanted)
        return f"what the model says is frozen first, to be held ({usable} of {needed} answers)"
    return ""
