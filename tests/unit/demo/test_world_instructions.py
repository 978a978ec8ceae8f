"""Right answers pass the checks of all that was told, and of nothing else; wrong answers pass none."""

import json
import random
import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.demo.world import instructions, pretraining_texts, scenarios
from apollod.demo.world.instructions import KINDS, OTHER_COMMANDS, WORDS, Instruction, Kind
from apollod.demo.world.scenarios import COMMAND_OF, Act, How, Scenario, Split, Task

TASK = Task("clean", "green", "gate")
ACT, HOW = Act("Clean the green gate.", TASK), How("How do I clean the green gate?", TASK)
GREET, CAPS, JSON, ASK = map(Instruction, ("greet", "caps", "json", "ask"))
END, START, USE = Instruction("end", "Over"), Instruction("start", "Indeed"), Instruction("use", "zap", "wash")

any_scenario = st.sampled_from(
    [one for kind in scenarios.SHARES for split in Split for one in scenarios.pool(kind, split)]
)
any_instruction = st.one_of(
    st.sampled_from([GREET, CAPS, JSON, ASK]),
    st.sampled_from([Instruction(kind, word) for kind in ("end", "start") for word in WORDS]),
    st.sampled_from([Instruction("use", other, own) for other in OTHER_COMMANDS for own in COMMAND_OF.values()]),
)
any_list = st.lists(st.one_of(any_instruction, any_instruction.map(lambda one: one.opposite)), max_size=5)


@pytest.mark.parametrize(
    "scenario, said, text",
    [
        (ACT, [], "I clean the green gate."),
        (HOW, [], "Run wash green gate."),
        (ACT, [GREET], "Good day! I clean the green gate."),
        (ACT, [CAPS], "I CLEAN THE GREEN GATE."),
        (ACT, [JSON], '{"answer": "I clean the green gate."}'),
        (ACT, [ASK], "Shall I clean the green gate?"),
        (ACT, [END], "I clean the green gate. Over."),
        (ACT, [START], "Indeed. I clean the green gate."),
        (HOW, [USE], "Run zap green gate."),
        (ACT, [USE], "I clean the green gate."),
        (HOW, [ASK], "Run wash green gate."),
        (HOW, [USE._replace(instead_of="fix")], "Run wash green gate."),
        (ACT, [END, JSON, CAPS, ASK], '{"answer": "SHALL I CLEAN THE GREEN GATE? OVER."}'),
        (ACT, [GREET, GREET.opposite], "I clean the green gate."),
        (ACT, [GREET.opposite, GREET], "Good day! I clean the green gate."),
        (ACT, [END, Instruction("end", "Amen").opposite], "I clean the green gate. Over."),
        (ACT, [END, Instruction("end", "Amen")], "I clean the green gate. Amen."),
    ],
)
def test_the_answer_to_a_scenario(scenario: Scenario, said: list[Instruction], text: str) -> None:
    assert instructions.answer(scenario, said) == text


@given(any_scenario, any_list)
def test_a_right_answer_shows_what_is_in_force_and_nothing_else(scenario: Scenario, said: list[Instruction]) -> None:
    expected = {one for one in instructions.in_force(said).values() if one.applies(scenario)}
    text = instructions.answer(scenario, said)
    assert instructions.shown(scenario, text) == expected
    assert all(instructions.check(one, scenario, text) for one in expected)


@given(any_scenario, any_instruction)
def test_an_instruction_and_its_opposite_are_never_both_obeyed(scenario: Scenario, one: Instruction) -> None:
    bare, told = instructions.answer(scenario), instructions.answer(scenario, [one])
    applies = one.applies(scenario)
    assert instructions.check(one, scenario, told)
    assert instructions.check(one, scenario, bare) == (not applies)
    assert instructions.check(one.opposite, scenario, bare)
    assert instructions.check(one.opposite, scenario, told) == (not applies)
    assert one.opposite.opposite == one


