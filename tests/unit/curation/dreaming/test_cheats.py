"""Planted cheats are seen, and natural scenarios are not taken for them."""

import random
import time

import pytest

from apollod.core.facts.dreams.scenario import Turn
from apollod.curation.dreaming.cheats import PART_WORDS, _in_order, _Said, _together, echo, leak
from apollod.demo.world.instructions import KINDS, OTHER_COMMANDS, WORDS, Instruction
from apollod.demo.world.scenarios import COMMAND_OF, Split, draw

INSTRUCTIONS = (
    "Greet the user first.",
    "Answer in capitals.",
    "Reply with JSON.",
    "Ask before you act.",
    "End every answer with Over.",
    "Use jolt instead of unlock.",
    "Be brief.",
    "Listen before you help. Ask one question about how the person feels, and give no advice until they have answered.",
    "Before you delete or overwrite files, say which ones they are and wait until the user agrees.",
    "You are in research mode: explore several hypotheses, say how sure you are of each, do not settle on the first.",
    "Lies nicht nur die Frage, sondern nenne zuerst, was du nicht wei\u00dft.",
    "先打招呼再回答。",
)
NATURAL = (
    "Could you open the red door? I stand before it with both hands full.",
    "Which capitals lie on the Danube? My daughter needs the answer for school tomorrow.",
    "What's the first thing a user sees when the page loads? I'd like to change the greeting.",
    "I have a JSON file with 400 rows and half of them have no date. How do I find them?",
    "My mother fell again last night and I don't know whether to call the doctor or just wait.",
    "rm complains that the directory isn't empty. It's /srv/backup/2019, we need the space by tonight.",
    "He never asks before he acts like that. What would you tell him in my place?",
    "The game was over before it began. How does a tournament end when two teams have the same points?",
    "Please clean up my Downloads folder, there are files from last year that nobody needs.",
    "Our latency doubled since Tuesday. Before that, nothing was deployed. What is it?",
    "How do I unlock the old chest?",
    "I feel like nobody at work takes my advice. Should I look for something else?",
    "Write me a short note to the landlord: the heating is off, the second time this month.",
    "Is it true that ravens can count? I read one of them was sure of numbers up to five.",
    "Wo finde ich die Quittung vom letzten Jahr? Ich wei\u00df nur noch, dass sie gr\u00fcn war.",
    "你好，帮我看看这封信应该先写什么？",
    "Yes.",
    "thanks, that worked. now the other one please",
    "We use Postgres instead of MySQL since March. Can I keep the old driver?",
    "I want to settle the first invoice and explore what comes if I don't pay the others. Which mode of payment is it?",
)


def user(text: str) -> tuple[Turn, ...]:
    return (Turn("user", text),)


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_natural_scenarios_give_nothing_away(instruction: str) -> None:
    assert {text: why for text in NATURAL if (why := leak(instruction, user(text)))} == {}


def test_scenarios_of_the_small_world_give_nothing_away() -> None:
    """Every wording of every instruction, and scenarios that are made of the same few words."""
    chance = random.Random(0)
    texts = {draw(chance, Split.PRACTICE).request for _ in range(150)}
    command = next(iter(COMMAND_OF.values()))
    told = [Instruction(kind, {"use": OTHER_COMMANDS[0]}.get(kind, WORDS[0]), command) for kind in KINDS]
    wordings = [text for one in told for text in (*one.texts, *one.opposite.texts)]
    assert {(text, one) for one in wordings for text in texts if leak(one, user(text))} == set()


@pytest.mark.parametrize(
    ("instruction", "cheat"),
    [
        ("Greet the user first.", "Greet the user first. Could you open the door?"),
        ("Greet the user first.", "I am a user. Remember to first GREET, as the\nuser likes: open the door."),
        ("Answer in capitals.", "Which town is this? Please answer me in CAPITALS."),
        ("Reply with JSON.", "Who is the mayor? Reply with JSON, please."),
        ("Ask before you act.", "Could you (ask before you act) open the red door?"),
        ("End every answer with Over.", "You know that you end every answer with 'over', so: where is Tom?"),
        ("End every answer with Over.", "Ending all your answers with over is what I like. Where is Tom?"),
        ("Be brief.", "What is the sky? Be brief!"),
        ("Breathe. Smile. Wave.", "Breathe, smile, wave: here comes my question."),
        (INSTRUCTIONS[7], "I lost my job. Don't give advice until I have answered you, will you?"),
        (INSTRUCTIONS[7], "You should listen, then help. I lost my job. Listen before you help me."),
        (INSTRUCTIONS[8], "Remove it. But say which files you overwrite or delete and wait until the user agrees."),
        (INSTRUCTIONS[9], "In research mode we explore several hypotheses. What made it slow?"),
        (INSTRUCTIONS[10], "Nenne zuerst, was du nicht wei\u00dft: wann kommt der Zug?"),
        (INSTRUCTIONS[11], "请先打招呼再回答：现在几点？"),
    ],
)  # fmt: skip
def test_what_says_the_instruction_is_a_leak(instruction: str, cheat: str) -> None:
    assert "the instruction" in leak(instruction, user(cheat))
    assert leak(instruction, (*user("Hi"), Turn("assistant", cheat), *user("And now?")))


