"""Selects the examples that are judged."""

from apollod.core.facts.intake.events import Tier
from apollod.core.settings import JudgeMode


def wants_judge(mode: JudgeMode, tier: Tier, flagged: bool) -> bool:
    """True if an example that is not held for a person waits for the judge. Direct examples never do; `flagged`: it has
    a signal."""
    return tier == "bulk" and (mode == "all" or (mode == "flagged" and flagged))
