"""Learns and holds lessons with the daemon's own parts: practices of a lesson as one batch, the warm-up of the first
steps, anchors chosen by need (`core.facts.holding`), the divergence from them in the same step.

Each lesson is practised until its checked answers are the greedy ones, with a mean probability of at least `SURE`, or
its budget is spent. The answers of the model that then knows it are frozen and held. A corrected lesson is neither held
nor tested any more. After each task all known lessons are tested again, and practised if they fail, at most
`Teaching.again` times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import fmean

from apollod.core.facts.holding import Anchor, HoldingState, Kin, Sort, held_by
from apollod.core.schedules import risen
from apollod.core.settings import LessonSettings, TrainerSettings
from apollod.demo.corpus import Message
from apollod.trainer.objectives.tokens import Tokens
from benchmarks.forgetting.learner import Model
from benchmarks.forgetting.lessons import Lesson, form, lessons, prompts
from benchmarks.forgetting.tasks import Task

WARMUP = TrainerSettings().warmup_steps
SURE = 0.3
"""probability of the whole answer: with greedy alone, one of 0.001 would pass, and the next lesson would destroy it"""
BUDGET = 72
"""steps of one course of a lesson"""
TOGETHER = 12
"""most practices of one step"""
FORMS = 8
"""prompts of a lesson with held answers"""


@dataclass(frozen=True)
class Teaching:
    """`hold`: weight of holding; `anchors`, `of_lessons`: numbers per step; `own`: hold the answers of known lessons;
    `again`: tests of known lessons after a task; `forms`: prompts of a lesson with held answers."""

    hold: float = 60.0
    anchors: int = 32
    of_lessons: int = 8
    own: bool = True
    again: int = 10
    forms: int = FORMS


class Course:
    """The lessons of one sequence, learned by one model."""

    def __init__(self, model: Model, teaching: Teaching, lr: float, seed: int, share: float) -> None:
        self._model, self._teaching, self._lr, self._seed = model, teaching, lr, seed
        self._settings = LessonSettings(hold=teaching.hold)
        self._holding = HoldingState()
        self._anchors: dict[str, Tokens] = {}
        self._known: dict[str, Lesson] = {}
        self.steps, self.given_up, self.faded = 0, 0, 0
        if teaching.hold:
            self._hold("approved", prompts(seed, share))

    def learn(self, task: Task) -> None:
        """Learn all lessons of a task."""
        for lesson in lessons(task, self._seed):
            self._drop(lesson.about)
            self._teach(lesson)
        for _ in range(self._teaching.again):
            failed = [one for one in self._known.values() if not self._passes(one, 0.0)]
            if not failed:
                break
            for one in failed:
                self.faded += 1
                self._drop(one.about)
                self._teach(one)

    def _teach(self, lesson: Lesson) -> None:
        practice = [self._model.encode(one) for one in lesson.practice]
        turns, kin = cycle(practice), self._kin(lesson)
        for _ in range(BUDGET):
            if self._passes(lesson, SURE):
                break
            self._step(list(islice(turns, min(TOGETHER, len(practice)))), kin)
        if not self._passes(lesson, SURE):
            self.given_up += 1
            return
        self._known[lesson.about] = lesson
        if self._teaching.hold and self._teaching.own:
            self._hold("lesson", lesson.prompts[: self._teaching.forms], lesson.about)

    def _passes(self, lesson: Lesson, sure: float) -> bool:
        found = self._model.says([self._model.encode(one) for one in lesson.checked])
        return all(greedy for greedy, _ in found) and fmean(share for _, share in found) >= sure

    def _kin(self, lesson: Lesson) -> Kin:
        """Lessons of the same form, and original answers: like the daemon's neighbour questions of a lesson."""
        own = lesson.form
        siblings = {about for about, one in self._known.items() if one.form == own and about != lesson.about}
        return Kin(siblings, {own} if own else ())

    def _step(self, batch: Sequence[Tokens], kin: Kin) -> None:
        own = self._holding
        tokens = sum(len(one.ids) for one in batch)
        teaching = self._teaching
        held = held_by(own, self._settings, tokens, kin, teaching.anchors, teaching.of_lessons)
        lr = self._lr * risen(self.steps, WARMUP)
        self.steps += 1
        done = self._model.step(
            batch, self.steps, lr, [self._anchors[one] for one in held], self._settings.hold if held else 0.0
        )
        own.turns += bool(held)
        for name, moved in zip(held, done.held, strict=False):  # empty if nothing was written
            own.anchors[name].moved, own.anchors[name].turn = moved, own.turns

    def _hold(self, sort: Sort, asked: Sequence[list[Message]], lesson: str = "") -> None:
        for prompt, tokens in self._model.frozen(asked):
            name = str(len(self._anchors))
            wanted = "" if lesson else form(prompt)
            self._anchors[name] = tokens
            self._holding.anchors[name] = Anchor(name, sort, wanted, lesson, len(tokens.ids), tokens.digest())

    def _drop(self, about: str) -> None:
        self._known.pop(about, None)
        for one in [one for one in self._holding.anchors.values() if one.lesson == about]:
            del self._holding.anchors[one.anchor]