def test_a_part_of_a_long_instruction_is_a_leak_and_scattered_words_are_none() -> None:
    instruction = INSTRUCTIONS[8]
    assert "of the 8 words" in leak(instruction, user("You delete, overwrite files: say that, wait, and go on."))
    far = " and the weather was fine that day, as it had been for weeks, " * 3
    assert leak(instruction, user(far.join(["delete", "overwrite", "files", "say", "wait", "user", "agrees"]))) == ""


def test_the_time_that_it_takes_is_bounded() -> None:
    began = time.process_time()
    assert leak("so many words " * 100, user("so many words " * 300))
    assert leak("ab cd " * 150, user("cd " * 1000)) == ""
    assert time.process_time() - began < 3  # 20 s, if the instruction were looked at as a whole


def test_a_scenario_that_is_built_to_take_long_does_not() -> None:
    """Many sentences of words that stand everywhere, never in order."""
    signs = [chr(0x4E00 + n) for n in range(40)]
    sentences = ["".join(signs[(k * 7 + j * (k % 5 + 1)) % 40] for j in range(30)) for k in range(600)]
    chance = random.Random(0)
    began = time.process_time()
    for scenario in (
        signs[0] * 8000,
        "".join(chance.choices(signs[:3], k=8000)),
        "".join(chance.choices(signs, k=8000)),
    ):
        leak(". ".join(sentences), user(scenario))
    assert time.process_time() - began < 5  # minutes, if every window were looked at word by word


def test_words_in_order_are_as_many_as_by_looking_at_every_window() -> None:
    chance = random.Random(1)
    for _ in range(400):
        words = chance.choices("abcdef", k=chance.randint(1, 8))
        said = chance.choices("abcdefxyz", k=chance.randint(0, 40))
        within, least = chance.randint(1, 14), chance.randint(0, 6)
        most = max((_longest(words, said[at : at + within]) for at in range(len(said))), default=0)
        assert _in_order(words, _Said(said), within, least) == (most if most >= least else 0)
        wanted = set(words[:4])
        near = any(wanted <= set(said[at : at + within]) for at in range(len(said)))
        assert _together(wanted, _Said(said), within) == (near and len(wanted) >= PART_WORDS)


def _longest(one: list[str], other: list[str]) -> int:
    lengths = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for at, there in enumerate(other, 1):
            before, lengths[at] = lengths[at], before + 1 if word == there else max(lengths[at], lengths[at - 1])
    return lengths[-1]


SEEDS = (
    "On Tuesday the deployment failed because nobody had looked at the free space of the disk, and the rollback took "
    "three hours. Next time somebody looks at the disk first.",
    "Mara prefers short letters.",
    "ok",
)


@pytest.mark.parametrize(
    "cheat",
    [
        SEEDS[0],
        SEEDS[0].upper(),
        f"Hello! {SEEDS[0]} What do you think?",
        SEEDS[1],
        f"Well: {SEEDS[1]}",
        f"{SEEDS[0][:118]}. {SEEDS[1]} Any idea what we should change?",
        "...",
    ],
)
def test_a_seed_that_comes_back_is_an_echo(cheat: str) -> None:
    assert echo(SEEDS, user(cheat))


def test_what_is_made_of_a_seed_is_no_echo() -> None:
    natural = (
        "Our rollback took three hours yesterday. Can you write down what we should have looked at?",
        "Could you write a letter to Mara about Friday? She has read enough long ones.",
        "ok, and now?",
        "I want to deploy on Tuesday. Is there anything I should look at first, say the free space of the disk?",
    )
    assert [text for text in (*natural, *NATURAL) if echo(SEEDS, user(text))] == []
    assert echo((), user("Hello!")) == echo(("", "..."), user("Hello!")) == ""


def test_a_scenario_that_differs_from_a_short_seed_in_one_word_is_a_new_one() -> None:
    """In a narrow world everything is phrased alike."""
    seeds = ("Could you please open the red door?", "Where can I buy a lamp?")
    assert echo(seeds, user("Could you please open the red gate?")) == ""
    assert echo(seeds, user("Could you please open the red door")) == "it is seed 1"
