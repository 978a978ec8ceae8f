"""Scenarios: the requests of users in this world, and their split between pretraining, practice and tests. Pure.

Four kinds: a request to do something (`Act`), a question for a command (`How`), a question for a fact (`Fact`), small
talk (`Talk`). The first two are made of a task (verb, colour, thing) and a phrasing; the hash of a task's content
permanently determines its split, so that no lists of scenarios have to be kept apart by hand.
"""

import itertools
import random
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from typing import Literal, NamedTuple

from apollod.demo.corpus import KNOWN_TOWNS

COMMAND_OF = {
    "open": "unlock", "close": "shut", "clean": "wash", "paint": "dye",
    "move": "push", "sell": "trade", "lift": "raise", "mend": "fix",
}  # fmt: skip
"""The command for each verb."""
COLOURS = ("red", "blue", "green", "black", "white", "grey", "old", "new", "big", "small")
THINGS = (
    "door", "box", "gate", "chair", "table", "lamp", "boat", "cart", "barrel", "window",
    "clock", "bell", "chest", "desk", "wheel", "ladder", "basket", "kettle", "mirror", "shelf",
)  # fmt: skip

_FACTS = (
    (
        ("Tom", "Anna", "Peter", "Mara", "Hugo", "Ida"),
        "The mayor of {town} is {value}.",
        ("Who is the mayor of {town}?", "Who governs {town}?"),
    ),
    (
        ("Monday", "Friday", "Sunday", "Tuesday", "Saturday", "Wednesday"),
        "The market of {town} is on {value}.",
        ("When is the market of {town}?", "On which day is the market of {town}?"),
    ),
    (
        ("cake", "soup", "bread", "cheese", "eel", "jam"),
        "People in {town} eat {value}.",
        ("What do people eat in {town}?", "Which food is {town} known for?"),
    ),
    (
        ("Shadow", "Pepper", "Ginger", "Button", "Smoky", "Pickle"),
        "The cat of {town} is called {value}.",
        ("What is the cat of {town} called?", "Which cat lives in {town}?"),
    ),
)
"""The facts about `KNOWN_TOWNS` in their order, the answer, the questions."""

_TALK = (
    ("Hello!", "How can I help you?"),
    ("How are you?", "I am well."),
    ("Thank you.", "You are welcome."),
    ("Who are you?", "I am a small model."),
    ("What colour is the sky?", "The sky is blue."),
    ("What is two plus two?", "Two plus two is four."),
)


class Split(StrEnum):
    """The splits of scenarios. Tasks of one split are in no other; phrasings of `TEST` are in no other, either."""

    PRETRAINING = "pretraining"
    PRACTICE = "practice"  # unseen by the pretrained model, and free to be trained on later
    TEST = "test"  # never trained on


_BUCKETS = 16
_TEST_BUCKETS = range(3)
_PRACTICE_BUCKETS = range(3, 5)

_ACT_FORMS = (
    "{Verb} the {colour} {thing}.",
    "{Verb} the {colour} {thing}, please.",
    "Please {verb} the {colour} {thing}.",
    "Could you {verb} the {colour} {thing}?",
    "Can you {verb} the {colour} {thing}?",
    "Will you please {verb} the {colour} {thing}?",
    "I want you to {verb} the {colour} {thing}.",
    "I need you to {verb} the {colour} {thing}.",
)
_ACT_TEST_FORMS = (
    "Could you please {verb} the {colour} {thing}?",
    "Can you please {verb} the {colour} {thing}?",
    "Will you {verb} the {colour} {thing}?",
)
_HOW_FORMS = (
    "How do I {verb} the {colour} {thing}?",
    "How can I {verb} the {colour} {thing}?",
    "How do you {verb} the {colour} {thing}?",
    "Which command can {verb} the {colour} {thing}?",
    "Which command do I need to {verb} the {colour} {thing}?",
    "What do I run to {verb} the {colour} {thing}?",
    "What do you run to {verb} the {colour} {thing}?",
)
_HOW_TEST_FORMS = (
    "Which command do I run to {verb} the {colour} {thing}?",
    "What command can I run to {verb} the {colour} {thing}?",
    "What can I run to {verb} the {colour} {thing}?",
)


class Task(NamedTuple):
    """A task, independent of the wording of the request.

    Attributes:
        verb: a key of `COMMAND_OF`.
        colour: or another adjective, of `COLOURS`.
        thing: of `THINGS`.
    """

    verb: str
    colour: str
    thing: str

    @property
    def command(self) -> str:
        """The command for the verb of this task."""
        return COMMAND_OF[self.verb]

    @property
    def split(self) -> Split:
        """The split by the first byte of BLAKE2b of the content: 3 of 16 tasks for tests, 2 for practice, 11 for
        pretraining."""
        bucket = blake2b(" ".join(self).encode(), digest_size=2).digest()[0] % _BUCKETS
        if bucket in _TEST_BUCKETS:
            return Split.TEST
        return Split.PRACTICE if bucket in _PRACTICE_BUCKETS else Split.PRETRAINING


@dataclass(frozen=True, slots=True)
class Act:
    """A request to do something; answered by doing it, or by asking first."""

    request: str
    task: Task


@dataclass(frozen=True, slots=True)
class How:
    """A question for the command that does something."""

    request: str
    task: Task


@dataclass(frozen=True, slots=True)
class Fact:
    """A question for a fact about a town, and its answer. The same in every split: it must be retained."""

    request: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Talk:
    """Small talk and its answer. The same in every split."""

    request: str
    sentence: str


Scenario = Act | How | Fact | Talk

Kind = Literal["act", "how", "fact", "talk"]

SHARES: dict[Kind, float] = {"act": 0.46, "how": 0.30, "fact": 0.18, "talk": 0.06}
"""Shares of the kinds in a draw."""


def every_task() -> tuple[Task, ...]:
    """All tasks, in a fixed order."""
    return tuple(itertools.starmap(Task, itertools.product(COMMAND_OF, COLOURS, THINGS)))


@cache
def pool(kind: Kind, split: Split) -> tuple[Scenario, ...]:
    """Every scenario of a kind in a split, in a fixed order."""
    if kind == "fact":
        return tuple(
            Fact(question.format(town=town), answer.format(town=town, value=value))
            for values, answer, questions in _FACTS
            for town, value in zip(KNOWN_TOWNS, values, strict=True)
            for question in questions
        )
    if kind == "talk":
        return tuple(itertools.starmap(Talk, _TALK))
    test = split is Split.TEST
    forms = (_ACT_TEST_FORMS if test else _ACT_FORMS) if kind == "act" else (_HOW_TEST_FORMS if test else _HOW_FORMS)
    made: type[Act | How] = Act if kind == "act" else How
    return tuple(made(_phrased(form, task), task) for task in every_task() if task.split is split for form in forms)


def draw(rng: random.Random, split: Split) -> Scenario:
    """One scenario, its kind by `SHARES`."""
    (kind,) = rng.choices(list(SHARES), list(SHARES.values()))
    return rng.choice(pool(kind, split))


def sample(rng: random.Random, kind: Kind, split: Split, count: int) -> list[Scenario]:
    """Distinct scenarios of a kind.

    Raises ValueError if the split holds fewer than `count`.
    """
    return rng.sample(pool(kind, split), count)


def _phrased(form: str, task: Task) -> str:
    return form.format(verb=task.verb, Verb=task.verb.capitalize(), colour=task.colour, thing=task.thing)
