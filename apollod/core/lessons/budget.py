"""The limits of a course of a lesson: how many steps it may take, and how far other answers may move. Pure."""

from apollod.core.lessons.state import Lesson
from apollod.core.settings import LessonSettings


def left(lesson: Lesson, settings: LessonSettings) -> int:
    """Steps that this course may still take."""
    return max(0, settings.steps - (lesson.steps - lesson.budget_from))


def spent(lesson: Lesson, drifted: float, settings: LessonSettings) -> str:
    """Reason to give a lesson up that is not known yet; empty: it is practised on. `drifted`: nats a token, in this
    course."""
    if not left(lesson, settings):
        return f"{settings.steps} steps were not enough ([lessons] steps = {settings.steps})"
    if settings.drift and drifted > settings.drift:
        return f"other answers moved by {drifted:.3f} nats a token ([lessons] drift = {settings.drift:g})"
    return ""
