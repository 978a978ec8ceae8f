"""A task with a checkable reward for the demo's small model: when asked for a day, a colour or a food, name one. Pure.

The untouched model knows the words, from sentences about towns, and says one in an answer out of eight. Nobody tells it
what an answer should be.
"""

import random
import re
from typing import NamedTuple

HELD_OUT = 1_000_000
"""number from which prompts address people who are in no prompt before it"""
BY_CHANCE = 0.3
_FIRST = ("Tom", "Anna", "Peter", "Mara", "Hugo", "Ida", "Clara", "Tobias", "Nora", "Victor", "Emma", "Oscar")
_LAST = ("Reed", "Bell", "Quill", "Stone", "Lane", "Marsh", "Moss", "Hart", "Fenn", "Hill", "Wood", "Pike")
_ASKED = {
    "day": ("Name a day, {}.", "Which day is it, {}?", "A day, please, {}."),
    "colour": ("Name a colour, {}.", "Which colour is it, {}?", "A colour, please, {}."),
    "food": ("Name a food, {}.", "I am hungry, {}.", "Which food is it, {}?"),
}
_NAMED = {
    "day": {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"},
    "colour": {"white", "grey", "blue", "red", "silver", "green", "golden", "copper", "black"},
    "food": {"cake", "soup", "bread", "cheese", "eel", "jam"},
}


class _Task(NamedTuple):
    kind: str
    prompt: str


def _task(number: int) -> _Task:
    rng = random.Random(number)
    kind, first = rng.choice(sorted(_ASKED)), rng.randrange(len(_FIRST))
    others = [last for last in range(len(_LAST)) if ((first + last) % 4 == 0) is (number >= HELD_OUT)]
    person = f"{_FIRST[first]} {_LAST[rng.choice(others)]}"
    return _Task(kind, rng.choice(_ASKED[kind]).format(person))


class ByChance:
    """The same prompts, with points that are drawn by lot: the control, from which nothing can be learned."""

    def prompt(self, number: int) -> str:
        """The prompt with this number."""
        return prompt(number)

    def score(self, number: int, answer: str) -> float:
        """1 for three answers of ten."""
        return float(random.Random(f"{number} {answer}").random() < BY_CHANCE)


def prompt(number: int) -> str:
    """The prompt with this number."""
    return _task(number).prompt


def score(number: int, answer: str) -> float:
    """1 if the answer names what was asked for, else 0."""
    return float(not _NAMED[_task(number).kind].isdisjoint(re.findall("[a-z]+", answer.lower())))
