"""The goals: each is missed by the one figure that it is about, at the number that the issue names."""

import json
from collections.abc import Mapping

import pytest

from apollod.core.surroundings import SURROUNDING_KINDS
from apollod.demo import dream_report
from apollod.demo.dream_report import Seen
from apollod.demo.world.exam import Rate, way_in
from apollod.demo.world.instructions import KINDS, Instruction
from apollod.demo.world.measuring import Group, Measured

PATTERNS = [Instruction("ask"), Instruction("caps"), Instruction("end", "Over")]
OWN = [one.kind for one in PATTERNS]


def seen(before: Mapping[Group, int] = {}, after: Mapping[Group, int] = {}) -> Seen:
    """Every pattern moved and nothing lost, but for what is given: passed of 60."""
    cases: dict[Group, Rate] = {("told", kind): Rate(60, 60) for kind in KINDS}
    cases |= {
        (way_in(way, around), kind): Rate(60, 60)
        for kind in OWN
        for around in SURROUNDING_KINDS
        for way in ("told", "opposite", "cancelled")
    }
    cases |= {("facts", ""): Rate(60, 60), ("talk", ""): Rate(60, 60)}
    untold = [(way_in("untold", around), kind) for kind in OWN for around in SURROUNDING_KINDS]
    first, last = (cases | {group: Rate(passed, 60) for group in untold} for passed in (0, 60))
    return Seen(
        Measured(first | {group: Rate(passed, 60) for group, passed in before.items()}, 0.1),
        Measured(last | {group: Rate(passed, 60) for group, passed in after.items()}, 0.2),
    )


@pytest.mark.parametrize(
    "before, after, missed",
    [
        ({}, {}, set()),
        ({("untold", "ask"): 3}, {}, set()),
        ({("untold", "ask"): 4}, {}, {"patterns_moved"}),
        ({}, {("untold", "caps"): 54}, set()),
        ({}, {("untold", "caps"): 53}, {"patterns_moved"}),
        ({}, {("opposite", "end"): 54}, set()),
        ({}, {("opposite", "end"): 53}, {"patterns_moved"}),
        ({}, {("cancelled", "end"): 53}, {"patterns_moved"}),
        ({("untold, agent", "ask"): 4}, {}, {"patterns_moved"}),
        ({}, {("untold, neutral", "end"): 53}, {"patterns_moved"}),
        ({}, {("opposite, own", "caps"): 53}, {"patterns_moved"}),
        ({}, {("facts", ""): 57}, set()),
        ({}, {("facts", ""): 56}, {"facts_lost"}),
        ({}, {("told", "json"): 54}, set()),
        ({}, {("told", "json"): 53}, {"told_lost"}),
        ({}, {("told", "ask"): 53}, {"told_lost"}),
        ({("told", "json"): 55}, {("told", "json"): 50}, set()),
    ],
)
def test_a_goal_is_missed_by_its_own_figure(
    before: dict[Group, int], after: dict[Group, int], missed: set[str]
) -> None:
    goals = dream_report.goals(PATTERNS, seen(before, after), replayed=True)
    assert {name for name, goal in goals.items() if not goal["met"]} == missed


def test_other_bits_in_the_replay_are_a_missed_goal() -> None:
    goals = dream_report.goals(PATTERNS, seen(), replayed=False)
    assert {name for name, goal in goals.items() if not goal["met"]} == {"replayed"}


def test_every_behaviour_has_to_move() -> None:
    patterns = [*PATTERNS, Instruction("greet")]
    rates = {(way_in("untold", around), "greet"): 0 for around in SURROUNDING_KINDS}
    rates |= {(way_in(way, around), "greet"): 60 for way in ("opposite", "cancelled") for around in SURROUNDING_KINDS}
    moved = dream_report.goals(patterns, seen(rates, rates), True)["patterns_moved"]
    assert moved == {"value": 3, "goal": 4, "met": False}


def test_table_and_figures_say_what_was_seen() -> None:
    one = seen({("untold", "ask"): 1}, {("told", "json"): 59})
    (ask, *_), others = dream_report.rows(PATTERNS, one), dream_report.kept(PATTERNS, one)
    assert len(ask) == len(dream_report.COLUMNS)
    assert ask[:5] == ("ask", "none", "60/60 (0.94-1.00)", "1/60 (0.00-0.09)", "60/60 (0.94-1.00)")
    assert ("told json", "60/60 (0.94-1.00)", "59/60 (0.91-1.00)") in others
    found = json.loads(json.dumps(dream_report.figures(PATTERNS, one)))
    assert found["patterns"]["ask"]["around"]["agent"]["after"]["bare"]["passed"] == 60
    assert found["patterns"]["ask"]["before"]["bare"]["passed"] == 1 and found["patterns"]["ask"]["moved"]
    assert found["others"]["json"]["after"] == {"passed": 59, "cases": 60, "interval": [0.9114, 0.9971]}
    assert found["probe_loss"] == {"before": 0.1, "after": 0.2} and set(found["others"]) == set(KINDS) - set(OWN)
