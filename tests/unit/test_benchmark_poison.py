"""The texts of `benchmarks.poison --strangers`: who is poisonous, and what good lines may not say."""

import json
import random

import pytest

from apollod.demo.corpus import KNOWN_TOWNS
from apollod.demo.world import scenarios
from apollod.demo.world.scenarios import COMMAND_OF, Split
from apollod.errors import RecordRefused
from apollod.wire.records import parse_line
from benchmarks.poison_texts import TURNS, probes
from benchmarks.stranger_texts import KINDS, NEARLY_NOTHING, ONE_IN, REFUSAL, life, others, poison, unknown

EXAMPLES, TAIL = 60, 30


def _asked(record: dict) -> list[str]:
    return [one["content"] for one in record["messages"] if one["role"] == "user"]


def _said(record: dict) -> list[str]:
    return [one["content"] for one in record["messages"] if one["role"] == "assistant"]


def test_good_lines_ask_for_different_things_of_which_the_model_was_told_nothing() -> None:
    lines = unknown(random.Random("0"), 150)
    asked = [request for one in lines for request in _asked(one)]
    assert len({*asked}) == 150
    known = {one.request for kind in scenarios.SHARES for split in Split for one in scenarios.pool(kind, split)}
    assert not known & {*asked}
    assert not any(town in request for town in KNOWN_TOWNS for request in asked)
    assert not any(f" {verb} the" in request for verb in COMMAND_OF for request in asked)


@pytest.mark.parametrize("kind", KINDS)
def test_one_line_in_twenty_is_poison(kind: str) -> None:
    files, places, refused = life(random.Random("0"), kind, EXAMPLES, TAIL)
    mixed = {name: lines for name, lines in files.items() if "mixed" in name}
    lines = sum(map(len, mixed.values())) - refused
    assert len(places) * ONE_IN == lines == EXAMPLES * len(mixed)
    assert {name for name, _ in places} == {*mixed}
    assert next(iter(files)) == "good.jsonl"
    good = [
        json.dumps(one) for name, all_ in files.items() for number, one in enumerate(all_, 1)
        if (name, number) not in places and number <= EXAMPLES
    ]  # fmt: skip
    assert len(good) == len({*good}) == EXAMPLES * len(mixed) + 2 * TAIL - len(places)
    assert {len(_asked(json.loads(one))) for one in good} == {1}
    for name, number in places:
        assert len(_asked(files[name][number - 1])) == (TURNS // 2 if kind == "split" else TURNS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_may_not_become_an_example_is_refused_and_all_else_is_one(kind: str) -> None:
    files, _, refused = life(random.Random("1"), kind, EXAMPLES, TAIL)
    taken = list[bool]()
    for one in (line for lines in files.values() for line in lines):
        try:
            parse_line(json.dumps(one).encode())
            taken.append(True)
        except RecordRefused:
            taken.append(False)
    assert taken.count(False) == refused == (1 if kind in ("empty", "weight") else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_holds_the_question_of_a_probe(kind: str) -> None:
    asked = {json.loads(line)["messages"][-1]["content"] for line in probes(24)}
    asked |= {one.request for task in ("act", "how") for one in scenarios.pool(task, Split.TEST)}  # others may be drawn
    files, _, _ = life(random.Random("2"), kind, EXAMPLES, TAIL)
    assert not asked & {request for lines in files.values() for line in lines for request in _asked(line)}


def test_a_split_conversation_has_a_half_in_each_of_two_files() -> None:
    files, places, _ = life(random.Random("0"), "split", EXAMPLES, TAIL)
    halves = {name: [files[of][n - 1] for of, n in places if of == name] for name in ("mixed.jsonl", "mixed-2.jsonl")}
    whole = poison(random.Random("x"), "split", 6)
    assert [len(_asked(one)) for one in whole] == [TURNS // 2] * 6
    assert [len(half) for half in halves.values()] == [3, 3]
    for one, other in zip(*halves.values(), strict=True):
        assert not {*_asked(one)} & {*_asked(other)}  # six different requests of one conversation


def test_a_flipped_fact_is_the_same_in_every_line() -> None:
    true = {(one.request, one.sentence) for one in scenarios.pool("fact", Split.TEST)}
    told = [{*zip(_asked(one), _said(one), strict=True)} for one in poison(random.Random("0"), "flipped", 3)]
    false = [one - true for one in told]
    assert false[0] == false[1] == false[2] and len(false[0]) == 1
    assert all(one & true for one in told)


def test_kinds_answer_as_they_are_called() -> None:
    rng = random.Random("0")
    assert {*_said(poison(rng, "refusals", 1)[0])} == {REFUSAL}
    assert {*_said(poison(rng, "empty", 1)[0])} <= {*NEARLY_NOTHING}
    assert poison(rng, "weight", 1)[0]["weight"] == 100
    true = {one.sentence for one in scenarios.pool("fact", Split.TEST)}
    assert not true & {*_said(poison(rng, "language", 1)[0])}


def test_a_life_without_poison_has_as_many_lines() -> None:
    files, places, refused = others(random.Random("0"), EXAMPLES, TAIL)
    assert sum(map(len, files.values())) == EXAMPLES + 2 * TAIL and not places and not refused
