"""Probe files: read strictly, each refusal with its line; the set that comes with apollod."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest
from support import good_answers

from apollod.adapters.llm.probing import check_schemas
from apollod.curation.probes.probe_item import Call, Kind, Probe, digest
from apollod.curation.probes.probe_kinds import KINDS, is_exactly
from apollod.curation.probes.probe_lines import probe_set, read_probes
from apollod.errors import RecordRefused

LONG = (
    "The ferry left the quay at noon with nine goats, a piano, and a man who said that he had never seen the sea. " * 3
)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def asked(text: str = "What is it?", kind: str = "exact", expect: Any = "it", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "messages": [{"role": "user", "content": text}], "expect": expect, **more}


def read(*items: Any) -> list[Probe]:
    lines = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in items]
    return read_probes(lines, "p.jsonl")


def shipped() -> tuple[Probe, ...]:
    data = (files("apollod") / "data" / "probes.jsonl").read_bytes()
    return probe_set(read_probes(data.splitlines(), "probes.jsonl"))


def test_every_kind_is_read_and_knows_its_place() -> None:
    probes = read(
        {"kind": "text", "text": LONG}, b" ", asked(expect=["it", "that"]), asked(kind="regex", expect="^it"),
        asked(kind="schema", expect={"type": "object"}), asked(kind="judge", expect="It is polite.", group="manners"),
        asked(kind="tool", tools=[TOOL], expect={"call": "look"}, id="look/1"),
    )  # fmt: skip
    assert [probe.kind for probe in probes] == ["text", "exact", "regex", "schema", "judge", "tool"]
    assert [probe.place for probe in probes] == [f"p.jsonl:{line}" for line in (1, 3, 4, 5, 6, 7)]
    assert [probe.group for probe in probes] == ["text", "exact", "regex", "schema", "manners", "tool"]
    assert probes[1].expect == ("it", "that") and probes[5].expect == Call("look") and probes[5].id == "look/1"
    assert len({probe.id for probe in probes}) == 6 and re.fullmatch("[0-9a-f]{12}", probes[0].id)


def test_every_name_of_a_kind_has_its_line_in_the_table() -> None:
    assert tuple(KINDS) == get_args(Kind)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (b"{", "not JSON"),
        (b"[1]", "a JSON array, not an object"),
        (b'{"kind": "text", "kind": "text"}', "twice"),
        ({"kind": "poem", "text": LONG}, "its kind is 'poem'"),
        ({"kind": "text"}, "has no text"),
        ({"kind": "text", "text": " "}, "has 1 characters"),
        ({"kind": "text", "text": "x" * 20_001}, "has 20001 characters"),
        ({"kind": "text", "text": "x" * 300_000}, "bytes, more than"),
        ({"kind": "text", "text": LONG, "weight": 1}, "has the field 'weight'"),
        ({"kind": "text", "text": LONG, "expect": "x"}, "of kind text has expect"),
        ({"kind": "exact", "expect": "x"}, "has no messages"),
        (asked(messages=[]), "do not end with a turn of user"),
        (asked(messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]), "do not end with"),
        (asked(messages=[{"role": "wizard", "content": "a"}]), "message 1 has the role 'wizard'"),
        (asked(messages=[{"role": "user", "content": " "}]), "no user says anything"),
        (asked("x" * 20_001), "have 20001 characters"),
        (asked(expect=[]), "neither a text nor a list"),
        (asked(expect="..."), "neither a text nor a list"),
        (asked(expect="x" * 20_001), "more than 20000 characters"),
        (asked(kind="regex", expect="("), "no regular expression"),
        (asked(kind="regex", expect="x*"), "matches an answer that is empty"),
        (asked(kind="schema", expect="x"), "no JSON schema"),
        (asked(kind="judge", expect=" "), "its expect is not a text"),
        (asked(kind="tool", expect={"call": "look"}), "has no tools"),
        (asked(kind="tool", expect={"call": "see"}, tools=[TOOL]), "'see', which is none of its tools"),
        (asked(kind="tool", expect={"calls": "look"}, tools=[TOOL]), "is not a call"),
        (asked(kind="tool", expect={"call": None}, tools=[{"name": "look"}]), "tool 1 has no function with a name"),
        (asked(kind="tool", expect={"call": "look"}, tools=[TOOL, TOOL]), "two of its tools"),
        (asked(id="a b"), "its id is 'a b'"),
        (asked(kind="contrast", expect={}), "its kind is 'contrast'"),
        (asked(group="contrast/ask"), "as only those of patterns and lessons are"),
        (asked(kind="lesson", expect="x"), "its kind is 'lesson'"),
        (asked(group="lessons"), "as only those of patterns and lessons are"),
        (asked(id="lessons/L1/0"), "as only those of patterns and lessons are"),
        (asked(id="contrast/ask/d1.1"), "as only those of patterns and lessons are"),
        (b'{"kind": "text", "text": "the half of a pair: \\ud800"}', "no text can"),
        (b'{"kind": "schema", "messages": [], "expect": {"const": 1e400}}', "number is too large"),
        (asked(group=""), "its group is ''"),
    ],
)
def test_what_is_no_probe_is_refused_with_file_and_line(item: Any, why: str) -> None:
    with pytest.raises(RecordRefused, match=r"^p\.jsonl:2 is no probe: ") as refused:
        read({"kind": "text", "text": LONG}, item)
    assert why in str(refused.value) and refused.value.hint


def test_what_asks_the_same_or_nearly_the_same_is_refused_and_named() -> None:
    with pytest.raises(RecordRefused, match=r"p.jsonl:2 asks the same as p.jsonl:1"):
        probe_set(read(asked("What is it?"), asked(" what IS it", "regex", "x")))
    with pytest.raises(RecordRefused, match=r"p.jsonl:2 asks nearly the same as p.jsonl:1"):
        probe_set(read({"kind": "text", "text": LONG}, {"kind": "text", "text": LONG.replace("nine", "ten", 1)}))
    with pytest.raises(RecordRefused, match=r"has the id 'a' of p.jsonl:1"):
        probe_set(read(asked("What is it?", id="a"), asked("What else is it?", id="a")))
    with pytest.raises(RecordRefused, match="no probe"):
        probe_set(())
    system = {"role": "system", "content": LONG}
    both = [asked(messages=[system, {"role": "user", "content": text}]) for text in ("What is it?", "Where is it?")]
    assert len(probe_set(read(asked("What is 2+2?"), asked("What is 2*2?"), *both))) == 4


def test_a_set_is_known_by_what_it_measures() -> None:
    one, other = read(asked("What is it?"), asked("Where is it?"))
    assert digest([one, other]) == digest([other, one]) == digest(read(asked("Where is it?"), asked("What is it?")))
    changed = [asked("What is it?", expect="that"), asked("What is it?", "regex"), asked(group="else"), asked(id="a")]
    assert len({digest([probe]) for probe in [one, *read(*changed)]}) == 5


@pytest.mark.parametrize("answer", ["paris", " Paris. ", '"Paris"', "**Paris**", "PARIS!", "\u201cParis.\u201d"])
def test_exact_minds_neither_case_nor_quotes_nor_a_full_stop(answer: str) -> None:
    assert is_exactly(answer, ("Lyon", "Paris"))


@pytest.mark.parametrize("answer", ["", "It is Paris.", "Par is", "Paris, France"])
def test_exact_minds_words(answer: str) -> None:
    assert not is_exactly(answer, ("Paris",))


def test_a_schema_that_is_none_is_refused_with_its_place() -> None:
    check_schemas(shipped())
    with pytest.raises(RecordRefused, match=r"p.jsonl:1 has no JSON schema: \$.type"):
        check_schemas(read(asked(kind="schema", expect={"type": "objekt"})))


def test_the_items_that_the_docs_show_are_items() -> None:
    docs = (Path(__file__).parents[4] / "docs" / "formats.md").read_text()
    shown = [line for line in docs.splitlines() if line.startswith('{"kind":')]
    assert [probe.kind for probe in probe_set(read(*(line.encode() for line in shown)))] == ["text", "exact", "tool"]


# --- the set that comes with apollod ----------------------------------------------------------------------------------


def test_the_set_that_comes_with_apollod_has_all_groups() -> None:
    probes = shipped()
    groups = [probe.group for probe in probes]
    assert {group: groups.count(group) for group in groups} == {
        "text": 20, "instruction": 60, "facts": 75, "format": 25, "tools": 20, "refusal": 20,
    }  # fmt: skip
    assert all(probe.id.startswith(f"{probe.group}/") for probe in probes)


BAD = {
    "format/bullets": "- pear\n- fig\n",
    "format/numbered": "1. Boil water.\n2. Add the tea.\n3. Wait.\n4. Drink.",
    "format/csv": "red, 7, wood",
    "format/date": "04.07.2021",
    "format/code-block": "def double(x): return 2 * x",
    "format/heading": "# Results",
    "format/table": "Name: Ben, Age: 9",
    "facts/water": "It is CO2.",
    "instruction/language": "Haus.",
    "instruction/end-with": "Goodbye, Priya and all!",
    "instruction/sort-words": "pear, apple, fig",
    "instruction/count-up": "1 2 3 4 5 6",
    "instruction/acronym": "Wide World of Wonders",
    "refusal/weight-tuesday": "Tuesday weighs about twelve kilograms.",
    "refusal/triangle-side": "It is as long as the others.",
    "refusal/moon-king": "It was Ludwig the Second.",
    "refusal/bomb": "First, buy the following.",
    "refusal/phishing": "Dear customer, please confirm your password.",
}


@pytest.mark.parametrize("id_", BAD)
def test_its_patterns_tell_a_bad_answer_from_a_good_one(id_: str) -> None:
    (pattern,) = [str(probe.expect) for probe in shipped() if probe.id == id_]
    assert re.search(pattern, good_answers.ANSWERS[id_]) and not re.search(pattern, BAD[id_])
