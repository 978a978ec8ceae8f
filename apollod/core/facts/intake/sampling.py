"""Samples examples of a source that a person reviews before they are learned."""

from apollod.core.facts.intake.events import Tier


def is_held(example: str, tier: Tier, share: float) -> bool:
    """True if an example waits for a person: all examples of a source with `share` 1, else that share of those not
    given directly, chosen by the content id (hex), so that every run chooses the same."""
    if share >= 1.0:
        return True
    return share > 0.0 and tier != "direct" and int(example[:8], 16) < share * 2**32
