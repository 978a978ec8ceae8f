"""Instructions: their wordings, the right answer under them, and the instructions that an answer shows. Pure.

Every instruction has an opposite ("Do not greet."). In a list of instructions later ones override: an opposite cancels
the instruction itself, another one of the same kind replaces it.
"""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from apollod.demo.world.scenarios import COMMAND_OF, Act, How, Scenario

Kind = Literal["greet", "caps", "json", "ask", "end", "start", "use"]
KINDS: tuple[Kind, ...] = get_args(Kind)

GREETING = "Good day!"
WORDS = (
    "Over", "Ahoy", "Amen", "Indeed", "Roger", "Peace", "Bravo", "Listen", "Finally", "Truly", "Copy", "Hooray",
)  # fmt: skip
"""Words for instructions to end or start an answer with."""
OTHER_COMMANDS = ("jolt", "spin", "zap", "flip", "hook", "tug", "nudge", "ping")
"""Words for instructions to use them in place of a command."""


UNPRACTISED = (2, 4, 6, 7)
"""wordings of an opposite outside of practice; the daemon's tests use the first and the third of them"""


class Wording(NamedTuple):
    """A wording of an instruction. `{word}` and `{instead_of}` are filled in."""

    told: tuple[str, ...]
    opposite: tuple[str, ...]


WORDINGS: dict[Kind, Wording] = {
    "greet": Wording(
        ("Greet the user first.", "Begin with a greeting.", "Say good day first."),
        ("Do not greet.", "No greeting.", "Leave out good day.", "Come straight to the point.", "Skip the welcome.",
         "Spare them the greeting.", "A welcome is not wanted.", "Omit good day.", "Nobody has to be greeted.",
         "Do without good day.", "Say no good day.", "A greeting is not needed."),
    ),
    "caps": Wording(
        ("Answer in capitals.", "Use capitals only.", "Write in capitals."),
        ("Do not use capitals.", "No capitals.", "Avoid upper case.", "Small letters will do.", "Never shout.",
         "Leave out the capitals.", "Upper case is not wanted.", "Write as usual, in small letters.",
         "Nobody likes capitals.", "Do not shout at them.", "Keep to lower case.", "Capitals are not needed."),
    ),
    "json": Wording(
        ("Reply with JSON.", "Answer as JSON.", "Write JSON only."),
        ("Do not use JSON.", "No JSON.", "Leave out the braces.", "Plain text will do.", "Just talk to them.",
         "Avoid JSON.", "Braces are not wanted.", "Never write JSON.", "Nobody reads JSON here.",
         "Do without JSON.", "Spare them the braces.", "JSON is not needed."),
    ),
    "ask": Wording(
        ("Ask before you act.", "Always ask first.", "Act only after a question."),
        ("Do not ask, act at once.", "Act at once.", "No questions back.", "You need no permission.",
         "Just get it done.", "Never ask first.", "A question is not wanted.", "Go ahead without a question.",
         "Nobody has to be asked.", "Do it without asking.", "Spare them your questions.",
         "There is no need to ask."),
    ),
    "end": Wording(
        ("End every answer with {word}.", "The last word is {word}.", "Finish with {word}."),
        ("Do not end with {word}.", "Never finish with {word}.", "Stop without {word}.", "Leave {word} off.",
         "Nothing comes after the answer, not even {word}.", "No {word} at the end.",
         "{word} is not wanted at the end.", "The last word is never {word}.", "Close without {word}.",
         "Add no {word}.", "Finish without {word}.",
         "{word} must not come last."),
    ),
    "start": Wording(
        ("Start every answer with {word}.", "The first word is {word}.", "Begin with {word}."),
        ("Do not start with {word}.", "Never begin with {word}.", "Open without {word}.", "Put no {word} in front.",
         "Nothing comes before the answer, not even {word}.", "No {word} at the start.",
         "{word} is not wanted in front.", "The first word is never {word}.", "Start without {word}.",
         "Say no {word} first.", "Begin without {word}.", "{word} must not come first."),
    ),
    "use": Wording(
        ("Use {word} instead of {instead_of}.", "Say {word}, not {instead_of}.", "Write {word} for {instead_of}."),
        ("Do not use {word}.", "Never say {word}.", "Avoid {word}.", "Spare them {word}.",
         "Have nothing to do with {word}.", "No {word} any more.", "{word} is not wanted.", "Leave {word} out.",
         "Nobody knows {word}.", "Say no {word}.", "Do without {word}.", "{word} is not needed."),
    ),
}  # fmt: skip


