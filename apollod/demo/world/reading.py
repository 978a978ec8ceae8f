"""Parses texts of this world: a request into its scenario, a system message into its instructions; checks answers.
Pure.

Texts are looked up among all that the world can produce. Nothing is guessed: any other text is unknown.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from apollod.core.settings import HELD_OUT_TAKEN_BACK, TAKEN_BACK
from apollod.demo.world import instructions, scenarios
from apollod.demo.world.instructions import KINDS, OTHER_COMMANDS, WORDS, Instruction
from apollod.demo.world.pretraining_texts import NEUTRAL
from apollod.demo.world.scenarios import COMMAND_OF, How, Scenario, Split
from apollod.demo.world.standing_before import system_messages


@cache
def _requests() -> Mapping[str, Scenario]:
    return {
        scenario.request: scenario
        for kind in scenarios.SHARES
        for split in Split
        for scenario in scenarios.pool(kind, split)
    }


@cache
def _wordings() -> Mapping[str, Instruction]:
    """Instructions and opposites by wording. The wording of a command's opposite omits the command that it replaces."""
    return {text: one for made in _every() for one in (made, made.opposite) for text in one.texts}


def _every() -> Iterator[Instruction]:
    for kind in KINDS:
        if kind == "use":
            for word, own in itertools.product(OTHER_COMMANDS, COMMAND_OF.values()):
                yield Instruction(kind, word, own)
        elif kind in ("end", "start"):
            yield from (Instruction(kind, word) for word in WORDS)
        else:
            yield Instruction(kind)


def scenario_of(request: str) -> Scenario | None:
    """The scenario, of any split, with exactly this request."""
    return _requests().get(request.strip())


def said_in(system: str, scenario: Scenario | None = None) -> tuple[Instruction, ...] | None:
    """The instructions of a system message, in order; None if it contains anything else.

    `scenario`: the request's; "Do not use jolt." is taken to be about its command unless an earlier instruction names
    one.
    """
    said: list[Instruction] = []
    rest = system.strip()
    while rest:
        if back := next((text for text in (*TAKEN_BACK, *HELD_OUT_TAKEN_BACK) if rest.startswith(text)), ""):
            said += [one.opposite for one in instructions.in_force(said).values()]
            rest = rest[len(back) :].lstrip()
            continue
        if text := next((text for text in _asking_nothing() if rest.startswith(text)), ""):
            rest = rest[len(text) :].lstrip()
            continue
        text = next((text for text in _wordings() if rest.startswith(text)), "")
        if not text:
            return None
        said.append(_completed(_wordings()[text], said, scenario))
        rest = rest[len(text) :].lstrip()
    return tuple(said)


@cache
def _asking_nothing() -> tuple[str, ...]:
    """System messages without instructions."""
    return (*NEUTRAL, *system_messages())


def _completed(one: Instruction, said: Sequence[Instruction], scenario: Scenario | None) -> Instruction:
    """An opposite of `use` with the command that it replaces filled in."""
    if one.kind != "use" or not one.negated:
        return one
    before = [other.instead_of for other in said if other.kind == "use" and other.word == one.word]
    if before:
        return one._replace(instead_of=before[-1])
    return one._replace(instead_of=scenario.task.command) if isinstance(scenario, How) else one


def is_right(said: Sequence[Instruction], scenario: Scenario, text: str) -> bool:
    """True if an answer fits the scenario, follows all instructions in force, and shows nothing forbidden.

    Behaviours without any instruction are free: a model that has learned to greet may do so.
    """
    force = instructions.in_force(said)
    forbidden = [one for one in said if one.negated and force.get(one.kind) != one.opposite]
    return instructions.shown(scenario, text) is not None and all(
        instructions.check(one, scenario, text) for one in (*force.values(), *forbidden)
    )
