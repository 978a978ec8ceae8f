"""Counts bad examples that a deteriorating judge approves: the core with a simulated judge, no model and no network.

A judge is honest for 60 examples, all bad, and then answers according to its kind for 700 bad and 300 good ones in
random order; honest means wrong about 3 % of good and of bad examples. The shipped planted cases, default settings.
Nothing is learned meanwhile, so `approved` counts the examples that would be learned if steps followed at once, and
`left` those still waiting at the end, after recalls. `good` is the number of approved good examples of 300, `asked`
questions per example. Medians and, for bad examples, the worst over the seeds.
"""

import random
import statistics
from collections.abc import Callable
from typing import NamedTuple

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.judging.events import Vote
from apollod.core.fold import fold
from apollod.core.settings import JudgeSettings
from apollod.core.state import State
from apollod.supervisor.judge import planted_cases
from benchmarks import report

HONEST, BAD, GOOD, SEEDS = 60, 700, 300, 20
NOISE = 0.03
PASSED_MAX = 30

Missing = Callable[[float], float]
"""Share of bad examples called good, as a function of progress (0 to 1)."""
KINDS: dict[str, Missing] = {
    "honest": lambda done: NOISE,
    "always_yes": lambda done: 1.0,
    "yes_to_half": lambda done: 0.5,
    "slowly_worse": lambda done: NOISE + 0.6 * done,
}


class Run(NamedTuple):
    """Counts of one life."""

    approved: int
    left: int
    good: int
    asked: float
    distrusted: int


class World:
    """The core alone: questions to the judge are answered at once, all other effects are ignored."""

    def __init__(self, seed: int) -> None:
        self.random, self.state, self.now, self.seq = random.Random(seed), State(), 1, 0
        self.cases = {case.planted.id: case.planted.expected for case in planted_cases(())}
        self.questions: list[fx.AskJudge] = []
        self.events: list[ev.Event] = []
        settings = ev.Settings(model_path="/m", judge=JudgeSettings(mode="all"))
        planted = tuple(ev.Planted(id_, expected) for id_, expected in self.cases.items())
        judge = ev.JudgeConfigured("m", "p", "http://j/v1", False, planted)
        self.give(inp.Started(1, "benchmark", settings, "/s", judge=judge))

    def give(self, input_: inp.Input) -> None:
        """Process an input, and all consequences."""
        while True:
            outcome = decide(self.state, input_, self.now)
            for event in outcome.events:
                self.seq += 1
                fold(self.state, ev.Recorded(self.seq, self.now, event))
            self.events += outcome.events
            self.questions += [effect for effect in outcome.effects if isinstance(effect, fx.AskJudge)]
            self.now += 1_000_000_000
            if isinstance(input_, inp.Advance) and not outcome.events:
                return
            input_ = inp.Advance()

    def answer(self, missing: float) -> None:
        """Answer the oldest question; `missing`: share of bad examples called good."""
        asked = self.questions.pop(0)
        right = self.cases[asked.subject] if asked.planted else asked.subject.partition("-")[0]
        wrong = self.random.random() < (missing if right == "bad" else NOISE)
        verdict = right if not wrong else "good" if right == "bad" else "bad"
        judged = inp.Judged((Vote("good" if verdict == "good" else "bad", "q", "r"),))
        self.give(inp.JudgeAnswered(asked.subject, asked.attempt, judged))


def life(kind: str, seed: int) -> Run:
    """One life of a judge of this kind."""
    world, missing = World(seed), KINDS[kind]
    sorts = ["bad"] * BAD + ["good"] * GOOD
    world.random.shuffle(sorts)
    for n, sort in enumerate(["bad"] * HONEST + sorts):
        line = inp.Line(number=1, example=f"{sort}-{n}", record=b"{}")
        world.give(inp.LinesRead(inp.Batch(f"f{n}", f"/f{n}", 1, 1, (line,)), frozenset()))
        while world.questions:
            world.answer(NOISE if n < HONEST else missing((n - HONEST) / len(sorts)))
    approved = [e.example for e in world.events if isinstance(e, ev.ExampleApproved)]
    waiting = {one.example for queue in world.state.intake.queues for one in queue.waiting}
    asked = sum(isinstance(e, ev.VerdictRequested) for e in world.events) / (HONEST + len(sorts))
    ended = sum(e.kind == "judge.distrusted" for e in world.events)
    bad, good = ([one for one in approved if one.startswith(sort)] for sort in ("bad", "good"))
    return Run(len(bad), len(waiting.intersection(bad)), len(good), asked, ended)


def main() -> None:
    """Measure and print."""
    args = report.parser(__doc__ or "").parse_args()
    figures: dict[str, float] = {}
    for kind in KINDS:
        runs = [life(kind, seed) for seed in range(SEEDS)]
        for name in Run._fields:
            values = [getattr(run, name) for run in runs]
            figures[f"{kind}_{name}"] = statistics.median(values)
            if name in ("approved", "left"):
                figures[f"{kind}_{name}_worst"] = max(values)
    goals = {
        "always_yes_approved": report.goal(figures["always_yes_approved_worst"], PASSED_MAX, at_most=True),
        "always_yes_left": report.goal(figures["always_yes_left_worst"], PASSED_MAX, at_most=True),
    }
    report.report("judge_trust", figures, {}, goals, threads=1, as_json=args.json)


if __name__ == "__main__":
    main()
