"""Estimates how far answers to anchors have drifted, from the losses that holding measures."""

from apollod.core.facts.holding import drift_of as holding_drift
from apollod.core.state import State


def drift_of(state: State) -> float:
    """Mean over the anchors of KL(frozen || now), nats a token, as last measured; 0.0 if nothing is held."""
    return holding_drift(state.holding)
