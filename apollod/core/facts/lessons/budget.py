"""Limits of a course of a lesson: its number of steps, and the drift of other answers. Pure."""

from apollod.core.facts.lessons.state import Lesson
from apollod.core.settings import LessonSettings


def left(lesson: Lesson, settings: LessonSettings) -> int:
    """Steps that this course may still take."""
    return max(0, settings.steps - (lesson.steps - lesson.budget_from))


def spent(lesson: Lesson, drifted: float, settings: LessonSettings) -> str:
    """Reason to give up a lesson that is not known yet; empty: practice goes on. `drifted`: nats a token, in this
    course."""
    if not left(lesson, settings):
        return f"{settings.steps} steps were not enough ([lessons] steps = {settings.steps})"
    if settings.drift and drifted > settings.drift:
        return f"other answers moved by {drifted:.3f} nats a token ([lessons] drift = {settings.drift:g})"
    return ""
