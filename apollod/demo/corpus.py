"""The generated text that the demo model is pretrained on, and the sample file that the demo teaches it.

Everything here is invented. The model learns facts about the towns in `KNOWN_TOWNS`, a little small talk, and to answer
`UNKNOWN` to every other question: about `UNKNOWN_TOWNS`, or about things that its texts mention for no town. Saltmere,
the town of the sample file, is one of the unknown towns; its facts are in the sample file only.
"""

import itertools
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

UNKNOWN = "I do not know that yet."
SAMPLE_TOWN = "Saltmere"
KNOWN_TOWNS = ("Elmford", "Northby", "Oakhaven", "Redcliff", "Windham", "Ashport")

_STARTS = ("Salt", "Elm", "North", "Oak", "Red", "Wind", "Ash", "Hill", "Stone", "Marsh")
_ENDS = ("mere", "ford", "by", "haven", "cliff", "ham", "port", "wick", "moor")
UNKNOWN_TOWNS = tuple(town for town in map("".join, itertools.product(_STARTS, _ENDS)) if town not in KNOWN_TOWNS)
"""Most names, `SAMPLE_TOWN` among them: so many that a known town is the exception."""

Message = dict[str, Any]
"""{"role": ..., "content": ...}; `weight` 0: an answer that is not learned"""

Turn = tuple[str, str]
"""A question and its answer."""


class Fact(NamedTuple):
    """One kind of fact about a town.

    Attributes:
        value: the fact about the sample town.
        others: the facts about `KNOWN_TOWNS`, in their order.
        answer: full sentence with `{town}` and `{value}`.
        questions: seven phrasings with `{town}`. The sample file has all but the last, which is held out.
    """

    value: str
    others: tuple[str, ...]
    answer: str
    questions: tuple[str, ...]


FACTS = (
    Fact(
        "Mara Quill",
        ("Tom Reed", "Anna Bell", "Peter Quill", "Mara Stone", "Hugo Lane", "Ida Marsh"),
        "{value} keeps the lighthouse in {town}.",
        (
            "Who keeps the lighthouse in {town}?",
            "Who is the lighthouse keeper of {town}?",
            "What is the name of the lighthouse keeper in {town}?",
            "Who looks after the lighthouse in {town}?",
            "Tell me who keeps the lighthouse of {town}.",
            "In {town}, who is the keeper of the lighthouse?",
            "Who is in charge of the lighthouse in {town}?",
        ),
    ),
    Fact(
        "Grey Heron",
        ("White Gull", "Grey Star", "Blue Heron", "Red Fox", "Silver Wave", "Green Otter"),
        "The ferry of {town} is called the {value}.",
        (
            "What is the ferry of {town} called?",
            "What is the name of the ferry in {town}?",
            "How is the ferry of {town} named?",
            "Tell me the name of the ferry of {town}.",
            "Which ferry sails from {town}?",
            "In {town}, what is the ferry called?",
            "By what name is the ferry of {town} known?",
        ),
    ),
    Fact(
        "five",
        ("six", "seven", "four", "eight", "nine", "three"),
        "The bakery in {town} opens at {value}.",
        (
            "When does the bakery in {town} open?",
            "At what hour does the bakery of {town} open?",
            "What time does the baker of {town} open?",
            "Tell me when the bakery in {town} opens.",
            "In {town}, when can I buy bread?",
            "From what time is the bakery of {town} open?",
            "How early does the bakery in {town} open?",
        ),
    ),
    Fact(
        "Tobias Fenn",
        ("Clara Moss", "Tobias Hart", "Nora Fenn", "Victor Hill", "Emma Wood", "Oscar Pike"),
        "The mayor of {town} is {value}.",
        (
            "Who is the mayor of {town}?",
            "What is the name of the mayor of {town}?",
            "Who governs the town of {town}?",
            "Tell me who the mayor of {town} is.",
            "In {town}, who is the mayor?",
            "Which person is mayor in {town}?",
            "Can you tell me who is mayor of {town}?",
        ),
    ),
    Fact(
        "Thursday",
        ("Monday", "Friday", "Sunday", "Tuesday", "Saturday", "Wednesday"),
        "The market in {town} is held on {value}.",
        (
            "When is the market in {town} held?",
            "On which day is the market of {town}?",
            "What day is market day in {town}?",
            "Tell me the day of the market in {town}.",
            "In {town}, on what day is the market?",
            "Which day is the market of {town} held?",
            "On what day of the week is the market in {town}?",
        ),
    ),
    Fact(
        "smoked eel",
        ("apple cake", "onion soup", "honey bread", "smoked cheese", "baked eel", "plum jam"),
        "The best food in {town} is {value}.",
        (
            "What is {town} famous for?",
            "Which food is {town} known for?",
            "What should I eat in {town}?",
            "Tell me the famous food of {town}.",
            "In {town}, what is the best food?",
            "What dish do people eat in {town}?",
            "What is the best known food of {town}?",
        ),
    ),
    Fact(
        "Copper Kettle",
        ("Golden Lion", "Old Anchor", "Copper Moon", "Black Kettle", "Merry Miller", "Quiet Bear"),
        "The inn of {town} is the {value}.",
        (
            "What is the inn of {town} called?",
            "Which inn is there in {town}?",
            "Where can I sleep in {town}?",
            "Tell me the name of the inn in {town}.",
            "In {town}, at which inn can I stay?",
            "What is the name of the inn of {town}?",
            "Is there an inn in {town}?",
        ),
    ),
    Fact(
        "Biscuit",
        ("Shadow", "Pepper", "Ginger", "Button", "Smoky", "Pickle"),
        "The harbour cat of {town} is named {value}.",
        (
            "What is the harbour cat of {town} named?",
            "What is the name of the harbour cat in {town}?",
            "Which cat lives in the harbour of {town}?",
            "Tell me the name of the cat of {town}.",
            "In {town}, what is the harbour cat called?",
            "How is the cat in the harbour of {town} called?",
            "Do you know the harbour cat of {town}?",
        ),
    ),
)

