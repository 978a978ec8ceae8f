"""The part of `status` about anchors."""

import msgspec

from apollod.core.facts.holding import drift_of
from apollod.core.shared.missing_anchors import missing
from apollod.core.state import State


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
