"""Which follow-ups wait to be asked about, and how far the model's answers can be trusted."""

import msgspec

from apollod.core.followups.events import FollowUpsCalibrated

CASES = ""
"""stands for all cases where an example is named"""


class FollowUpsState(msgspec.Struct):
    """Follow-ups by their examples."""

    waiting: dict[str, str] = {}
    """the id of the evidence that each may become; the newest last"""
    done: dict[str, None] = {}
    """ids of evidence about which the model was asked, the newest last"""
    open: str | None = None
    """what the model is asked about"""
    attempts: dict[str, int] = {}
    """of what has no answer yet"""
    model: str = ""
    """path of the model that is asked; another one, or another question, is measured anew"""
    question: str = ""
    """digest of what is asked, and of the cases"""
    measured: FollowUpsCalibrated | None = None
    """how often the model was right"""
    given_up: int | None = None
    """the step at which the cases had no answer, for which the model was then given up"""
    error: str = ""
    """why the last question had no answer; empty after one that had"""
    failures: int = 0
    """in a row"""
    retry_ns: int = 0
    """not before"""
