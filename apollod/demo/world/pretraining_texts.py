"""The text that the model of this world is pretrained on: an endless stream, the same for the same seed. Pure."""

import random
from collections.abc import Iterator
from typing import Literal

from apollod.core.facts.dreams.scenario import Turn
from apollod.core.surroundings import NOTHING, Surrounding, SurroundingKind
from apollod.curation.surrounding_texts import conversation_in
from apollod.demo.corpus import Message
from apollod.demo.world import instructions, scenarios
from apollod.demo.world.instructions import Instruction
from apollod.demo.world.scenarios import Act, How, Scenario, Split
from apollod.demo.world.standing_before import draw, texts

NEUTRAL = ("You are a helpful assistant.", "Be honest.", "You live in a small town.")
"""System messages without instructions."""

Stage = Literal["short", "whole", "shown"]
"""short: no context before the instructions but a neutral message; whole: any surrounding. Following instructions is
learned from short texts, in a third of the time, and maintained in long ones. shown: as whole, and in half of them
earlier answers show a behaviour without an instruction."""
SURROUNDINGS: dict[Stage, dict[SurroundingKind, float]] = {
    "short": {"none": 0.85, "neutral": 0.15, "agent": 0.0, "own": 0.0},
    "whole": {"none": 0.32, "neutral": 0.18, "agent": 0.30, "own": 0.20},
    "shown": {"none": 0.40, "neutral": 0.14, "agent": 0.32, "own": 0.14},
}
"""Shares of the surroundings by stage."""
NEUTRAL_SHARE = 0.25
"""share of texts without surrounding and instruction that get a message of `NEUTRAL`"""

Way = Literal["bare", "one", "two", "three", "cancelled", "again", "opposite"]
WAYS: dict[Way, float] = {
    "bare": 0.16, "one": 0.25, "two": 0.12, "three": 0.07, "cancelled": 0.25, "again": 0.05, "opposite": 0.10,
}  # fmt: skip
"""Instructions of a system message, with their shares: none, one, two, three, one and its opposite, the
same the other way round, the opposite alone."""
SHOWN = 0.5
"""share of texts in the stage of that name whose earlier answers show a behaviour"""
SHOWN_WAYS: dict[Literal["bare", "opposite", "cancelled", "other"], float] = {
    "bare": 0.35, "opposite": 0.35, "cancelled": 0.20, "other": 0.10,
}  # fmt: skip
"""Instructions after answers that show a behaviour, with their shares: none, so that the next answer shows it, too;
the opposite, or the instruction and then its opposite, so that it does not; another instruction besides. A model that
has seen an opposite only after its instruction takes it for a cancellation, and not as a request of its own."""
SHOWN_BEFORE_MAX = 3
"""most earlier answers"""
BESIDE = 0.3
"""share of texts with an opposite that have another instruction before"""
JOINTS = (" ", "\n\n")
"""separators between instructions: a person's, and a dream's"""

_SHARES: dict[instructions.Kind, float] = {
    "greet": 1, "caps": 3, "json": 1, "ask": 1, "end": 3, "start": 4, "use": 1,
}  # fmt: skip
"""Shares of the instructions; those that change every word, or repeat one, are learned last."""
_COMMANDS = list(scenarios.COMMAND_OF.values())
_AT_ODDS = {"greet", "start"}
"""Both affect the beginning, so they are never combined."""
_GREET, _JSON, _ASK = Instruction("greet"), Instruction("json"), Instruction("ask")
_EVERY_WORD = (Split.PRACTICE, Split.TEST)  # together they have every phrasing, and each has every word of the tasks


def conversation(
    system: str | None, scenario: Scenario, text: str | None = None, around: Surrounding = NOTHING
) -> list[Message]:
    """The messages of one turn in a surrounding, with the instruction `system`, and the answer if `text` is given."""
    return conversation_in(around, system or "", [Turn("user", scenario.request)], text)


def conversations(seed: int, split: Split = Split.PRETRAINING, stage: Stage = "short") -> Iterator[list[Message]]:
    """Conversations of one turn, without end."""
    rng = random.Random(f"{seed} {stage}")
    while True:
        scenario = scenarios.draw(rng, split)
        if stage == "shown" and rng.random() < SHOWN:
            yield _shown_before(rng, split, scenario)
            continue
        (way,) = rng.choices(list(WAYS), list(WAYS.values()))
        around = draw(rng, SURROUNDINGS[stage])
        said = _said(rng, way, scenario)
        told = instructions.told(said, rng, rng.choice(JOINTS))
        if not said and around == NOTHING and rng.random() < NEUTRAL_SHARE:
            told = rng.choice(NEUTRAL)
        yield conversation(told, scenario, instructions.answer(scenario, said), around)


