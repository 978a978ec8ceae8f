"""The part of `status` about lessons."""

from collections import Counter

import msgspec

from apollod.core.activities import Activity, blocked
from apollod.core.rules.dreams import status as dreams_status
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State


class Lessons(msgspec.Struct, frozen=True, kw_only=True):
    """Lessons of all kinds, by their state; a behaviour's id is its pattern's name."""

    waiting: int = 0
    """their turn has not come"""
    practising: int = 0
    known: int = 0
    fading: int = 0
    """were known, and wait for their turn"""
    replaced: int = 0
    """another lesson has another answer to the same question"""
    given_up: int = 0
    lesson: str = ""
    """the one under way; empty: none"""
    stage: str = ""
    """its stage"""
    reason: str = ""
    """why no lesson is asked or prepared now, or, if only behaviours are left, no dream is made; empty: nothing
    prevents it"""
    error: str = ""
    """why the last call had no usable answer; empty after a usable one"""
    due_at: float | None = None
    """Unix time at which a known one is asked again; null: none"""


def status(state: State, now_ns: int) -> Lessons:
    """The number of lessons in each state, and the present activity: for facts, else for behaviours."""
    own, dreams = state.lessons, state.dreams
    if not own.lessons and not dreams.courses:
        return Lessons()
    states = Counter(one.state for one in own.lessons.values()) + Counter(one.state for one in dreams.definitions)
    course = own.open
    due = own.due[0][0] if own.due else 0
    if course is None and not own.queue and any(one.phase == "active" for one in dreams.courses.values()):
        dream = dreams.open
        under_way = (dream.pattern, str(dream.stage)) if dream is not None else ("", "")
        reason, error = dreams_status.reason(state, now_ns), dreams.error
    else:
        under_way = (course.lesson, str(course.stage)) if course is not None else ("", "")
        reason, error = blocked(Activity.TEACHING, state), own.error
    return Lessons(
        waiting=states["waiting"], practising=states["practising"], known=states["known"], fading=states["fading"],
        replaced=states["replaced"], given_up=states["given up"], lesson=under_way[0], stage=under_way[1],
        reason=reason, error=error, due_at=due / SECOND_NS if due else None,
    )  # fmt: skip
