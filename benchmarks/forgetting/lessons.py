"""The sequence as lessons: one for each fact, in its wordings, and one for each pattern; and the prompts whose answers
by the model before stand for those that people approved. Pure.

What a lesson is checked with is neither practised nor asked for the figures. No anchor is a prompt of the figures:
known facts are asked in their other wording, instructions are told of other scenarios, small talk is left out.
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
"""as `LEARNED_AFTER` of the tasks: what a fact is checked after"""
APART = 1000
"""of the seeds of the two kinds of draws for anchors"""
CHECKED = 8
"""scenarios that a pattern is checked with"""
DRAWS, FORBIDDING = 200, 60
"""of ordinary use, for anchors; more of those that are told only what not to do, which is one in 25 of ordinary use"""


@dataclass(frozen=True, slots=True)
class Lesson:
    """`about`: what it answers; another lesson about the same replaces it. `practice`, `checked`: conversations with
    their answers."""

    about: str
    practice: list[list[Message]]
    checked: list[list[Message]]

    @property
    def prompts(self) -> list[list[Message]]:
        """In which it is practised."""
        return [one[:-1] for one in self.practice]

    @property
    def form(self) -> str:
        """See `form`."""
        return self.about if self.about in PATTERNS else form([{"role": "user", "content": self.about}])


def lessons(task: Task, seed: int) -> list[Lesson]:
    """Of a task, in the order in which their first examples come."""
    if task.name in PATTERNS:
        return [_pattern(task, seed)]
    found: dict[str, list[list[Message]]] = {}
    for one in task.learned:
        found.setdefault(one[-1]["content"], []).append(one)
    return [_fact(answer, practice) for answer, practice in found.items()]


def prompts(seed: int, share: float = 1.0) -> list[list[Message]]:
    """Of anchors: the probes of the guard but small talk, and draws of ordinary use."""
    probes = [one.messages for one in before(f"probes {seed}", share, wording=0) if one.group != "talk"]
    asked = {one.messages[-1]["content"] for one in before(f"asked {seed}")}
    used = [(one for one in _used(draw) if one[-1]["content"] not in asked) for draw in (seed, seed + APART)]
    forbidding = islice((one for one in used[1] if _only_forbids(one)), FORBIDDING)
    return list({str(one): one for one in (*probes, *islice(used[0], DRAWS), *forbidding)}.values())


def form(prompt: Sequence[Message]) -> str:
    """What prompts have in common that a lesson could be generalised to: what is asked of a town, or, where the system
    message forbids what a pattern does, its name. Empty: nothing of the sort."""
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
    """Ordinary use that a pattern leaves as it is: what is told, and facts."""
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