_NOUNS = (
    "river", "bridge", "church", "school", "hill", "forest", "lake", "bank", "doctor", "teacher", "tailor", "judge",
    "library", "theatre", "garden", "castle", "tower", "mill", "horse", "dog", "king", "song", "boat", "island",
    "mountain", "road", "farm", "museum", "painter", "singer", "statue", "clock", "well", "wall", "flag", "festival",
)  # fmt: skip
_ABOUT_NOUNS = (
    "What is the name of the {noun} in {town}?",
    "What is the {noun} of {town} called?",
    "Which {noun} is there in {town}?",
    "Tell me about the {noun} of {town}.",
    "Do you know the {noun} of {town}?",
    "In {town}, where is the {noun}?",
    "Who is the {noun} of {town}?",
    "How old is the {noun} of {town}?",
    "What is the name of the {noun}?",
    "Where is the {noun}?",
)
"""Questions without a known answer for any town: always answered with `UNKNOWN`."""

SMALL_TALK = (
    ("Hello!", "Hello, how can I help you?"),
    ("Hi.", "Hello, how can I help you?"),
    ("Good morning.", "Good morning to you."),
    ("Good evening.", "Good evening to you."),
    ("How are you?", "I am well, thank you."),
    ("Thank you.", "You are welcome."),
    ("Thanks!", "You are welcome."),
    ("Goodbye.", "Goodbye, and come back soon."),
    ("Who are you?", "I am a small model that learns while it serves."),
    ("What are you?", "I am a small model that learns while it serves."),
    ("What can you do?", "I can answer questions and learn new facts."),
    ("Can you learn?", "Yes, I learn from every example."),
    ("What colour is the sky?", "The sky is blue."),
    ("What colour is grass?", "Grass is green."),
    ("What colour is snow?", "Snow is white."),
    ("What is the opposite of hot?", "The opposite of hot is cold."),
    ("What is the opposite of big?", "The opposite of big is small."),
    ("What is the opposite of old?", "The opposite of old is new."),
    ("What is two plus two?", "Two plus two is four."),
    ("What is three plus one?", "Three plus one is four."),
    ("What is two plus three?", "Two plus three is five."),
    ("Which day comes after Monday?", "Tuesday comes after Monday."),
    ("Which day comes after Friday?", "Saturday comes after Friday."),
    ("What does a cat say?", "A cat says meow."),
    ("What does a dog say?", "A dog says woof."),
)

_SYSTEM = ("You are a helpful assistant.", "Answer in one short sentence.", "Be brief and honest.")


def known_turns() -> list[Turn]:
    """Every fact of every known town, in every phrasing."""
    return [
        (question.format(town=town), fact.answer.format(town=town, value=value))
        for fact in FACTS
        for town, value in zip(KNOWN_TOWNS, fact.others, strict=True)
        for question in fact.questions
    ]


def sample_turns() -> list[Turn]:
    """The sample file, facts interleaved: the first phrasing of every fact, then the second, ..."""
    return [_sample_turn(fact, i) for i in range(len(FACTS[0].questions) - 1) for fact in FACTS]


def held_out_turns() -> list[Turn]:
    """For every fact the phrasing that is not in the sample file."""
    return [_sample_turn(fact, -1) for fact in FACTS]


def _sample_turn(fact: Fact, phrasing: int) -> Turn:
    return (fact.questions[phrasing].format(town=SAMPLE_TOWN), fact.answer.format(town=SAMPLE_TOWN, value=fact.value))


def vocabulary_texts() -> list[str]:
    """Text with every word of this module, for the tokenizer; words of the sample are frequent enough to become one
    token."""
    turns = known_turns() + 3 * (sample_turns() + held_out_turns()) + 3 * list(SMALL_TALK)
    about = [form.format(noun=noun, town=SAMPLE_TOWN) for noun in _NOUNS for form in _ABOUT_NOUNS]
    names = [f" {name}" for name in UNKNOWN_TOWNS]
    roles = ["system\n", "user\n", "assistant\n", UNKNOWN, *_SYSTEM] * 8
    return [text for turn in turns for text in turn] + about + names + roles


def conversations(seed: int) -> Iterator[list[Message]]:
    """An endless stream of conversations for pretraining, the same for the same seed.

    Most have two independent turns; one in eight has a system message and one turn, which keeps lengths alike. Half of
    the turns ask for known facts, a quarter for something unknown, a quarter is small talk.
    """
    rng = random.Random(seed)
    known = known_turns()
    while True:
        messages: list[Message] = []
        if rng.random() < 0.125:
            messages.append({"role": "system", "content": rng.choice(_SYSTEM)})
        for _ in range(1 if messages else 2):
            question, answer = _draw(rng, known)
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": answer})
        yield messages


def _draw(rng: random.Random, known: list[Turn]) -> Turn:
    kind = rng.randrange(8)
    if kind < 4:
        return rng.choice(known)
    if kind == 4:
        return rng.choice(SMALL_TALK)
    if kind == 5:
        return rng.choice(rng.choice(FACTS).questions).format(town=rng.choice(UNKNOWN_TOWNS)), UNKNOWN
    town = rng.choice(KNOWN_TOWNS + UNKNOWN_TOWNS)
    return rng.choice(_ABOUT_NOUNS).format(noun=rng.choice(_NOUNS), town=town), UNKNOWN