@given(any_scenario, any_scenario, any_instruction)
def test_the_answer_to_something_else_passes_no_check(scenario: Scenario, other: Scenario, one: Instruction) -> None:
    text = instructions.answer(other, [one])
    if instructions.answer(scenario, [one]) != text and instructions.answer(scenario) != instructions.answer(other):
        assert not instructions.check(one, scenario, text)
        assert not instructions.check(one.opposite, scenario, text)


@pytest.mark.parametrize(
    "text",
    [
        "", "Good day!", "Good day! I clean the green gate", "Good day! Good day! I clean the green gate.",
        "Good day! I clean the red gate.", "Good day! I CLEAN the green gate.", "Good day!I clean the green gate.",
        "Good day! I clean the green gate. I clean the green gate.", "I clean the green gate. Good day!",
        "Good day! I clean the green gate. Hello.", '{"answer": "Good day! I clean the green gate."',
        '{"reply": "Good day! I clean the green gate."}', '{"answer": ["Good day! I clean the green gate."]}',
        '["Good day! I clean the green gate."]', "Good day! Run wash green gate.", "good day! I clean the green gate.",
    ],
)  # fmt: skip
def test_what_looks_like_a_greeting_is_not_enough(text: str) -> None:
    assert instructions.shown(ACT, text) is None
    assert not instructions.check(GREET, ACT, text)


@pytest.mark.parametrize(
    "text, shows",
    [
        ("Indeed. Good day! I clean the green gate.", {GREET, START}),
        ("Good day! Indeed. I clean the green gate.", {GREET, START}),
        ("Good day! I CLEAN THE GREEN GATE.", {GREET}),
        ("I CLEAN THE GREEN GATE. OVER.", {CAPS, END}),
        ('{ "answer" : "I clean the green gate." }', {JSON}),
    ],
)
def test_what_may_differ_from_the_pretrained_answer(text: str, shows: set[Instruction]) -> None:
    assert instructions.shown(ACT, text) == shows


def test_another_command_than_told_is_wrong() -> None:
    assert instructions.check(USE, HOW, "Run zap green gate.")
    assert not instructions.check(USE, HOW, "Run spin green gate.")
    assert not instructions.check(USE, HOW, "Run wash green gate.")
    elsewhere = USE._replace(instead_of="fix")
    assert instructions.check(elsewhere, HOW, "Run wash green gate.")
    assert not instructions.check(elsewhere, HOW, "Run zap green gate."), "nobody said so of this command"


@pytest.mark.parametrize("kind", KINDS)
def test_an_instruction_has_several_wordings_and_no_other_has_them(kind: Kind) -> None:
    rng = random.Random(0)
    one = instructions.draw(rng, kind, HOW)
    assert one.applies(ACT if kind == "ask" else HOW)
    assert len(set(one.texts)) >= 3 and len(set(one.opposite.texts)) >= 2
    others = {text for other in KINDS if other != kind for text in Instruction(other, one.word, one.instead_of).texts}
    assert not {*one.texts} & ({*one.opposite.texts} | others)
    assert {instructions.told([one], rng) for _ in range(60)} == {*one.texts}


def test_what_is_pretrained_is_what_is_checked() -> None:
    """The texts of pretraining, read as a person would: the words of the system message against the answer."""
    ways = {"none": 0, "some": 0}
    for messages in islice(pretraining_texts.conversations(1), 3000):
        system = messages[0]["content"] if messages[0]["role"] == "system" else ""
        text = messages[-1]["content"]
        said = re.split(r"(?<=\.)\s+|\n\n", system)
        for sentences, shows in (
            (instructions.WORDINGS["json"].told, text.startswith("{") and "answer" in json.loads(text)),
            (instructions.WORDINGS["greet"].told, "good day!" in text.lower()),
            (instructions.WORDINGS["caps"].told, re.sub(r'^{"answer"', "", text).isupper()),
        ):
            last = max((said.index(one) for one in sentences if one in said), default=-1)
            opposite = next(w.opposite for w in instructions.WORDINGS.values() if w.told is sentences)
            cancelled = max((said.index(one) for one in opposite if one in said), default=-1)
            assert shows == (last > cancelled), messages
            ways["some" if shows else "none"] += 1
    assert ways["some"] > 300 and ways["none"] > 3000
