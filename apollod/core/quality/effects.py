"""What the world is asked to do: ask the probes, tell somebody of an alarm."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect
from apollod.core.quality.events import News
from apollod.core.quality.news import Message


class MeasureQuality(Effect, frozen=True):
    """Answered by `ProbesAnswered` or `ProbesFailed`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("number",)
    number: int


class TellAlarm(Effect, frozen=True):
    """Answered by `AlarmTold`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("incident", "about")
    incident: int
    about: News
    message: Message
