"""Holding: the model's earlier answers, kept while it learns. Events, inputs, effects and state."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from math import inf
from typing import ClassVar, Literal, NamedTuple

import msgspec

from apollod.core.facts.dreams.scenario import Turn
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.schedules import NO_FAILURE, Retry
from apollod.core.settings import LessonSettings
from apollod.core.surroundings import NOTHING, Surrounding

# --- events ----------------------------------------------------------------------------------------------------------

Sort = Literal["general", "neighbour", "approved", "lesson", "contrast", "told"]
"""The sort of an anchor. general: any prompt; neighbour: a short question like those of lessons; approved: an answer
that the served model gave, and that a person, a judge or evidence approved; lesson: the answer of a known lesson;
contrast: a good answer where a behaviour that dreams practise would be wrong; told: an answer that a practice learned
untold, under the instruction."""


class AnchorWanted(Event, frozen=True):
    """Intent: the model's answer to `prompt` is to be held from now on. `wanted`: name of the anchor. `answer`: an
    answer that the model gave; empty: ask for one. `lesson`: id, for the answer of a lesson. `around`: context before
    the prompt; `system`: system message held with it; `told`: the one that replaces it when the model's distribution
    over the answer is recorded; empty: the same. `pattern`, `example`: for a contrast or an answer under an
    instruction, the pattern and the learned example."""

    kind: ClassVar[str] = "anchor.wanted"
    wanted: str
    sort: Sort
    prompt: tuple[Turn, ...]
    answer: str = ""
    lesson: str = ""
    around: Surrounding = NOTHING
    system: str = ""
    told: str = ""
    pattern: str = ""
    example: str = ""

    def key(self) -> str:
        return self.wanted


class AnchorFrozen(Event, frozen=True):
    """The model's answer to a prompt was recorded, with its log-probabilities at each token. `anchor`: BLAKE2b-128 of
    the canonical `record` and the digest of `teacher`, which names the file with the distribution; `wanted`: name of an
    `anchor.wanted`, of a prompt that ships, or of an approved answer; `weights_version`: -1: not known; `question`: key
    of the question in its prompt, see `ExampleAccepted`; `example`: the one that learned the approved answer, the
    contrast, or the answer under an instruction; `pattern`: of the latter two."""

    kind: ClassVar[str] = "anchor.frozen"
    anchor: str
    record: msgspec.Raw
    teacher: str
    sort: Sort
    wanted: str
    lesson: str = ""
    weights_version: int = -1
    seconds: float = 0.0
    question: str = ""
    example: str = ""
    pattern: str = ""

    def key(self) -> str:
        return self.anchor


class AnchorEncoded(Event, frozen=True):
    """The anchor was tokenised, with fields as in `example.encoded`, and can be held. `targets`: tokens of the
    answer."""

    kind: ClassVar[str] = "anchor.encoded"
    anchor: str
    tokens: int
    targets: int
    digest: str

    def key(self) -> str:
        return self.anchor


class AnchorFailed(Event, frozen=True):
    """The anchor could not be frozen. `gives_up`: not tried again (`one`), or none is in this life of the daemon
    (`all`: the engine cannot return log-probabilities of tokens); else retried after `retry_s`."""

    kind: ClassVar[str] = "anchor.failed"
    wanted: str
    reason: str
    gives_up: Literal["", "one", "all"] = ""
    retry_s: float = 0.0

    def key(self) -> str:
        return self.wanted


class AnchorsRetired(Event, frozen=True):
    """Anchors that are no longer held; steps that held them can still be run again."""

    kind: ClassVar[str] = "anchor.retired"
    anchors: tuple[str, ...]
    reason: str


# --- inputs ----------------------------------------------------------------------------------------------------------


class AnchorAnswered(Input, frozen=True):
    """Answers `FreezeAnchor`: see `AnchorFrozen`. `first`, `last`: first and last version of the weights during the
    call; -1: not known. `question`: key of the prompt's question, see `ExampleAccepted`."""

    wanted: str
    anchor: str
    record: msgspec.Raw
    teacher: str
    sort: Sort
    first: int = -1
    last: int = -1
    seconds: float = 0.0
    question: str = ""


