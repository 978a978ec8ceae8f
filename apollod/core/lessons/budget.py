"""What a course of a lesson may take. Pure."""

from apollod.core.lessons.state import Lesson
from apollod.core.settings import LessonSettings


def left(lesson: Lesson, settings: LessonSettings) -> int:
    """Practices that this course may still take."""
    return max(0, settings.steps - (lesson.practices - lesson.budget_from))


def spent(lesson: Lesson, drifted: float, settings: LessonSettings) -> str:
    """Reason to give a lesson up that is not known yet; empty: it is practised on. `drifted`: nats a token, in this
    course."""
    if not left(lesson, settings):
        return f"{settings.steps} practices were not enough ([lessons] steps = {settings.steps})"
    if settings.drift and drifted > settings.drift:
        return f"other answers moved by {drifted:.3f} nats a token ([lessons] drift = {settings.drift:g})"
    return ""
