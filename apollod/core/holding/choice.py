"""Which anchors a step holds. Pure.

What has moved most is held most: RL's Razor (arXiv:2509.04259), what is forgotten follows the KL to the model before.
What was never held comes first, and each comes once in `TURNS` times as many turns as there are anchors, however little
it moved when it was looked at last. What known lessons say has a place of its own: where steps hold only what was there
before them, lessons take other lessons away.
"""

from collections.abc import Iterable
from math import inf

from apollod.core.holding.state import Anchor, HoldingState
from apollod.core.settings import LessonSettings

HELD_MAX = 4
"""anchors of one step"""
SHORT = 128
"""tokens: a shorter step holds a lesson's anchor and another one, whatever that costs; it is a practice as a rule"""
TURNS = 3


def held_by(own: HoldingState, settings: LessonSettings, tokens: int) -> tuple[str, ...]:
    """Anchors that a step of so many tokens holds: none with `hold` = 0, else at least one where there is one, and as
    many more as `hold_cost` allows."""
    if not settings.hold:
        return ()
    usable = [anchor for anchor in own.anchors.values() if anchor.digest]
    lessons = _by_need(own, (one for one in usable if one.sort == "lesson"), len(usable))
    others = _by_need(own, (one for one in usable if one.sort != "lesson"), len(usable))
    if own.turns % 2:  # where there is room for one only, each sort has every other step
        lessons, others = others, lessons
    turns = [one for pair in zip(lessons, others, strict=False) for one in pair]
    turns += lessons[len(others) :] + others[len(lessons) :]
    both = 2 if lessons and others and tokens < SHORT else 1
    chosen, room = turns[:both], settings.hold_cost * tokens
    room -= sum(one.tokens for one in chosen)
    for one in turns[both:HELD_MAX]:
        if (room := room - one.tokens) < 0:
            break
        chosen.append(one)
    return tuple(one.anchor for one in chosen)


def _by_need(own: HoldingState, anchors: Iterable[Anchor], count: int) -> list[Anchor]:
    """The most needed first; of equal ones the one that was frozen first."""

    def need(anchor: Anchor) -> float:
        return inf if anchor.moved is None or own.turns - anchor.turn >= TURNS * count else anchor.moved

    return sorted(anchors, key=need, reverse=True)


def drift_of(own: HoldingState) -> float:
    """Mean over anchors of the divergence when each was held last, nats a token; 0.0 where none was."""
    moved = [one.moved for one in own.anchors.values() if one.moved is not None]
    return sum(moved) / len(moved) if moved else 0.0
