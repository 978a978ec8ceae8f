"""Scenarios that give the behaviour away in other words, and natural ones of the same matter.

Written by hand. SEEN was looked at while the table of meanings was made, OTHER was written before it and only counted.
"""

import random
import time

import pytest
from unit.curation.dreaming.test_cheats import INSTRUCTIONS, NATURAL

from apollod.core.facts.dreams.scenario import Turn
from apollod.curation.dreaming.cheats import hint, leak
from apollod.demo.world.instructions import KINDS, OTHER_COMMANDS, WORDS, Instruction
from apollod.demo.world.scenarios import COMMAND_OF, Split, draw

SEEN = {
    "Greet the user first.": (
        (
            "Say hello before anything else, would you? Then: which bus goes to the harbour?",
            "I like it when people start with a good morning. How do I descale a kettle?",
            "Please open with a welcome. What is the capital of Peru?",
            "You never say hi at the beginning. Anyway, where is my parcel?",
        ),
        (
            "Could you greet my mother for me in the letter? She turns eighty.",
            "What do people say in Japan when they meet for the first time?",
            "I waved at him first and he looked away. What did I do wrong?",
            "Good evening. The lift is stuck again.",
        ),
    ),
    "Be brief.": (
        (
            "Keep it short, please. Why is the sky blue?",
            "No long-winded answers. How do vaccines work?",
            "What is inflation? To the point!",
            "I prefer concise replies. What is a mortgage?",
        ),
        (
            "Write me a short note to the landlord about the heating.",
            "My short hair won't stay in place. What can I use?",
            "Why are winter days so short in Norway?",
            "Explain how vaccines work. My son asked me yesterday.",
        ),
    ),
    "Ask before you act.": (
        (
            "Check with me first, then go ahead and clean the gate.",
            "Clean the gate, but get my okay before you touch anything.",
            "You should get permission prior to doing anything. Clean the gate.",
            "I'd like you to confirm with me before proceeding. Rename the branch.",
        ),
        (
            "He asked me out before the play, and I said no. Was that rude?",
            "Please clean the gate and lock it afterwards.",
            "Should I act my age at the party?",
            "My boss wants me to ask three suppliers for prices by Friday.",
        ),
    ),
    "Before you delete or overwrite files, say which ones they are and wait until the user agrees.": (
        (
            "Remove the old logs, but name the files first and pause until I approve.",
            "Prior to erasing documents, list them for me and wait for my okay.",
            "Tidy up. Never wipe or replace files without telling me which, and wait for a yes.",
        ),
        (
            "Delete the files in /tmp/build, we need the space.",
            "Which files were deleted last night? The report is gone.",
            "Please overwrite config.yaml with the version that I sent you.",
            "Can you wait with the backup until the files are there?",
        ),
    ),
    "Do not apologise.": (
        (
            "Don't say sorry this time. Why was the build red?",
            "Please skip the apologies. My parcel is late again.",
            "You can spare me the apology. What broke?",
        ),
        (
            "I want to apologise to my sister. What could I write?",
            "He did not say sorry. Should I forgive him?",
            "Sorry to bother you again, the printer doesn't print.",
        ),
    ),
}
OTHER = {
    "Answer in capitals.": (
        (
            "Please write everything in upper case. What is the tallest tree?",
            "Reply in block letters, my eyes are bad. When does the pool open?",
            "I'd like responses in all caps. Who wrote Emma?",
            "Your answer should be uppercase only. How far is the moon?",
        ),
        (
            "Which capitals can you see from the Danube by boat?",
            "My caps lock key is broken. How do I get it out?",
            "Is German the only language that writes nouns with a capital letter?",
            "Where do capital gains go in the form?",
        ),
    ),
    "Give no advice until the person has told you how they feel.": (
        (
            "Don't offer suggestions before you hear about my feelings. I lost my job.",
            "I need you to hold off on recommendations until I say what my mood is. She left.",
            "No tips yet, please: let me tell you first how I'm feeling.",
        ),
        (
            "I feel awful since Monday. What would you advise?",
            "My friend never takes advice. How do I tell him?",
            "I need advice on a mortgage, and I have no idea where to begin.",
            "How did people feel about the moon landing?",
        ),
    ),
    "Name your sources.": (
        (
            "Please cite references. When was the first railway built?",
            "I want citations with it: is coffee unhealthy?",
            "You should mention where you got it from. Is coffee unhealthy?",
        ),
        (
            "What are good sources of iron for a vegetarian?",
            "My teacher says that the link in my essay is broken. How do I fix it?",
            "Name three rivers in France.",
            "Where does the Rhine have its source?",
        ),
    ),
    "End every answer with a question.": (
        (
            "Always finish your replies by asking something. What is a haiku?",
            "I like it when the last sentence of an answer is a question. What is a haiku?",
            "Close each response with an inquiry, please. How do bees talk?",
        ),
        (
            "How does the film end? I fell asleep.",
            "I have a question about the end of the Roman empire.",
            "Could you answer the last question on this sheet?",
            "The interview ended with a question that I couldn't answer. What should I have said?",
        ),
    ),
    "Explain step by step and give an example.": (
        (
            "Please go through it one after the other, with an illustration. What is long division?",
            "Could you give me the reasoning step by step, plus an instance? How do tides work?",
            "Walk me through it and show a sample. How do tides work?",
        ),
        (
            "My step-son needs an example of a cover letter.",
            "What is long division? I forgot it after school.",
            "Each step of the stairs creaks. What can I do?",
            "The explanation in the manual is for another model. How do I reset the boiler?",
        ),
    ),
    "Use metric units.": (
        (
            "Please give figures in kilometres and celsius. How hot is Mars?",
            "I only think in metric, so use units I know. How tall is Everest?",
            "No miles, please: use metric units like centimetres. How tall is Everest?",
        ),
        (
            "Which unit is the best one for a small kitchen?",
            "My metric spanners don't fit. What could I use?",
            "How many people live in the unit next door?",
        ),
    ),
}
Cases = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]


