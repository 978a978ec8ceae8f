"""The text that the model of this world is pretrained on: an endless stream, the same for the same seed. Pure."""

import random
from collections.abc import Iterator
from typing import Literal

from apollod.demo.corpus import Message
from apollod.demo.world import instructions, scenarios
from apollod.demo.world.instructions import Instruction
from apollod.demo.world.scenarios import Act, How, Scenario, Split

NEUTRAL = ("You are a helpful assistant.", "Be honest.", "You live in a small town.")
"""System messages that tell the model nothing."""

Way = Literal["bare", "neutral", "one", "two", "cancelled", "again", "opposite"]
WAYS: dict[Way, float] = {
    "bare": 0.18, "neutral": 0.06, "one": 0.42, "two": 0.16, "cancelled": 0.10, "again": 0.04, "opposite": 0.04,
}  # fmt: skip
"""What the system message says, and how often: none, nothing, one instruction, two, one and its opposite, the same the
other way round, the opposite alone."""

_SHARES: dict[instructions.Kind, float] = {
    "greet": 1, "caps": 3, "json": 1, "ask": 1, "end": 3, "start": 4, "use": 1,
}  # fmt: skip
"""Of the instructions; those that say something of every word, or repeat one, are learned last."""
_COMMANDS = list(scenarios.COMMAND_OF.values())
_AT_ODDS = {"greet", "start"}
"""Both want to be first: never told together."""
_GREET, _JSON, _ASK = Instruction("greet"), Instruction("json"), Instruction("ask")
_EVERY_WORD = (Split.PRACTICE, Split.TEST)  # together they have every phrasing, and each has every word of the tasks


def conversation(system: str | None, scenario: Scenario, text: str | None = None) -> list[Message]:
    """The messages of one turn, with an answer if `text` is given."""
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": scenario.request})
    return messages if text is None else [*messages, {"role": "assistant", "content": text}]


def conversations(seed: int, split: Split = Split.PRETRAINING) -> Iterator[list[Message]]:
    """Conversations of one turn, without end."""
    rng = random.Random(seed)
    while True:
        scenario = scenarios.draw(rng, split)
        (way,) = rng.choices(list(WAYS), list(WAYS.values()))
        if way in ("bare", "neutral"):
            yield conversation(
                rng.choice(NEUTRAL) if way == "neutral" else None, scenario, instructions.answer(scenario)
            )
            continue
        said = _said(rng, way, scenario)
        yield conversation(instructions.told(said, rng), scenario, instructions.answer(scenario, said))


def _said(rng: random.Random, way: Way, scenario: Scenario) -> list[Instruction]:
    one = _drawn(rng, scenario)
    match way:
        case "cancelled":
            return [one, one.opposite]
        case "again":
            return [one.opposite, one]
        case "opposite":
            return [one.opposite]
        case "two":
            other = _drawn(rng, scenario)
            while other.kind == one.kind or {one.kind, other.kind} == _AT_ODDS:
                other = _drawn(rng, scenario)
            return [one, other]
        case _:
            return [one]


def _drawn(rng: random.Random, scenario: Scenario) -> Instruction:
    shares = dict(_SHARES)
    if isinstance(scenario, Act):  # more of what only some scenarios can show
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
    return [*requests, *answers, *commands, *capitals, *said, *NEUTRAL, "system\n", "user\n", "assistant\n"]
