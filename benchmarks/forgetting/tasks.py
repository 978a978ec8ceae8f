"""The sequence of tasks, and the questions for each. Pure: the same for the same seed.

Everything stays in the world that the small model knows (apollod/demo/world). No question was learned in the same
words: facts are asked with an opening and after a system message that their examples lack; patterns are learned on the
practice split and tested on the test split, whose tasks and phrasings are in no other. (Asked in a wording learned only
for other towns, a model so small answers at chance.)
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from apollod.demo.corpus import KNOWN_TOWNS, UNKNOWN_TOWNS, Message
from apollod.demo.world import exam, instructions, reading, scenarios
from apollod.demo.world.exam import Case
from apollod.demo.world.instructions import Instruction
from apollod.demo.world.pretraining_texts import NEUTRAL, conversation
from apollod.demo.world.scenarios import Fact, Split

TOWNS = 3
"""new towns of each task of facts, with as many facts each as the known ones"""
CORRECTED = 4
"""facts of the first task that are corrected later; the first task's questions exclude them"""
PATTERN_EXAMPLES, PATTERN_CASES = 60, 30
TOLD, OPPOSITE = 5, 3
"""cases of each kind of instruction in task 0"""
PATTERNS: dict[str, tuple[scenarios.Kind, Instruction]] = {
    "ask first": ("act", Instruction("ask")), "end with a word": ("how", Instruction("end", "Over")),
}  # fmt: skip
"""behaviours without a system message, each on the one kind of scenario that it applies to"""

LEARNED_AFTER = ((None, ""), (None, "Please: "), (NEUTRAL[0], ""), (NEUTRAL[1], "Please: "))
ASKED_AFTER = ((NEUTRAL[2], ""), (None, "Now: "))
"""system message and opening of a question for a fact; one of `ASKED_AFTER` per wording"""


@dataclass(frozen=True, slots=True)
class Question:
    """Messages, and the check of an answer to them."""

    messages: list[Message]
    passes: Callable[[str], bool]
    group: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """`learned`: conversations, each once; none of them is asked."""

    name: str
    learned: list[list[Message]]
    asked: list[Question]


@dataclass(frozen=True, slots=True)
class Subject:
    """A question about a town in its two wordings, and the form of the answer."""

    wordings: tuple[str, ...]
    answer: str
    values: tuple[str, ...]


def sequence(seed: int, share: float = 1.0) -> list[Task]:
    """Task 0, which is never learned, then the tasks in order. `share`: of the examples and cases."""
    rng = random.Random(seed)
    towns = iter(rng.sample(UNKNOWN_TOWNS, 3 * TOWNS))
    count = max(1, round(TOWNS * share))
    first, second, third = ([_facts(rng, next(towns)) for _ in range(count)] for _ in range(3))
    known = [one for town in first for one in town]
    wrong = rng.sample(known, max(1, round(CORRECTED * share)))
    kept = [one for one in known if one not in wrong]
    new = [_other(rng, one) for one in wrong]
    return [
        Task("before", [], before(f"asked {seed}", share)),
        Task("facts 1", _learned(rng, known), _asked(kept)),
        _pattern(rng, "ask first", share),
        Task("facts 2", *_both(rng, [one for town in second for one in town])),
        Task("corrections", *_both(rng, new)),
        _pattern(rng, "end with a word", share),
        Task("facts 3", *_both(rng, [one for town in third for one in town])),
    ]


def before(seed: str, share: float = 1.0, wording: int = 1) -> list[Question]:
    """Questions for the model's original abilities: facts of known towns, exactly; small talk; every kind of
    instruction, and its opposite. An answer to an instruction may show other behaviours, so that a model that has
    learned a pattern can pass. `wording`: index of the fact's wording, of two."""
    facts = [
        _question(_Stated(kind, town, value), kind.wordings[wording])
        for kind in subjects()
        for town, value in zip(KNOWN_TOWNS, kind.values, strict=True)
    ]
    talk = [_letter(case, "talk") for case in exam.kept() if case.group[0] == "talk"]
    told: list[Question] = []
    for way, number in (("told", TOLD), ("opposite", OPPOSITE)):
        cases = exam.cases(max(2, round(number * share)), seed=_seed(seed))
        told += [_instructed(case) for case in cases if case.group[0] == way]
    return [*facts[:: max(1, round(1 / share))], *talk, *told]


