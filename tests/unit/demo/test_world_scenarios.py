"""What may be seen in pretraining, practised and tested: apart for ever, by content and by phrasing."""

import random
import re
from functools import cache
from itertools import islice

import pytest

from apollod.demo.world import pretraining_texts, scenarios
from apollod.demo.world.scenarios import COLOURS, COMMAND_OF, THINGS, Act, How, Scenario, Split, Task

ORDERS: tuple[scenarios.Kind, ...] = ("act", "how")


@cache
def requests(kind: scenarios.Kind, split: Split) -> frozenset[str]:
    return frozenset(scenario.request for scenario in scenarios.pool(kind, split))


def phrasing(scenario: Scenario) -> str:
    assert isinstance(scenario, Act | How)
    words = {scenario.task.verb: "V", scenario.task.colour: "C", scenario.task.thing: "T"}
    return re.sub(r"\w+", lambda word: words.get(word[0].lower(), word[0]), scenario.request)


def test_every_task_is_in_one_split_and_stays_there() -> None:
    tasks = scenarios.every_task()
    assert len(set(tasks)) == len(COMMAND_OF) * len(COLOURS) * len(THINGS) == 1600
    counts = {split: sum(task.split is split for task in tasks) for split in Split}
    assert counts == {Split.PRETRAINING: 1130, Split.PRACTICE: 190, Split.TEST: 280}
    assert Task("open", "red", "door").split is Split.PRETRAINING, "the digest does not change with Python's own hash"


@pytest.mark.parametrize("kind", ORDERS)
def test_no_split_shares_a_task_or_a_request_with_another(kind: scenarios.Kind) -> None:
    tasks = {split: {scenario.task for scenario in scenarios.pool(kind, split)} for split in Split}  # type: ignore[union-attr]
    for split in Split:
        for other in set(Split) - {split}:
            assert not tasks[split] & tasks[other]
            assert not requests(kind, split) & requests(kind, other)


@pytest.mark.parametrize("kind", ORDERS)
def test_phrasings_of_tests_are_their_own_and_made_of_known_words(kind: scenarios.Kind) -> None:
    phrasings = {split: {phrasing(scenario) for scenario in scenarios.pool(kind, split)} for split in Split}
    assert len(phrasings[Split.TEST]) == 3
    assert phrasings[Split.PRACTICE] == phrasings[Split.PRETRAINING]
    assert not phrasings[Split.TEST] & phrasings[Split.PRETRAINING]
    known = set(
        re.findall(
            r"\w+", " ".join(request for any_kind in ORDERS for request in requests(any_kind, Split.PRETRAINING))
        )
    )
    assert set(re.findall(r"\w+", " ".join(requests(kind, Split.TEST)))) <= known


def test_the_words_of_tests_occur_in_every_split() -> None:
    for split in Split:
        tasks = [task for task in scenarios.every_task() if task.split is split]
        assert [{*column} for column in zip(*tasks, strict=True)] == [{*COMMAND_OF}, {*COLOURS}, {*THINGS}]


def test_facts_and_small_talk_have_one_answer_each_in_every_split() -> None:
    for kind, count in (("fact", 48), ("talk", 6)):
        assert scenarios.pool(kind, Split.PRETRAINING) == scenarios.pool(kind, Split.TEST)
        assert len(requests(kind, Split.TEST)) == len(scenarios.pool(kind, Split.TEST)) == count


def test_a_sample_is_of_different_scenarios_and_repeats() -> None:
    drawn = scenarios.sample(random.Random(3), "act", Split.TEST, 60)
    assert len({scenario.request for scenario in drawn}) == 60
    assert drawn == scenarios.sample(random.Random(3), "act", Split.TEST, 60)
    assert drawn != scenarios.sample(random.Random(4), "act", Split.TEST, 60)
    with pytest.raises(ValueError, match="larger than population"):
        scenarios.sample(random.Random(3), "talk", Split.TEST, 7)


def test_pretraining_never_sees_a_task_or_a_phrasing_that_is_held_out() -> None:
    held = {
        scenario.request
        for kind in ORDERS
        for split in (Split.PRACTICE, Split.TEST)
        for scenario in scenarios.pool(kind, split)
    }
    seen = [messages[-2]["content"] for messages in islice(pretraining_texts.conversations(0), 4000)]
    assert not held & set(seen)
    shares = {
        kind: sum(request in requests(kind, Split.PRETRAINING) for request in seen) / 4000 for kind in scenarios.SHARES
    }
    assert shares == pytest.approx(scenarios.SHARES, abs=0.03)


def test_the_stream_of_texts_repeats() -> None:
    def first(seed: int) -> list[object]:
        return list(islice(pretraining_texts.conversations(seed), 500))

    assert first(7) == first(7) != first(8)
