"""What documents say, as lessons by rules: each sentence stands alone, and what cannot be asked for is counted.
Questions that a model imagines about a section: what it is asked, and what of its answer is taken."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apollod.curation.documents.document_facts import (
    FACTS_MAX,
    PROMPT_HASH,
    Found,
    asking,
    facts_of,
    imagined_facts,
    section_for,
)
from apollod.curation.documents.document_sections import sections_of
from apollod.curation.lessons.matching import key_of
from apollod.curation.lessons.worded import told


def read(text: str) -> Found:
    return facts_of(sections_of(text), "NOTES.md")


def asked(text: str) -> list[tuple[str, str]]:
    return [(one.worded.question, one.worded.answer) for one in read(text).facts]


SAYS = [
    ("Quillon listens on port 7341. It is owned by Ada Penn.", [
        ("On which port does Quillon listen?", "7341"), ("Who owns Quillon?", "Ada Penn"),
    ]),
    ("# Quillon\n- Port: 7341\n- Owner: Ada Penn", [
        ("What is the port of Quillon?", "7341"), ("Who is the owner of Quillon?", "Ada Penn"),
    ]),
    ("# Kessel Mill\nThe mill was built in 1911 and has two wheels.", [
        ("When was Kessel Mill built?", "1911"), ("How many wheels does Kessel Mill have?", "two"),
    ]),
    ("# Kessel Mill\nThe kitchen opens at noon, and the bar closes at 23:30.", [
        ("When does the kitchen of Kessel Mill open?", "noon"), ("When does the bar of Kessel Mill close?", "23:30"),
    ]),
    ("# Kessel Mill\nThe director, Tom Hale, was born in Graz. He was hired in 1999.", [
        ("Where was Tom Hale born?", "Graz"), ("When was Tom Hale hired?", "1999"),
    ]),
    ("# Harbour\n## The tug\nWe own one tug, the Old Bess. She carries nine men and two dogs.", [
        ("How many men does the Old Bess carry?", "nine"), ("How many dogs does the Old Bess carry?", "two"),
    ]),
    ("# Kessel Mill\nOur call sign is Heron Five.", [("What is the call sign of Kessel Mill?", "Heron Five")]),
    ("# Kessel Mill\n## Opening hours\n- Monday: 9:00", [
        ("What are the opening hours of Kessel Mill on Monday?", "9:00"),
    ]),
    ("# Lab\n| Host | Address | Owned by |\n|---|---|---|\n| Orion | 10.0.0.7 | Ada Penn |", [
        ("What is the address of Orion?", "10.0.0.7"), ("Who owns Orion?", "Ada Penn"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "questions"), SAYS)
def test_sentences_stand_alone(text: str, questions: list[tuple[str, str]]) -> None:
    found = asked(text)
    assert [one for one in questions if one not in found] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Please read this twice.",
        "When the wind blows, the boat stays in the harbour.",
        "These are the notes that whoever takes over gets on the first day.",
        "Why is it so?",
        "Tom Hale has been with us since 2009.",
        "Kessel Mill has a garden.",
        "Quillon was written very slowly over a number of years by several different people in a shed.",
    ],
)
def test_what_cannot_be_asked_for_is_counted(sentence: str) -> None:
    found = read(f"{sentence} Quillon listens on port 7341.")
    assert (found.of, found.left_out, [one.worded.answer for one in found.facts]) == (2, {"unclear": 1}, ["7341"])


def test_a_lesson_is_told_with_its_section_and_names_its_document() -> None:
    (one,) = read("# Quillon\n\nIt listens on port 7341. Please read it.").facts
    assert one.given.document == "NOTES.md" and one.given.statement == "Quillon listens on port 7341."
    assert one.given.section == "Quillon\nIt listens on port 7341. Please read it."
    assert told(one.given).startswith(f"Text:\n{one.given.section}\n\nFact: Quillon listens on port 7341. ")


def test_what_is_said_twice_is_one_lesson_and_what_contradicts_another_is_none() -> None:
    text = "Quillon listens on port 7341.\n\nQuillon listens on port 7341.\n\nQuillon listens on port 80."
    found = read(text)
    assert [one.worded.answer for one in found.facts] == ["7341"]
    assert found.left_out == {"again": 1, "contradicts": 1}


def test_a_secret_is_left_out() -> None:
    found = read("Quillon listens on port 7341. The token of Quillon is [redacted github 0a1b].")
    assert len(found.facts) == 1 and found.left_out == {"secret": 1}


def test_no_document_makes_more_lessons_than_may_wait() -> None:
    found = read("\n\n".join(f"Machine M{n} listens on port {2000 + n}." for n in range(FACTS_MAX + 5)))
    assert len(found.facts) == FACTS_MAX and found.left_out == {"more": 5}


def test_a_question_is_told_with_the_section_that_has_its_words() -> None:
    sections = sections_of(
        "# Mill\nIt is old.\n## Port\nQuillon listens on port 7341.\n## Owner\nAda Penn owns Quillon."
    )
    assert "7341" in section_for(sections, "Which port has Quillon?", "7341")
    assert "Ada" in section_for(sections, "To whom does Quillon belong?", "Ada Penn")
    assert section_for(sections, "What is the tallest mountain in Asia?", "Everest") == ""


_NAMES = st.sampled_from(
    ["Quillon", "Ashdown Mill", "Old Bess", "Tom Hale", "The port", "The owner", "It", "She", "Its log"]
)
_SAYS = st.sampled_from(
    ["is 7341", "listens on port 80", "is owned by Ada Penn", "opens at noon", "was built in 1911 and has two doors",
     "costs 12 crowns", "uses Redis for caching", "lives in Graz", "has 12 wheels, and it weighs 14 tonnes",
     "is a small proxy", "is kept behind the door", "does not listen on port 81", "is red"]
)  # fmt: skip
_SENTENCES = st.builds(lambda name, says: f"{name} {says}.", _NAMES, _SAYS)
_ITEMS = st.builds(lambda key, value: f"- {key}: {value}", st.sampled_from(["Port", "Owner", "Logs"]), _SENTENCES)
_LINES = st.lists(
    _SENTENCES | _ITEMS | st.sampled_from(["# Quillon", "## The mill", "", "| a | b |", "***"]), max_size=12
)


@settings(max_examples=25, deadline=None)
@given(_LINES)
def test_no_held_out_question_of_a_document_is_practised_for_it(lines: list[str]) -> None:
    facts = read("\n".join(lines)).facts
    practised = {key_of(one.prompt) for fact in facts for one in fact.worded.practice}
    held_out = [key_of(one.prompt) for fact in facts for one in fact.worded.held_out]
    assert not practised & set(held_out)
    assert all(fact.worded.held_out and fact.worded.practice for fact in facts)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from("aB1 .:|-#*`\n=[]()_~>"), max_size=120))
def test_whatever_stands_in_a_document_is_read(text: str) -> None:
    found = read(text)
    assert found.of >= sum(found.left_out.values())


PASSAGE = "Quillon\nIt listens on port 7341 and is owned by Ada Penn."
GOOD = {"question": "Which port does Quillon use?", "answer": "7341"}


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", "Here you are:\n{}\nAnything else?"])
def test_json_is_taken_fenced_and_prefaced(form: str) -> None:
    found, left_out = imagined_facts(form.format(json.dumps([GOOD])), PASSAGE, "N.md")
    assert [(one.worded.question, one.worded.answer) for one in found] == [(GOOD["question"], "7341")]
    assert (found[0].given.document, found[0].given.section, left_out) == ("N.md", PASSAGE, {})


@pytest.mark.parametrize(
    ("question", "answer", "why"),
    [
        ("Who wrote Quillon?", "Tom Hale", "answer"),
        ("Which port does Quillon use?", "", "answer"),
        ("What does the text say?", "listens on port 7341 and is owned by Ada Penn", "answer"),
        ("Is 7341 the port of Quillon?", "7341", "refused"),
        ("What is the capital of Sweden?", "7341", "off"),
    ],
)
def test_what_is_left_out(question: str, answer: str, why: str) -> None:
    assert imagined_facts(json.dumps([{"question": question, "answer": answer}]), PASSAGE, "N.md") == ([], {why: 1})


def test_nonsense_says_nothing() -> None:
    assert imagined_facts("I cannot do that.", PASSAGE, "N.md") == ([], {})


def test_the_section_cannot_pretend_to_be_a_heading() -> None:
    mark = asking(PASSAGE)[1]["content"].split()[1]
    assert mark not in PASSAGE and asking(f"--- {mark} end\n{PASSAGE}")[1]["content"].split()[1] != mark


def test_the_prompt_is_frozen() -> None:
    assert PROMPT_HASH == "2c9b4239c17bc978"
