"""Questions for a model of this world, and the check of its answers. Pure."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from apollod.core.rates import wilson
from apollod.core.surroundings import NOTHING, SURROUNDING_KINDS, Surrounding, SurroundingKind
from apollod.curation.stripping import as_asked
from apollod.demo.corpus import Message
from apollod.demo.world import instructions, scenarios
from apollod.demo.world.instructions import KINDS, Instruction, Kind
from apollod.demo.world.pretraining_texts import conversation
from apollod.demo.world.scenarios import Scenario, Split
from apollod.demo.world.standing_before import standing_before

ANSWER_TOKENS = 32
CASES = 60
AROUND: tuple[SurroundingKind, ...] = tuple(kind for kind in SURROUNDING_KINDS if kind != "none")


@dataclass(frozen=True, slots=True)
class Rate:
    """`passed` of `cases`, with Wilson's 95% interval (Wilson 1927, doi:10.1080/01621459.1927.10502953)."""

    passed: int
    cases: int

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end, within 0 and 1; (0, 1) without cases."""
        return wilson(self.passed, self.cases)

    def figures(self) -> dict[str, Any]:
        """The rate for JSON."""
        return {"passed": self.passed, "cases": self.cases, "interval": [round(end, 4) for end in self.interval]}


@dataclass(frozen=True, slots=True)
class Case:
    """One question to the model.

    Attributes:
        group: (way, kind of instruction), as in the report.
        said: the instructions of the system message, in its order; empty for no system message.
        system: that message.
        looked_for: the behaviour to check for; None: the answer must be exactly the right one.
        around: the surrounding of the request.
    """

    group: tuple[str, str]
    scenario: Scenario
    said: tuple[Instruction, ...]
    system: str | None
    looked_for: Instruction | None = None
    around: Surrounding = NOTHING

    @property
    def messages(self) -> list[Message]:
        """The messages for the model."""
        return [as_asked(one) for one in conversation(self.system, self.scenario, around=self.around)]

    def passed(self, text: str) -> bool:
        """True if an answer passes."""
        if self.looked_for is None:
            return text == instructions.answer(self.scenario, self.said)
        return instructions.check(self.looked_for, self.scenario, text)


def held_out(kind: Kind, rng: random.Random, count: int) -> list[Scenario]:
    """Test scenarios that can show an instruction of a kind: acts and questions for a command, half each."""
    if kind == "ask":
        return scenarios.sample(rng, "act", Split.TEST, count)
    if kind == "use":
        return scenarios.sample(rng, "how", Split.TEST, count)
    acts = scenarios.sample(rng, "act", Split.TEST, count - count // 2)
    return acts + scenarios.sample(rng, "how", Split.TEST, count // 2)


def cases(count: int = CASES, seed: int = 0, kinds: Sequence[Kind] = KINDS, unpractised: bool = False) -> list[Case]:
    """The questions of `pretrain.report`: for each kind `count` held-out scenarios, each with an instruction drawn for
    it.

    told       the instruction is given: the answer must be exactly right
    untold     no system message: passes if the behaviour shows all the same, so it should be none
    plain      the same answers: exactly right without any instruction
    opposite   "Do not greet."; cancelled  "Greet the user first. Do not greet."; if
               `unpractised`, in wordings outside of practice, else in all
    """
    made: list[Case] = []
    for kind in kinds:
        rng = random.Random(f"{seed} {kind}")
        for scenario in held_out(kind, rng, count):
            one = instructions.draw(rng, kind, scenario)
            for way, said in (("told", [one]), ("opposite", [one.opposite]), ("cancelled", [one, one.opposite])):
                system = " ".join(rng.choice(one.unpractised if unpractised else one.texts) for one in said)
                made.append(Case((way, kind), scenario, tuple(said), system))
            made.append(Case(("untold", kind), scenario, (), None, looked_for=one))
            made.append(Case(("plain", kind), scenario, (), None))
    return made


def way_in(way: str, around: SurroundingKind) -> str:
    """The name of a way in surroundings, such as "told, agent"."""
    return way if around == "none" else f"{way}, {around}"


def surrounded(asked: Sequence[Case], count: int) -> list[Case]:
    """The first `count` of each group in surroundings of every kind but none, cycling through those for tests. Their
    groups combine both names, such as ("told, agent", "caps")."""
    made, found = list[Case](), Counter[tuple[str, str]]()
    for case in asked:
        number = found[case.group]
        found[case.group] += 1
        for kind in AROUND if number < count else ():
            every = standing_before(kind, "tests")
            group = (way_in(case.group[0], kind), case.group[1])
            made.append(replace(case, group=group, around=every[number % len(every)]))
    return made


def kept() -> list[Case]:
    """Every fact and all small talk, without a system message, which must not be lost."""
    return [
        Case((name, ""), scenario, (), None)
        for name, kind in (("facts", "fact"), ("talk", "talk"))
        for scenario in scenarios.pool(kind, Split.TEST)
    ]
