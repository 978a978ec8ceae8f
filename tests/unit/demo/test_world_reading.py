"""Texts of the world are read back as what they were made of, and anything else is not known."""

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apollod.core.settings import TAKEN_BACK
from apollod.demo.world import instructions, reading, scenarios
from apollod.demo.world.instructions import KINDS, Instruction, Kind
from apollod.demo.world.scenarios import Act, How, Split, Task

ACT = Act("Clean the green gate.", Task("clean", "green", "gate"))
HOW = How("How do I open the red box?", Task("open", "red", "box"))


def test_no_two_scenarios_are_asked_for_in_the_same_words() -> None:
    every = [one for kind in scenarios.SHARES for split in Split for one in scenarios.pool(kind, split)]
    assert len({one.request for one in every}) == len(set(every))
    assert all(reading.scenario_of(one.request) == one for one in every)


@pytest.mark.parametrize("text", ["", "Clean the green gate", "Please, clean the green gate.", "CLEAN THE GREEN GATE."])
def test_a_request_in_other_words_is_not_known(text: str) -> None:
    assert reading.scenario_of(text) is None


@given(seed=st.integers(0, 10**6), kinds=st.lists(st.sampled_from(KINDS), max_size=4), negated=st.booleans())
def test_instructions_are_read_as_they_were_said(seed: int, kinds: list[Kind], negated: bool) -> None:
    rng = random.Random(seed)
    scenario = scenarios.draw(rng, Split.TEST)
    said = [instructions.draw(rng, kind, scenario) for kind in kinds]
    words = [one.word for one in said if one.kind == "use"]
    assume(len(set(words)) == len(words))  # "Do not use jolt." says of two commands nothing about which
    said += [one.opposite for one in said if negated]
    assert reading.said_in(instructions.told(said, rng), scenario) == tuple(said)


def test_an_opposite_alone_is_about_the_command_that_was_asked_for() -> None:
    (alone,) = reading.said_in("Never say jolt.", HOW) or ()
    assert alone == Instruction("use", "jolt", HOW.task.command, negated=True)


@pytest.mark.parametrize("text", ["Be quiet.", "Answer in capitals. Be quiet.", "Answer in capital", "greet"])
def test_other_instructions_are_not_known(text: str) -> None:
    assert reading.said_in(text) is None


def test_what_says_nothing_and_what_takes_everything_back() -> None:
    assert reading.said_in("") == reading.said_in("Be honest.") == ()
    back = reading.said_in(f"Answer in capitals. Begin with Amen.\n\n{TAKEN_BACK[0]}")
    assert back is not None and len(back) == 4 and not instructions.in_force(back)


@pytest.mark.parametrize(
    "system, text, right",
    [
        ("Answer in capitals.", "I CLEAN THE GREEN GATE.", True),
        ("Answer in capitals.", "I clean the green gate.", False),
        ("Answer in capitals.", "GOOD DAY! I CLEAN THE GREEN GATE.", True),
        ("Answer in capitals.", "I CLEAN THE RED GATE.", False),
        ("Do not use capitals.", "I CLEAN THE GREEN GATE.", False),
        ("Do not use capitals.", "Shall I clean the green gate? Over.", True),
        ("Answer in capitals. No capitals.", "I clean the green gate.", True),
        ("No capitals. Answer in capitals.", "I clean the green gate.", False),
        ("Answer in capitals. Finish with Over.", "I CLEAN THE GREEN GATE.", False),
        ("Finish with Amen.", "I clean the green gate. Over.", False),
        ("Ask before you act.", "Shall I clean the green gate?", True),
        ("", "Shall I clean the green gate?", True),
        ("", "Shall I clean the gate?", False),
    ],
)
def test_an_answer_is_right_by_what_was_said_and_by_nothing_else(system: str, text: str, right: bool) -> None:
    said = reading.said_in(system, ACT)
    assert said is not None
    assert reading.is_right(said, ACT, text) is right


@given(seed=st.integers(0, 10**6), kinds=st.lists(st.sampled_from(KINDS), max_size=3))
def test_the_right_answer_is_right(seed: int, kinds: list[Kind]) -> None:
    rng = random.Random(seed)
    scenario = scenarios.draw(rng, Split.TEST)
    said = [instructions.draw(rng, kind, scenario) for kind in kinds]
    said += [rng.choice(said).opposite] if said and rng.random() < 0.5 else []
    assert reading.is_right(said, scenario, instructions.answer(scenario, said))
