"""One arm: a way to learn the whole sequence, one example after the other, each once."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from apollod.core.schedules import learning_rate
from apollod.core.settings import OptimizerName, TrainerSettings
from benchmarks.forgetting import guard
from benchmarks.forgetting.learner import Model
from benchmarks.forgetting.rehearsal import Rehearsal
from benchmarks.forgetting.tasks import Question, before, sequence

WARMUP = TrainerSettings().warmup


@dataclass(frozen=True)
class Arm:
    """`rehearse`: old examples for each new one."""

    optimizer: OptimizerName
    lr: float
    rehearse: float = 0.0
    guarded: bool = False


@dataclass
class Run:
    """Accuracy after each task (rows) on each so far (columns), see `measures`. `groups`: of task 0 at the end, by what
    was asked. `alarms`: of the guard; `lost`: steps that it took back."""

    tasks: list[str]
    matrix: list[list[float]] = field(default_factory=list)
    groups: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0
    alarms: int = 0
    lost: int = 0


def run(arm: Arm, seed: int, share: float = 1.0) -> Run:
    """Learn the sequence of a seed. Every task is a window of the daemon's: the learning rate rises over its first
    tenth. `seconds`: of one core, learning and looks of the guard, without what is asked for the figures."""
    tasks = sequence(seed, share)
    made = Run([task.name for task in tasks])
    model, old = Model(arm.optimizer), Rehearsal(arm.rehearse)
    watch = guard.Guard(model, before(f"probes {seed}", share, wording=0)) if arm.guarded else None
    encoded = [[model.encode(one) for one in task.learned] for task in tasks]
    flat = [tokens for each in encoded for tokens in each]
    number, step, since = 0, 0, 0
    for examples in encoded:
        began = time.process_time()
        for position in range(len(examples)):
            lr = learning_rate(arm.lr, position, len(examples), WARMUP)
            step, since = step + 1, since + 1
            model.step(flat[number], step, lr)
            old.learned(number)
            number += 1
            if (again := old.due(step)) is not None:
                step, since = step + 1, since + 1
                model.step(flat[again], step, lr)
            if watch is not None and (since >= guard.EVERY or position == len(examples) - 1):
                made.lost += since if watch.look() else 0
                since = 0
        made.seconds += time.process_time() - began
        known = [model.passed(one.asked) for one in tasks[: len(made.matrix) + 1]]
        made.matrix.append([fmean(each) for each in known])
        made.groups = _groups(tasks[0].asked, known[0])
    made.steps, made.alarms = step, watch.alarms if watch is not None else 0
    return made


def _groups(asked: Sequence[Question], passed: Sequence[bool]) -> dict[str, float]:
    found: dict[str, list[bool]] = {}
    for one, each in zip(asked, passed, strict=True):
        found.setdefault(one.group, []).append(each)
    return {name: fmean(each) for name, each in found.items()}
