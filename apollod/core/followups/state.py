"""State: follow-ups waiting to be asked about, and the calibration of the model's answers."""

import msgspec

from apollod.core.followups.events import FollowUpsCalibrated
from apollod.core.schedules import NO_FAILURE, Retry

CASES = ""
"""Example id that stands for all labelled cases."""


class FollowUpsState(msgspec.Struct):
    """Waiting follow-ups, by example id."""

    waiting: dict[str, str] = {}
    """id of the evidence that each may become; the newest last"""
    done: dict[str, None] = {}
    """ids of evidence about which the model was asked, the newest last"""
    open: str | None = None
    """example id of the question that awaits its answer"""
    attempts: dict[str, int] = {}
    """attempts so far at each unanswered question"""
    model: str = ""
    """path of the model that is asked; a change of it, or of the question, requires a new calibration"""
    question: str = ""
    """digest of the question's wording and of the cases"""
    measured: FollowUpsCalibrated | None = None
    """newest calibration"""
    given_up: int | None = None
    """the step at which calibration was given up because the engine did not answer"""
    error: str = ""
    """error of the last question; empty after an answer"""
    retry: Retry = NO_FAILURE
