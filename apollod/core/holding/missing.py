"""Which anchors are still to be frozen, and whether steps wait for that. Pure."""

from collections.abc import Iterator

from apollod.core.holding.effects import EncodeAnchors, FreezeAnchor
from apollod.core.holding.state import SHIPPED_NAME
from apollod.core.settings import Settings
from apollod.core.state import State

SHIPPED = 80
"""prompts in `data/anchors.jsonl`"""
FIRST = 8
"""with so many steps begin; the rest are frozen when nothing waits to be learned"""


def shipped_name(number: int) -> str:
    """Of the prompt in that line, from 1."""
    return f"{SHIPPED_NAME}{number}"


def missing(state: State) -> Iterator[FreezeAnchor]:
    """In the order in which they are frozen: what somebody wants, then what ships."""
    for one in state.holding.wanted.values():
        yield FreezeAnchor(one.wanted, one.sort, one.prompt, one.answer)
    for number in range(1, SHIPPED + 1):
        if (name := shipped_name(number)) not in state.holding.settled:
            yield FreezeAnchor(name)


def unencoded(state: State) -> list[EncodeAnchors]:
    """What a trainer is asked to tokenise that has just come: its predecessor may not have answered."""
    anchors = tuple(state.holding.pending)
    return [EncodeAnchors(anchors)] if anchors else []


def is_on(settings: Settings | None) -> bool:
    """True if steps hold something."""
    return settings is not None and settings.lessons.hold > 0.0


def urgent(state: State) -> bool:
    """True if steps wait for what is missing: for the first few, and for what somebody wants."""
    own = state.holding
    return bool(own.wanted) or (len(own.anchors) < FIRST and next(missing(state), None) is not None)


def lacking(state: State) -> str:
    """Why a step waits for anchors; empty: it does not. It waits for nothing that may never come: where the engine does
    not answer, steps go on with the anchors that there are."""
    own = state.holding
    if not is_on(state.daemon.settings) or own.failures or state.children.engine.phase != "ready":
        return ""
    usable = len(own.anchors) - len(own.pending)
    if urgent(state) or own.pending:
        return f"what the model says is frozen first, to be held ({usable} of {FIRST + len(own.wanted)} answers)"
    return ""
