"""Selects the practices of the lesson under way that one step learns. Pure."""

from collections.abc import Iterable

from apollod.core.facts.holding import NEIGHBOUR_NAME, Kin
from apollod.core.facts.intake.state import Waiting
from apollod.core.facts.lessons.stages import Stage
from apollod.core.facts.lessons.state import LessonsState


def is_practice(own: LessonsState, example: str) -> bool:
    """True if the example belongs to the present round of practice."""
    return own.open is not None and example in own.open.examples


def kin_practised(own: LessonsState) -> Kin:
    """Ids of the lessons that share the form of the lesson under way, itself included, and names of its neighbours."""
    lesson = own.lessons[own.open.lesson] if own.open is not None else None
    if lesson is None or lesson.worded is None:
        return Kin()
    names = {f"{NEIGHBOUR_NAME}{prompt}" for prompt in lesson.worded.neighbours}
    return Kin({one.id for one in own.of_form(lesson)}, names)


def practised_now(own: LessonsState, queue: Iterable[Waiting], tokens_max: int) -> list[Waiting]:
    """Queued practices that the next step learns as one batch: of one objective, and as many as fit `tokens_max` when
    padded. None while others of the round are being prepared or tokenised; only one after a step of several failed."""
    if own.open is None or own.open.stage is not Stage.LEARNING:
        return []
    waiting = [one for one in queue if one.example in own.open.examples]
    if not waiting or not all(one.digest for one in waiting):
        return []
    first, longest, taken = waiting[0], 0, list[Waiting]()
    for one in waiting:
        longest = max(longest, one.tokens)
        if taken and (first.alone or one.alone or longest * (len(taken) + 1) > tokens_max):
            break
        if one.objective == first.objective:
            taken.append(one)
    return taken