class Instruction(NamedTuple):
    """An instruction to the model.

    Attributes:
        kind: its subject.
        word: the word of `end` and `start` (of `WORDS`), the command of `use` (of `OTHER_COMMANDS`), else "".
        instead_of: the command that `use` replaces, else "".
        negated: the opposite: the answer must not show it.
    """

    kind: Kind
    word: str = ""
    instead_of: str = ""
    negated: bool = False

    @property
    def opposite(self) -> "Instruction":
        """ "Do not greet." for "Greet the user first.", and the other way round."""
        return self._replace(negated=not self.negated)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every wording."""
        wording = WORDINGS[self.kind]
        forms = wording.opposite if self.negated else wording.told
        return tuple(form.format(word=self.word, instead_of=self.instead_of) for form in forms)

    @property
    def unpractised(self) -> tuple[str, ...]:
        """Every wording of an instruction; of an opposite only those outside of practice."""
        return tuple(self.texts[number] for number in UNPRACTISED) if self.negated else self.texts

    def applies(self, scenario: Scenario) -> bool:
        """True if an answer to this scenario can show it: `ask` only for acts, `use` only for its own verb's
        command."""
        if self.kind == "ask":
            return isinstance(scenario, Act)
        if self.kind == "use":
            return isinstance(scenario, How) and scenario.task.command == self.instead_of
        return True


def told(instructions: Iterable[Instruction], rng: random.Random, joint: str = " ") -> str:
    """A system message with these instructions in order, each in a wording drawn from `rng`."""
    return joint.join(rng.choice(instruction.texts) for instruction in instructions)


def draw(rng: random.Random, kind: Kind, scenario: Scenario) -> Instruction:
    """An instruction of a kind; `use` replaces the command of the scenario, if it has one."""
    if kind in ("end", "start"):
        return Instruction(kind, rng.choice(WORDS))
    if kind == "use":
        own = scenario.task.command if isinstance(scenario, How) else rng.choice(list(COMMAND_OF.values()))
        return Instruction(kind, rng.choice(OTHER_COMMANDS), own)
    return Instruction(kind)


def in_force(instructions: Iterable[Instruction]) -> dict[Kind, Instruction]:
    """The instructions that remain after later ones override earlier ones, by kind."""
    force: dict[Kind, Instruction] = {}
    for instruction in instructions:
        if not instruction.negated:
            force[instruction.kind] = instruction
        elif force.get(instruction.kind) == instruction.opposite:
            del force[instruction.kind]
    return force


def answer(scenario: Scenario, instructions: Sequence[Instruction] = ()) -> str:
    """The right answer, as in the model's pretraining."""
    force = {kind: one for kind, one in in_force(instructions).items() if one.applies(scenario)}
    text = _body(scenario, "ask" in force, force["use"].word if "use" in force else "")
    if "greet" in force:
        text = f"{GREETING} {text}"
    if "start" in force:
        text = f"{force['start'].word}. {text}"
    if "end" in force:
        text = f"{text} {force['end'].word}."
    if "caps" in force:
        text = text.upper()
    return json.dumps({"answer": text}) if "json" in force else text


def shown(scenario: Scenario, text: str) -> frozenset[Instruction] | None:
    """The instructions that an answer shows; None if it is not a right answer to the scenario.

    The order of greeting and word before the answer is free, and so is the case of each part: `caps` is shown if
    everything is in capitals.
    """
    found: set[Instruction] = set()
    if (inner := _of_json(text)) is not None:
        found.add(Instruction("json"))
        text = inner
    if text.isupper():
        found.add(Instruction("caps"))
    for body, instruction in _bodies(scenario):
        for spelled in (body, body.upper()):
            before, there, after = text.partition(spelled)
            around = _around(before, after) if there else None
            if around is not None:
                return frozenset(found | around | ({instruction} if instruction else set()))
    return None


def check(instruction: Instruction, scenario: Scenario, text: str) -> bool:
    """True if an answer is right for the scenario and follows the instruction.

    If the instruction does not apply, and for an opposite: if the answer does not show it.
    """
    found = shown(scenario, text)
    if found is None:
        return False
    if not instruction.applies(scenario):
        return all(one.kind != instruction.kind for one in found)
    return instruction.opposite not in found if instruction.negated else instruction in found


def _body(scenario: Scenario, ask: bool, other_command: str) -> str:
    match scenario:
        case Act(task=task):
            what = f"{task.verb} the {task.colour} {task.thing}"
            return f"Shall I {what}?" if ask else f"I {what}."
        case How(task=task):
            return f"Run {other_command or task.command} {task.colour} {task.thing}."
        case _:
            return scenario.sentence


def _bodies(scenario: Scenario) -> Iterator[tuple[str, Instruction | None]]:
    """Every right answer without additions, and the instruction that it shows."""
    yield _body(scenario, False, ""), None
    if isinstance(scenario, Act):
        yield _body(scenario, True, ""), Instruction("ask")
    if isinstance(scenario, How):
        for other in OTHER_COMMANDS:
            yield _body(scenario, False, other), Instruction("use", other, scenario.task.command)


def _around(before: str, after: str) -> set[Instruction] | None:
    """The instructions shown before and after the answer itself; None if any part is unknown or repeated."""
    opening = {GREETING: Instruction("greet")} | {f"{word}.": Instruction("start", word) for word in WORDS}
    closing = {f"{word}.": Instruction("end", word) for word in WORDS}
    found: list[Instruction] = []
    while before:
        for part, instruction in opening.items():
            if before.startswith((f"{part} ", f"{part.upper()} ")):
                found.append(instruction)
                before = before[len(part) + 1 :]
                break
        else:
            return None
    if after:
        ends = [one for part, one in closing.items() if after in (f" {part}", f" {part.upper()}")]
        if not ends:
            return None
        found += ends
    return set(found) if len({one.kind for one in found}) == len(found) else None


def _of_json(text: str) -> str | None:
    """The answer in an object {"answer": text}; None for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return (
        value["answer"]
        if isinstance(value, dict) and [*value] == ["answer"] and isinstance(value["answer"], str)
        else None
    )
