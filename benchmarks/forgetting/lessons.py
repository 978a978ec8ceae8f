"""The sequence as lessons: one for each fact, in its wordings, and one for each pattern; and the prompts whose original
answers serve in place of answers approved by people. Pure.

The checks of a lesson are neither practised nor part of the measurement. No anchor is a measured prompt: known facts
are asked in their other wording, instructions apply to other scenarios, small talk is left out.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

from apollod.demo.corpus import KNOWN_TOWNS, UNKNOWN_TOWNS, Message
from apollod.demo.world import instructions, reading, scenarios
from apollod.demo.world.pretraining_texts import NEUTRAL, conversation, conversations
from apollod.demo.world.scenarios import Fact, Split
from benchmarks.forgetting.tasks import PATTERNS, Task, before, subjects

CHECKED_AFTER = ((NEUTRAL[0], "Please: "), (None, "Well: "))
"""context of a fact's check, in the form of `LEARNED_AFTER`"""
APART = 1000
"""offset between the seeds of the two draws for anchors"""
CHECKED = 8
"""scenarios of a pattern's check"""
DRAWS, FORBIDDING = 200, 60
"""prompts of ordinary use, for anchors; and more with only prohibitions, which are one in 25 of ordinary use"""


@dataclass(frozen=True, slots=True)
class Lesson:
    """`about`: its subject; another lesson on the same subject replaces it. `practice`, `checked`: conversations with
    their answers."""

    about: str
    practice: list[list[Message]]
    checked: list[list[Message]]

    @property
    def prompts(self) -> list[list[Message]]:
        """The practice conversations without their last message, the answer."""
        return [one[:-1] for one in self.practice]

    @property
    def form(self) -> str:
        """See `form`."""
        return self.about if self.about in PATTERNS else form([{"role": "user", "content": self.about}])


def lessons(task: Task, seed: int) -> list[Lesson]:
    """The lessons of a task, in the order of their first examples."""
    if task.name in PATTERNS:
        return [_pattern(task, seed)]
    found: dict[str, list[list[Message]]] = {}
    for one in task.learned:
        found.setdefault(one[-1]["content"], []).append(one)
    return [_fact(answer, practice) for answer, practice in found.items()]


def prompts(seed: int, share: float = 1.0) -> list[list[Message]]:
    """Prompts of anchors: the guard's probes without small talk, and draws of ordinary use."""
    probes = [one.messages for one in before(f"probes {seed}", share, wording=0) if one.group != "talk"]
    asked = {one.messages[-1]["content"] for one in before(f"asked {seed}")}
    used = [(one for one in _used(draw) if one[-1]["content"] not in asked) for draw in (seed, seed + APART)]
    forbidding = islice((one for one in used[1] if _only_forbids(one)), FORBIDDING)
    return list({str(one): one for one in (*probes, *islice(used[0], DRAWS), *forbidding)}.values())


def form(prompt: Sequence[Message]) -> str:
    """The class of prompts to which a lesson could be overgeneralised: the question about a town, or the name of a
    pattern if the system message forbids it. Empty: neither."""
    system, request = prompt[0]["content"] if len(prompt) > 1 else "", prompt[-1]["content"]
    scenario = reading.scenario_of(request)
    said = reading.said_in(system, scenario) or ()
    for name, (_, one) in PATTERNS.items():
        last = [each.negated for each in said if each.kind == one.kind][-1:]
        if scenario is not None and one.applies(scenario) and last == [True]:
            return name
    return _asked_of_towns().get(request, "")


@cache
def _asked_of_towns() -> Mapping[str, str]:
    """Every question about a town, and the form of its answer."""
    return {
        wording.format(town=town): one.answer
        for one in subjects()
        for wording in one.wordings
        for town in (*KNOWN_TOWNS, *UNKNOWN_TOWNS)
    }


def _only_forbids(prompt: Sequence[Message]) -> bool:
    said = reading.said_in(prompt[0]["content"]) if len(prompt) > 1 else None
    return bool(said) and all(one.negated for one in said)


def _used(seed: int) -> Iterator[list[Message]]:
    """Ordinary use that a pattern does not change: instructed requests, and facts."""
    for one in conversations(seed, Split.PRACTICE):
        told = one[0]["role"] == "system" and one[0]["content"] not in NEUTRAL
        if told or isinstance(reading.scenario_of(one[-2]["content"]), Fact):
            yield one[:-1]


def _fact(answer: str, practice: list[list[Message]]) -> Lesson:
    bare = sorted({one[-2]["content"].removeprefix("Please: ") for one in practice})
    checked = [
        conversation(system, Fact(opening + wording, answer), answer)
        for wording in bare
        for system, opening in CHECKED_AFTER
    ]
    return Lesson(bare[0], practice, checked)


def _pattern(task: Task, seed: int) -> Lesson:
    kind, one = PATTERNS[task.name]
    practised = {each[-2]["content"] for each in task.learned}
    others = [each for each in scenarios.pool(kind, Split.PRACTICE) if each.request not in practised]
    chosen = random.Random(f"checked {seed} {task.name}").sample(others, CHECKED)
    return Lesson(
        task.name, task.learned, [conversation(None, each, instructions.answer(each, [one])) for each in chosen]
    )