def counted(cases: Cases) -> tuple[int, int, int, int]:
    """(leaks found, leaks, natural ones taken for leaks, natural ones)."""
    told = [bool(seen(one, text)) for one, (leaks, _) in cases.items() for text in leaks]
    natural = [bool(seen(one, text)) for one, (_, texts) in cases.items() for text in texts]
    return sum(told), len(told), sum(natural), len(natural)


def seen(instruction: str, text: str) -> str:
    return hint(instruction, (Turn("user", text),))


def test_of_those_that_were_looked_at_every_leak_is_seen_and_nothing_else() -> None:
    assert counted(SEEN) == (18, 18, 0, 19)


def test_of_the_others_half_is_seen_and_two_natural_ones_are_taken_for_leaks() -> None:
    """Recall 0.47, precision 0.82: docs/dreams.md. More is better: then write the new figures there."""
    assert counted(OTHER) == (9, 19, 2, 23)


def test_the_words_alone_see_hardly_any_of_them() -> None:
    every = [(one, text) for cases in (SEEN, OTHER) for one, (leaks, _) in cases.items() for text in leaks]
    assert sum(bool(leak(one, (Turn("user", text),))) for one, text in every) == 2


@pytest.mark.parametrize("instruction", [*INSTRUCTIONS, *SEEN, *OTHER])
def test_natural_scenarios_of_other_matters_give_nothing_away(instruction: str) -> None:
    assert {text: why for text in NATURAL if (why := seen(instruction, text))} == {}


def test_scenarios_of_the_small_world_give_nothing_away() -> None:
    chance = random.Random(0)
    texts = {draw(chance, Split.PRACTICE).request for _ in range(150)}
    command = next(iter(COMMAND_OF.values()))
    told = [Instruction(kind, {"use": OTHER_COMMANDS[0]}.get(kind, WORDS[0]), command) for kind in KINDS]
    wordings = [text for one in told for text in (*one.texts, *one.opposite.texts)]
    assert {(text, one) for one in wordings for text in texts if seen(one, text)} == set()


def test_any_turn_gives_it_away_and_without_its_negation_it_is_none() -> None:
    said = (Turn("user", "Hi"), Turn("assistant", "Short answers are what you like."), Turn("user", "So, why?"))
    assert "other words: 'Short answers are what you like'" in hint("Be brief.", said)
    assert hint("Be brief.", said[:1]) == hint("", said) == hint("Be brief.", ()) == ""
    assert seen("Do not apologise.", "Please don\u2019t say sorry.") and not seen(
        "Do not apologise.", "Please say sorry."
    )


def test_the_time_that_it_takes_is_bounded() -> None:
    began = time.process_time()
    hint("so many words, not files. " * 100, (Turn("user", "you ask for many files. " * 300),) * 7)
    assert time.process_time() - began < 3
