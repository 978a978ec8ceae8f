"""One arm: a way to learn the whole sequence, one example after the other, each once, or as lessons."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from apollod.core.schedules import learning_rate
from apollod.core.settings import OptimizerName, TrainerSettings
from benchmarks.forgetting import guard
from benchmarks.forgetting.course import Course, Teaching
from benchmarks.forgetting.learner import Model
from benchmarks.forgetting.rehearsal import Rehearsal
from benchmarks.forgetting.tasks import Question, Task, before, sequence

WARMUP = TrainerSettings().warmup


@dataclass(frozen=True)
class Arm:
    """`rehearse`: old examples for each new one. `teaching`: how its lessons are taught, if it learns lessons."""

    optimizer: OptimizerName
    lr: float
    rehearse: float = 0.0
    guarded: bool = False
    teaching: Teaching | None = None


@dataclass
class Run:
    """Accuracy after each task (rows) on each earlier one (columns), see `measures`. `groups`: accuracy on task 0 at
    the end, by group. `alarms`: of the guard; `lost`: steps that it took back. `faded`: lessons that failed a later
    test; `given_up`: courses that ended with the lesson unknown."""

    tasks: list[str]
    matrix: list[list[float]] = field(default_factory=list)
    groups: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0
    alarms: int = 0
    lost: int = 0
    faded: int = 0
    given_up: int = 0


def run(arm: Arm, seed: int, share: float = 1.0) -> Run:
    """Learn the sequence of a seed. `seconds`: on one core, learning and looks of the guard, without measuring the
    figures."""
    tasks = sequence(seed, share)
    made = Run([task.name for task in tasks])
    model = Model(arm.optimizer)
    learner = (
        _Lessons(model, arm, arm.teaching, seed, share) if arm.teaching else _Examples(model, arm, tasks, seed, share)
    )
    for number, task in enumerate(tasks):
        began = time.process_time()
        learner.learn(task, made)
        made.seconds += time.process_time() - began
        known = [model.passed(one.asked) for one in tasks[: number + 1]]
        made.matrix.append([fmean(each) for each in known])
        made.groups = _groups(tasks[0].asked, known[0])
    return made


class _Lessons:
    """Every task is taught as lessons."""

    def __init__(self, model: Model, arm: Arm, teaching: Teaching, seed: int, share: float) -> None:
        self._course = Course(model, teaching, arm.lr, seed, share)

    def learn(self, task: Task, made: Run) -> None:
        self._course.learn(task)
        made.steps, made.faded, made.given_up = self._course.steps, self._course.faded, self._course.given_up


class _Examples:
    """Every task is one window of the daemon: the learning rate rises over its first tenth."""

    def __init__(self, model: Model, arm: Arm, tasks: Sequence[Task], seed: int, share: float) -> None:
        self._model, self._arm, self._old = model, arm, Rehearsal(arm.rehearse)
        self._watch = guard.Guard(model, before(f"probes {seed}", share, wording=0)) if arm.guarded else None
        self._encoded = {task.name: [model.encode(one) for one in task.learned] for task in tasks}
        self._flat = [tokens for each in self._encoded.values() for tokens in each]
        self._number, self._since = 0, 0

    def learn(self, task: Task, made: Run) -> None:
        planned = len(self._encoded[task.name])
        for position in range(planned):
            lr = learning_rate(self._arm.lr, position, planned, WARMUP)
            self._step(self._number, lr, made)
            self._old.learned(self._number)
            self._number += 1
            if (again := self._old.due(made.steps)) is not None:
                self._step(again, lr, made)
            if self._watch is not None and (self._since >= guard.EVERY or position == planned - 1):
                made.lost += self._since if self._watch.look() else 0
                made.alarms, self._since = self._watch.alarms, 0

    def _step(self, example: int, lr: float, made: Run) -> None:
        made.steps, self._since = made.steps + 1, self._since + 1
        self._model.step([self._flat[example]], made.steps, lr)


def _groups(asked: Sequence[Question], passed: Sequence[bool]) -> dict[str, float]:
    found: dict[str, list[bool]] = {}
    for one, each in zip(asked, passed, strict=True):
        found.setdefault(one.group, []).append(each)
    return {name: fmean(each) for name, each in found.items()}
