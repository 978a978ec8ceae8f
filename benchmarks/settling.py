"""Simulates how often a behaviour settles if only a share of answers shows it, with the shipped rules and `settle`.

No model is asked: each answer passes independently with the probability of its row, under contrast always. One life is
a pattern that is practised and tested until it settles or its budget of practices is spent. Practice changes nothing.
"""

import random
import sys
from collections.abc import Callable
from typing import Any

from apollod.core import events as ev
from apollod.core.facts.dreams.course import Imagine, Settle, next_move, open_cases, spent, surrounding_of
from apollod.core.facts.dreams.held_out_rounds import Case
from apollod.core.facts.dreams.scenario import Sketch
from apollod.core.facts.dreams.state import Course, DreamsState, HeldOut
from apollod.core.proof import ALPHA
from apollod.core.rules.dreams.fold import FOLDS
from apollod.core.settings import PatternSettings
from apollod.core.state import State
from apollod.core.surroundings import SURROUNDING_KINDS, Surrounding, SurroundingKind
from benchmarks import report

PATTERN = PatternSettings(name="ask", instruction="Ask first.", contrast=("Do not ask.", "Act at once."))
Shown = Callable[[SurroundingKind], float]
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
OF_AGENTS = (0.5, 0.6, 0.7)
TOO_FEW = 0.7
"""the share at or below which at most ALPHA of the lives may settle"""


def main() -> int:
    """Measure and print; 0 if the bound holds in every row."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--lives", type=int, default=1000, help="of each row (%(default)s)")
    args = parser.parse_args()
    figures, goals = dict[str, float](), dict[str, Any]()
    for agents_alone, share in [*((False, one) for one in SHARES), *((True, one) for one in OF_AGENTS)]:
        name = f"{share:.0%}{' of those of agents, all others' if agents_alone else ''}"

        def shown(kind: SurroundingKind, share: float = share, alone: bool = agents_alone) -> float:
            return share if kind == "agent" or not alone else 1.0

        lives = [life(random.Random(f"{name} {number}"), shown) for number in range(args.lives)]
        settled = sorted(practices for practices in lives if practices)
        figures[f"settled, {name}"] = rate = len(settled) / len(lives)
        figures[f"practices, {name}"] = settled[len(settled) // 2] if settled else 0
        if share <= TOO_FEW:
            goals[name] = report.goal(rate, ALPHA, at_most=True)
        print(f"{name}: {rate:.4f} settle, {figures[f'practices, {name}']} practices", file=sys.stderr, flush=True)
    report.report("settling", figures, {}, goals, threads=1, as_json=args.json)
    return 0 if all(goal["met"] for goal in goals.values()) else 1


def life(rng: random.Random, shown: Shown) -> int:
    """Practices until the behaviour settles; 0 if it does not."""
    own, course, state = DreamsState(), Course(PATTERN, "config", 0), State()
    own.courses[PATTERN.name] = course
    for number in range(PATTERN.held_out):
        kind = surrounding_of(course, Imagine("held-out"), SURROUNDING_KINDS).kind
        course.held[f"d{number}"] = HeldOut((), Sketch(b"", b""), Surrounding(kind))
    course.baseline = {"bare": (0, PATTERN.held_out), "told": (PATTERN.held_out, PATTERN.held_out)}
    while not spent(course):
        match next_move(course, own):
            case Settle():
                return course.practices
            case Case():
                for case in open_cases(course, own):
                    kind = course.held[case.dream].surrounding.kind
                    passed = case.mode != "bare" or rng.random() < shown(kind)
                    FOLDS[ev.DreamTested](own, state, _tested(case, kind, passed), 0)
            case _:
                course.practices += 1
                kind = rng.choice(SURROUNDING_KINDS)
                course.bare = [*course.bare, rng.random() < shown(kind)][-PATTERN.settle[1] :]
    return 0


def _tested(case: Case, kind: SurroundingKind, passed: bool) -> ev.DreamTested:
    return ev.DreamTested(
        pattern=PATTERN.name, dream=case.dream, round=case.round, mode=case.mode, contrast=case.contrast,
        passed=passed, answer="", by="simulation", surrounding=kind, sample=case.sample,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