def _shown_before(rng: random.Random, split: Split, scenario: Scenario) -> list[Message]:
    """A conversation whose earlier answers show a behaviour."""
    one = _drawn(rng, scenario)
    turns = list[Turn]()
    for _ in range(rng.randint(1, SHOWN_BEFORE_MAX)):
        earlier = scenarios.draw(rng, split)
        while not one.applies(earlier):
            earlier = scenarios.draw(rng, split)
        turns += [Turn("user", earlier.request), Turn("assistant", instructions.answer(earlier, [one]))]
    (way,) = rng.choices(list(SHOWN_WAYS), list(SHOWN_WAYS.values()))
    match way:
        case "opposite":
            said, shown = [one.opposite], list[Instruction]()
        case "cancelled":
            said, shown = [one, one.opposite], []
        case "other":
            said = _others(rng, [one], scenario, 1)
            shown = [*said, one]
        case _:
            said, shown = [], [one]
    told, around = instructions.told(said, rng), draw(rng, SURROUNDINGS["shown"])
    return conversation_in(around, told, [*turns, Turn("user", scenario.request)], instructions.answer(scenario, shown))


def _said(rng: random.Random, way: Way, scenario: Scenario) -> list[Instruction]:
    one = _drawn(rng, scenario)
    match way:
        case "bare":
            return []
        case "cancelled":
            return [*_before(rng, [one], scenario), one, one.opposite]
        case "again":
            return [one.opposite, one]
        case "opposite":
            return [*_before(rng, [one], scenario), one.opposite]
        case "two":
            return [*_others(rng, [one], scenario, 1), one]
        case "three":
            return [*_others(rng, [one], scenario, 2), one]
        case _:
            return [one]


def _before(rng: random.Random, told: list[Instruction], scenario: Scenario) -> list[Instruction]:
    return _others(rng, told, scenario, rng.randint(1, 2)) if rng.random() < BESIDE else []


def _others(rng: random.Random, told: list[Instruction], scenario: Scenario, count: int) -> list[Instruction]:
    """Other instructions, each of another kind, that can be combined with these."""
    found: list[Instruction] = []
    while len(found) < count:
        other = _drawn(rng, scenario)
        kinds = {one.kind for one in (*told, *found)}
        if other.kind not in kinds and not _AT_ODDS <= {*kinds, other.kind}:
            found.append(other)
    return found


def _drawn(rng: random.Random, scenario: Scenario) -> Instruction:
    shares = dict(_SHARES)
    if isinstance(scenario, Act):  # more of the instructions that only some scenarios can show
        shares["ask"] += 2
    elif isinstance(scenario, How):
        shares["use"] += 5
    (kind,) = rng.choices(list(shares), list(shares.values()))
    if kind == "use" and isinstance(scenario, How) and rng.random() < 0.25:  # for another command than is asked for
        return Instruction("use", rng.choice(instructions.OTHER_COMMANDS), rng.choice(_COMMANDS))
    return instructions.draw(rng, kind, scenario)


def vocabulary_texts() -> list[str]:
    """Text with every word of this world, in small letters and capitals, for the tokenizer."""
    some = [one for kind in scenarios.SHARES for split in _EVERY_WORD for one in scenarios.pool(kind, split)]
    ends = [
        instructions.answer(some[0], [Instruction("start", word), Instruction("end", word), *more])
        for word in instructions.WORDS
        for more in ((), (_GREET,), (_JSON,), (_ASK, _JSON))
    ]
    answers = [instructions.answer(one, said) for one in some for said in ((), (_ASK,), (_GREET,))] + ends
    commands = [f" {command}" for command in (*_COMMANDS, *instructions.OTHER_COMMANDS)]
    said = [
        text
        for kind in instructions.KINDS
        for word in (instructions.OTHER_COMMANDS if kind == "use" else instructions.WORDS)
        for command in _COMMANDS
        for one in (Instruction(kind, word, command), Instruction(kind, word, command).opposite)
        for text in one.texts
    ]
    capitals = [text.upper() for text in (*answers, *commands)]
    requests = [one.request for one in some]
    return [
        *requests,
        *answers,
        *commands,
        *capitals,
        *said,
        *NEUTRAL,
        *texts(),
        "system\n",
        "user\n",
        "assistant\n",
        "tool\n",
    ]
