"""Selects the examples that a judge is asked about."""

from apollod.core.intake.events import Tier
from apollod.core.settings import JudgeMode


def wants_judge(mode: JudgeMode, tier: Tier, flagged: bool) -> bool:
    """True if an example that waits for no person waits for the judge. What somebody gave directly never does;
    `flagged`: there is a signal in it."""
    return tier == "bulk" and (mode == "all" or (mode == "flagged" and flagged))
