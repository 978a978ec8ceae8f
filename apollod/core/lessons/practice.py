"""The practices of the lesson under way that one step learns. Pure."""

from collections.abc import Iterable

from apollod.core.holding.choice import Kin
from apollod.core.holding.state import NEIGHBOUR_NAME
from apollod.core.intake.state import Waiting
from apollod.core.lessons.stages import Stage
from apollod.core.lessons.state import LessonsState


def is_practice(own: LessonsState, example: str) -> bool:
    """True if the example belongs to the round of practice that is under way."""
    return own.open is not None and example in own.open.examples


def kin_practised(own: LessonsState) -> Kin:
    """The lessons that have the form of the lesson under way, itself among them, and its neighbours."""
    lesson = own.lessons[own.open.lesson] if own.open is not None else None
    if lesson is None or lesson.worded is None:
        return Kin()
    names = {f"{NEIGHBOUR_NAME}{prompt}" for prompt in lesson.worded.neighbours}
    return Kin({one.id for one in own.of_form(lesson)}, names)


def practised_now(own: LessonsState, queue: Iterable[Waiting], tokens_max: int) -> list[Waiting]:
    """Practices that the next step learns as one batch, of those in the queue: of one objective, and as many as
    `tokens_max` has room for when the shorter ones are filled up. None while others of the round are prepared or
    tokenised, and one alone where a step of several failed."""
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
