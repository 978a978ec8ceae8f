"""Chooses the anchors that a step holds. Pure.

Anchors that moved most are held most: RL's Razor (arXiv:2509.04259), forgetting follows the KL to the model before.
Anchors never held come first, and each is held once in `TURNS` times as many turns as there are anchors, however little
it had moved. Answers of known lessons have a place of their own: if steps hold only answers from before the lessons,
lessons displace other lessons, those of their own form first.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple

from apollod.core.holding.events import Sort
from apollod.core.holding.state import Anchor, HoldingState
from apollod.core.settings import LessonSettings

HELD_MAX = 4
"""anchors of one step"""
SHORT = 128
"""tokens: a shorter step holds a lesson's anchor and another one at any cost; it is usually a practice"""
TURNS = 3
OF_PRACTICE, OF_LESSONS, OF_SIBLINGS, OF_NEIGHBOURS = 10, 4, 3, 2
"""anchors of a step that practises a lesson, at any cost; how many of them are of lessons, how many of these of its own
form, and how many of all are its neighbours"""

OF_BEHAVIOURS = 6
"""anchors of a step that practises a behaviour, at any cost: contrasts, where the behaviour is wrong, and answers under
the instruction, which would else be followed twice: told to reply with JSON, a model that had learned to do so untold
put JSON into JSON"""
BESIDE_BEHAVIOURS: tuple[Sort, ...] = ("contrast", "told")
CONTRAST_TOKENS = 1024
"""tokens of all of them, padded to the longest, beyond the first"""


class Kin(NamedTuple):
    """Ids of lessons of the practised form, and names of its neighbours. A step that teaches that one flag shows a
    heron first teaches that flags do."""

    siblings: Collection[str] = ()
    neighbours: Collection[str] = ()


def held_by(
    own: HoldingState,
    settings: LessonSettings,
    tokens: int,
    practice: Kin | None = None,
    of_practice: int = OF_PRACTICE,
    of_lessons: int = OF_LESSONS,
    room: float = inf,
) -> tuple[str, ...]:
    """Anchors that a step of `tokens` holds: none with `hold` = 0, else at least one if there is one, and as many more
    as `hold_cost` allows, or `of_practice` if it practises a lesson with this kin: it repeats the same few tokens until
    they are known, and nothing else moves a model so far for its size. The longest are left out while the batch, padded
    to the longest, exceeds `room` tokens."""
    if not settings.hold:
        return ()
    afford = max(SHORT, settings.hold_cost * tokens)
    usable = [
        one
        for one in own.anchors.values()
        if one.digest and (one.sort not in BESIDE_BEHAVIOURS or one.tokens <= afford)
    ]
    sizes = (of_practice, of_lessons)
    chosen = _chosen(own, settings, tokens, practice, sizes, usable)
    if filled([one.tokens for one in chosen]) > room:
        usable = [anchor for anchor in usable if anchor.tokens <= room]
        chosen = _chosen(own, settings, tokens, practice, sizes, usable)
    while chosen and filled([one.tokens for one in chosen]) > room:
        chosen.remove(max(reversed(chosen), key=lambda one: one.tokens))
    return tuple(one.anchor for one in chosen)


def held_beside_behaviour(own: HoldingState, settings: LessonSettings, room: float = inf) -> tuple[str, ...]:
    """Anchors of a step that practises a behaviour: contrasts of all practised behaviours and answers under an
    instruction; no others, since the model's earlier answers do not show the behaviour. Those that moved most take
    turns with those held longest ago: without that, six of forty kept each other's place with 0.01 nats a token, while
    others, at 0.2, were not held for a hundred steps. The batch, padded to the longest, has at most `room` tokens."""
    if not settings.hold:
        return ()
    usable = [one for one in own.anchors.values() if one.digest and one.sort in BESIDE_BEHAVIOURS]
    chosen = list[Anchor]()
    oldest = sorted(usable, key=lambda one: -1 if one.moved is None else one.turn)
    for one in chain.from_iterable(zip(_by_need(own, usable, len(usable)), oldest, strict=True)):
        tokens = filled([*(each.tokens for each in chosen), one.tokens])
        most = min(room, max(CONTRAST_TOKENS, one.tokens * (not chosen)))
        if len(chosen) < OF_BEHAVIOURS and tokens <= most and one not in chosen:
            chosen.append(one)
    return tuple(one.anchor for one in chosen)


def filled(lengths: Sequence[int]) -> int:
    """Tokens of a batch of sequences of these lengths, padded to the longest."""
    return max(lengths, default=0) * len(lengths)


def _chosen(
    own: HoldingState,
    settings: LessonSettings,
    tokens: int,
    practice: Kin | None,
    of_practice: tuple[int, int],
    usable: list[Anchor],
) -> list[Anchor]:
    """Anchors by need. `of_practice`: number for a practice, and how many of them are of lessons."""
    most, of_lessons = of_practice
    lessons = _by_need(own, (one for one in usable if one.sort == "lesson"), len(usable))
    others = _by_need(own, (one for one in usable if one.sort != "lesson"), len(usable))
    if practice is not None:
        siblings = [one for one in usable if one.lesson in practice.siblings]
        neighbours = [one for one in usable if one.wanted in practice.neighbours]
        lessons = _first(siblings, OF_SIBLINGS, own.turns, lessons)
        others = _first(neighbours, OF_NEIGHBOURS, own.turns, others)
        return [*lessons[: max(of_lessons, most - len(others))], *others][:most]
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
    return chosen


def _first(kin: list[Anchor], most: int, turn: int, anchors: list[Anchor]) -> list[Anchor]:
    """Put `most` of the kin first, by turns: their recorded divergence is old, and the coming step moves them."""
    at = turn * most % max(1, len(kin))
    begin = [*kin[at:], *kin[:at]][:most]
    return [*begin, *(one for one in anchors if one not in begin)]


def _by_need(own: HoldingState, anchors: Iterable[Anchor], count: int) -> list[Anchor]:
    """Sort by need, the most needed first; among equals the one frozen first."""

    def need(anchor: Anchor) -> float:
        return inf if anchor.moved is None or own.turns - anchor.turn >= TURNS * count else anchor.moved

    return sorted(anchors, key=need, reverse=True)


def drift_of(own: HoldingState) -> float:
    """Mean over anchors of the divergence when each was last held, nats a token; 0.0 if none was held."""
    moved = [one.moved for one in own.anchors.values() if one.moved is not None]
    return sum(moved) / len(moved) if moved else 0.0