class AnchorCallFailed(Input, frozen=True):
    """`FreezeAnchor` failed. `cause`: answer, this answer cannot be used; busy, the engine did not answer; unable, it
    cannot answer such questions."""

    wanted: str
    cause: Literal["answer", "busy", "unable"]
    reason: str


# --- effects ---------------------------------------------------------------------------------------------------------


class FreezeAnchor(Effect, frozen=True):
    """Have the served model answer, with its distribution at each token; answered by `AnchorAnswered` or
    `AnchorCallFailed`. Without a `prompt`: use the shipped prompt named `wanted`, or the question of the `example`
    whose answer was approved. `answer`, `around`, `system`, `told`: see `AnchorWanted`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("wanted",)
    wanted: str
    sort: Sort = "general"
    prompt: tuple[Turn, ...] = ()
    answer: str = ""
    example: str = ""
    around: Surrounding = NOTHING
    system: str = ""
    told: str = ""


class EncodeAnchors(Effect, frozen=True):
    """Have the trainer tokenise these anchors; answered by `EncodeDone`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("anchors",)
    anchors: tuple[str, ...]


# --- state -----------------------------------------------------------------------------------------------------------

SHIPPED_NAME = "shipped:"
"""prefix, before its line number from 1, of the name of a shipped prompt"""
APPROVED_NAME = "approved:"
"""prefix, before its example, of the name of an approved answer"""
NEIGHBOUR_NAME = "neighbour:"
"""prefix, before its prompt, of the name of an answer to a question of a lesson's form about something else"""


CONTRAST_NAME = "contrast:"
"""prefix, before its dream, of the name of a good answer where a behaviour would be wrong"""
TOLD_NAME = "told:"
"""prefix, before its dream, of the name of an answer that a practice learned untold, under its instruction"""


class Anchor(msgspec.Struct, gc=False):
    """An answer of the model that steps hold, see `AnchorFrozen`. `digest` is empty until it is tokenised."""

    anchor: str
    sort: Sort
    wanted: str
    lesson: str = ""
    tokens: int = 0
    digest: str = ""
    moved: float | None = None
    """divergence when it was last held, nats a token; None: not held yet"""
    turn: int = 0
    """number, among steps that held anchors, of the step that last held it"""
    question: str = ""
    """see `ExampleAccepted`"""
    example: str = ""
    pattern: str = ""


class HoldingState(msgspec.Struct):
    """The anchors, and the state of freezing more of them."""

    anchors: dict[str, Anchor] = {}
    """by id, in the order in which they were frozen"""
    pending: dict[str, None] = {}
    """ids of those that were not tokenised yet"""
    wanted: dict[str, AnchorWanted] = {}
    """anchors to freeze besides those that ship; by name"""
    renewed: dict[str, AnchorWanted] = {}
    """answers of known lessons, to be frozen again when nothing waits; by name"""
    given: dict[str, str] = {}
    """example by question, for the newest answers of the served model that are not approved yet"""
    approved: dict[str, str] = {}
    """approved ones among these, to be frozen when nothing waits"""
    by_question: dict[str, str] = {}
    """anchor by question, except for those of lessons"""
    stale: dict[str, str] = {}
    """anchors no longer held that were not retired yet: reason by id"""
    settled: dict[str, None] = {}
    """names of shipped prompts that are frozen, or cannot be"""
    open: tuple[str, ...] = ()
    """anchors that the running step holds"""
    turns: int = 0
    """number of steps that held anchors"""
    retry: Retry = NO_FAILURE
    """of questions that the engine did not answer"""
    error: str = ""
    """why the last attempt to freeze failed"""
    unable: bool = False
    """the engine cannot answer such questions in this life of the daemon"""


# --- choice ----------------------------------------------------------------------------------------------------------
# Chooses the anchors that a step holds.
#
# Anchors that moved most are held most: RL's Razor (arXiv:2509.04259), forgetting follows the KL to the model before.
# Anchors never held come first, and each is held once in `TURNS` times as many turns as there are anchors, however
# little it had moved. Answers of known lessons have a place of their own: if steps hold only answers from before the
# lessons, lessons displace other lessons, those of their own form first.

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