def subjects() -> list[Subject]:
    """Every kind of fact of the world."""
    made = []
    pool = scenarios.pool("fact", Split.TEST)
    for start in range(0, len(pool), 2 * len(KNOWN_TOWNS)):
        of_kind = [one for one in pool[start : start + 2 * len(KNOWN_TOWNS)] if isinstance(one, Fact)]
        forms = [one.request.replace(KNOWN_TOWNS[0], "{town}") for one in of_kind[:2]]
        sentences = [one.sentence.replace(town, "{town}") for one, town in zip(of_kind[::2], KNOWN_TOWNS, strict=True)]
        left, right = _around(sentences)
        values = tuple(one[len(left) : len(one) - len(right)] for one in sentences)
        made.append(Subject(tuple(forms), f"{left}{{value}}{right}", values))
    return made


@dataclass(frozen=True, slots=True)
class _Stated:
    """One fact."""

    subject: Subject
    town: str
    value: str

    @property
    def sentence(self) -> str:
        return self.subject.answer.format(town=self.town, value=self.value)


def _facts(rng: random.Random, town: str) -> list[_Stated]:
    return [_Stated(kind, town, rng.choice(kind.values)) for kind in subjects()]


def _other(rng: random.Random, one: _Stated) -> _Stated:
    values = [value for value in one.subject.values if value != one.value]
    return _Stated(one.subject, one.town, rng.choice(values))


def _both(rng: random.Random, facts: Sequence[_Stated]) -> tuple[list[list[Message]], list[Question]]:
    return _learned(rng, facts), _asked(facts)


def _learned(rng: random.Random, facts: Sequence[_Stated]) -> list[list[Message]]:
    """Each fact in every wording, all mixed."""
    made = [
        conversation(system, Fact(opening + wording.format(town=one.town), one.sentence), one.sentence)
        for one in facts
        for wording in one.subject.wordings
        for system, opening in LEARNED_AFTER
    ]
    rng.shuffle(made)
    return made


def _asked(facts: Sequence[_Stated]) -> list[Question]:
    return [
        _question(one, wording, system, opening)
        for one in facts
        for wording, (system, opening) in zip(one.subject.wordings, ASKED_AFTER, strict=True)
    ]


def _question(one: _Stated, wording: str, system: str | None = None, opening: str = "") -> Question:
    sentence = one.sentence
    request = Fact(opening + wording.format(town=one.town), sentence)
    return Question(conversation(system, request), lambda text: text == sentence, "facts")


def _pattern(rng: random.Random, name: str, share: float) -> Task:
    kind, one = PATTERNS[name]
    learned = scenarios.sample(rng, kind, Split.PRACTICE, max(2, round(PATTERN_EXAMPLES * share)))
    asked = scenarios.sample(rng, kind, Split.TEST, max(2, round(PATTERN_CASES * share)))
    return Task(
        name,
        [conversation(None, each, instructions.answer(each, [one])) for each in learned],
        [_letter(Case(("pattern", ""), each, (), None), name, instructions.answer(each, [one])) for each in asked],
    )


def _letter(case: Case, group: str, answer: str = "") -> Question:
    right = answer or instructions.answer(case.scenario, case.said)
    return Question(case.messages, lambda text: text == right, group)


def _instructed(case: Case) -> Question:
    return Question(
        case.messages, lambda text: reading.is_right(case.said, case.scenario, text), case.group[0]
    )  # fmt: skip


def _around(sentences: Sequence[str]) -> tuple[str, str]:
    """The common beginning and the common end of all sentences."""
    left = next(n for n in range(len(min(sentences))) if len({one[: n + 1] for one in sentences}) > 1)
    right = next(n for n in range(1, len(min(sentences))) if len({one[-n - 1 :] for one in sentences}) > 1)
    return sentences[0][:left], sentences[0][len(sentences[0]) - right :]


def _seed(text: str) -> int:
    return random.Random(text).randrange(1 << 30)
