"""Measures how much a small model forgets while it learns one task after the other.

The world model (apollod/data/world-model) learns facts about new towns, a pattern, other facts, corrections of the
first ones, another pattern, facts again: one example a step, each once, in the same order in every arm. After each task
all earlier ones are tested, greedily, in contexts that were not learned, and so are the model's original abilities
(`before`). ACC, backward transfer and forgetting follow from the accuracies (benchmarks/forgetting/measures.py).

Arms, all from the same weights with the trainer's own step: `adamw` and `apollo` alone, `+rehearsal` with one old
example for ten new ones, `+guard` with the quality guard's test on probes (benchmarks/forgetting/guard.py), `+lessons`
as lessons that are practised until known, held, and tested again (benchmarks/forgetting/course.py), and reduced
variants: `-unheld` without any holding, `-own-unheld` without holding lessons' answers, `-once` without testing lessons
again, `-as-shipped` with the daemon's weight and number of anchors a step and one prompt a lesson.

The learning rate of each optimizer is the smallest of `--sweep` whose accuracy on newly learned tasks is within 0.02 of
its best, on the sequence of another seed; that of lessons was chosen by hand. `--seeds` are sequences with other towns,
values, corrections, examples and orders.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import fmean, stdev

from apollod.core.facts.holding import OF_LESSONS, OF_PRACTICE
from apollod.core.settings import LessonSettings
from benchmarks import report
from benchmarks.forgetting.arms import Arm, Run, run
from benchmarks.forgetting.course import Teaching
from benchmarks.forgetting.measures import measures

LR_ADAMW, LR_APOLLO = 3e-4, 3e-3
"""results of the sweep"""
LR_LESSONS = 7e-4
SHARE = 0.1
"""old examples for each new one"""
ARMS = {
    "adamw": Arm("adamw", LR_ADAMW),
    "adamw+rehearsal": Arm("adamw", LR_ADAMW, rehearse=SHARE),
    "apollo": Arm("apollo", LR_APOLLO),
    "apollo+rehearsal": Arm("apollo", LR_APOLLO, rehearse=SHARE),
    "apollo+guard": Arm("apollo", LR_APOLLO, guarded=True),
    "apollo+lessons": Arm("apollo", LR_LESSONS, teaching=Teaching()),
    "apollo+lessons-unheld": Arm("apollo", LR_LESSONS, teaching=Teaching(hold=0.0)),
    "apollo+lessons-own-unheld": Arm("apollo", LR_LESSONS, teaching=Teaching(own=False)),
    "apollo+lessons-once": Arm("apollo", LR_LESSONS, teaching=Teaching(again=0)),
    "apollo+lessons-as-shipped": Arm(
        "apollo", LR_LESSONS, teaching=Teaching(LessonSettings().hold, OF_PRACTICE, OF_LESSONS, forms=1)
    ),
}
SWEPT = (1e-4, 3e-4, 1e-3, 3e-3)
SWEEP_SEED = 100
QUICK = 0.34
"""share of the examples and cases"""


def main() -> None:
    arguments = report.parser(__doc__ or "")
    arguments.add_argument("--seeds", type=int, default=3, help="sequences of each arm")
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--arms", default=",".join(ARMS), help="of these, separated by commas")
    arguments.add_argument("--sweep", action="store_true", help="learning rates of both optimizers on another sequence")
    arguments.add_argument("--quick", action="store_true", help="one short sequence: says only that it runs")
    arguments.add_argument("--lr-adamw", type=float, default=LR_ADAMW)
    arguments.add_argument("--lr-apollo", type=float, default=LR_APOLLO)
    arguments.add_argument("--rehearse", type=float, default=SHARE, help="old examples for each new one, at most 1")
    arguments.add_argument("--jobs", type=int, default=2, help="runs at one time, of one thread each")
    args = arguments.parse_args()
    rates = {"adamw": args.lr_adamw, "apollo": args.lr_apollo}
    chosen = {name: ARMS[name] for name in args.arms.split(",")}
    arms = {
        name: replace(
            one, lr=one.lr if one.teaching else rates[one.optimizer], rehearse=args.rehearse if one.rehearse else 0.0
        )
        for name, one in chosen.items()
    }
    seeds: Sequence[int] = range(args.first_seed, args.first_seed + (1 if args.quick else args.seeds))
    if args.sweep:
        arms = {f"{name} {lr:g}": Arm(name, lr) for name in ("adamw", "apollo") for lr in SWEPT}
        seeds = (SWEEP_SEED,)
    found = _all(arms, seeds, QUICK if args.quick else 1.0, args.jobs)
    if not args.json:
        for name, runs in found.items():
            print(_table(name, runs), end="\n\n")
    report.report("forgetting", _figures(found), _ratios(found), {}, threads=args.jobs, as_json=args.json)


def _all(arms: Mapping[str, Arm], seeds: Sequence[int], share: float, jobs: int) -> dict[str, list[Run]]:
    """Every arm on every sequence, each in a process of one thread."""
    for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[key] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    began = time.monotonic()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        asked = {(name, seed): pool.submit(run, arm, seed, share) for seed in seeds for name, arm in arms.items()}
        found: dict[str, list[Run]] = {name: [] for name in arms}
        for (name, seed), one in asked.items():
            found[name].append(one.result())
            print(f"{name}, sequence {seed}: done after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            print(_table(name, found[name][-1:]), file=sys.stderr, flush=True)
    return found


def _spread(runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over sequences."""
    each = [
        measures(one.matrix) | {f"before/{name}": rate for name, rate in one.groups.items()}
        | {"steps": one.steps, "seconds": one.seconds, "alarms": one.alarms, "taken_back": one.lost}
        | {"faded": one.faded, "given_up": one.given_up}
        for one in runs
    ]  # fmt: skip
    return {
        name: (fmean(one[name] for one in each), stdev(one[name] for one in each) if len(each) > 1 else 0.0)
        for name in each[0]
    }


def _mean(runs: Sequence[Run]) -> list[list[float]]:
    return [[fmean(cells) for cells in zip(*rows, strict=True)] for rows in zip(*(r.matrix for r in runs), strict=True)]


def _figures(found: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, runs in found.items():
        for what, (mean, spread) in _spread(runs).items():
            figures |= {f"{name}/{what}": mean, f"{name}/{what}, sd": spread}
        tasks = runs[0].tasks
        for after, row in zip(tasks, _mean(runs), strict=True):
            figures |= {f"{name}/after {after}/{task}": cell for task, cell in zip(tasks, row, strict=False)}
    return figures


def _ratios(found: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """Ratios of each arm to its plain optimizer."""
    ratios: dict[str, float] = {}
    for name, runs in found.items():
        plain = found.get(name.partition("+")[0])
        if plain is None or plain is runs:
            continue
        own, other = _spread(runs), _spread(plain)
        for what in ("forgetting", "new", "seconds"):
            if other[what][0]:
                ratios[f"{name}/{what}"] = own[what][0] / other[what][0]
    return ratios


def _table(name: str, runs: Sequence[Run]) -> str:
    """The mean matrix in percent, a row after each task."""
    tasks = runs[0].tasks
    width = max(map(len, tasks))
    own = _spread(runs)
    lines = [f"{name}: " + ", ".join(f"{what} {mean:.3f} ({sd:.3f})" for what, (mean, sd) in own.items())]
    lines.append(" " * width + "".join(f"{task:>{width + 2}}" for task in tasks))
    for after, row in zip(tasks, _mean(runs), strict=True):
        lines.append(f"{after:<{width}}" + "".join(f"{100 * cell:>{width + 2}.0f}" for cell in row))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
