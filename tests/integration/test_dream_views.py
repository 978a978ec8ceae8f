"""The views `patterns`, `dreams`, `dream_tests` and `verdicts` say what the fold of the same journal knows."""

from pathlib import Path

import msgspec
import pytest
from support.dreaming_world import PATTERN, DreamingWorld, with_patterns
from support.dreamt_journal import dreamt, story, write_story

from apollod.adapters.journal.journal_reader import query
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.scenario import Sketch
from apollod.core.rules.dreams.continuing import DreamNotes


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_story(tmp_path_factory.mktemp("views") / "journal.db", story())


def test_patterns_are_what_the_state_knows(path: Path) -> None:
    rows = query(
        path,
        "SELECT name, state, held_out, baseline_bare, baseline_told, baseline_contrast, last_bare, last_contrast, "
        "dreams, practices, tokens FROM patterns ORDER BY seq",
    ).rows
    known = dreamt().state.dreams.courses
    assert [row[:3] for row in rows] == [(name, one.phase, one.pattern.held_out) for name, one in known.items()]
    modes = ("bare", "told", "contrast")
    assert [row[3:6] for row in rows] == [tuple(one.baseline[m][0] for m in modes) for one in known.values()]
    final = [[one.final.get(m, (None, 0))[0] for m in ("bare", "contrast")] for one in known.values()]
    assert [list(row[6:8]) for row in rows] == final and final[0] == [4, 4]
    assert [row[8:] for row in rows] == [(one.dreams, one.practices, one.tokens) for one in known.values()]


def test_a_pattern_that_is_added_again_begins_anew_and_a_round_that_is_not_whole_does_not_count(tmp_path: Path) -> None:
    again = next(r.event for r in story() if isinstance(r.event, ev.PatternAdded) and r.event.key() == "ask")
    test = next(r.event for r in story() if isinstance(r.event, ev.DreamTested) and r.event.round == "baseline")
    after = [ev.Recorded(0, r.at_ns, r.event) for r in story()]
    after += [ev.Recorded(0, 0, again), ev.Recorded(0, 0, test)]
    path = write_story(tmp_path / "journal.db", after)
    columns = "state, baseline_bare, last_round, dreams, practices, tokens"
    assert query(path, f"SELECT {columns} FROM patterns WHERE name = 'ask'").rows == [("active", None, None, 0, 0, 0)]


def test_after_a_rollback_a_round_of_the_same_name_counts_by_itself(tmp_path: Path) -> None:
    world = DreamingWorld(with_patterns(PATTERN, msgspec.structs.replace(PATTERN, name="brief"))).up()
    world.dream()
    courses = world.state.dreams.courses
    (first,) = [name for name, one in courses.items() if one.round.startswith("recheck")]
    assert courses[first].phase == "settled"
    name, world.firm[first] = courses[first].round, 0
    world.give(inp.RollbackRequested(world.state.training.version - 1, "p"))
    world.settle()
    assert courses[first].rechecked == -1
    while courses[first].rechecked == -1:
        world.call()
        world.settle()
    assert courses[first].round == name and courses[first].final["bare"] == (0, 4)
    path = write_story(tmp_path / "journal.db", list(world.journal))
    columns = "name, baseline_bare, baseline_told, last_bare, last_contrast"
    assert query(path, f"SELECT {columns} FROM patterns ORDER BY seq").rows == [
        (name, one.baseline["bare"][0], one.baseline["told"][0], one.final["bare"][0], one.final["contrast"][0])
        for name, one in courses.items()
    ]


def test_every_dream_has_a_row_with_its_end_and_what_came_of_it(path: Path) -> None:
    rows = query(path, "SELECT dream, purpose, example, step, passed, variation_of, state FROM dreams").rows
    asked = {r.event.dream: r.event for r in story() if isinstance(r.event, ev.DreamRequested)}
    trained = {r.event.dream: r.event for r in story() if isinstance(r.event, ev.DreamTrained)}
    assert [row[0] for row in rows] == list(asked) and len(rows) > 25
    for dream, purpose, example, step, passed, of, _ in rows:
        assert (purpose, of or "") == (asked[dream].purpose, asked[dream].of)
        learned = (trained[dream].example, trained[dream].step) if dream in trained else (None, None)
        assert (example, step) == learned and (passed is None) == (purpose == "practice")
    states = [row[6] for row in rows]
    assert states[-1] == "imagined" and states.count("abandoned") == 1 and set(states[:-1]) == {"settled", "abandoned"}
    (why,) = query(path, "SELECT reason FROM dreams WHERE state = 'abandoned'").rows
    assert why[0].startswith("the answer is called unsure")


def test_every_test_has_a_row(path: Path) -> None:
    rows = query(path, "SELECT dream, pattern, coalesce(round, ''), mode, passed FROM dream_tests ORDER BY seq").rows
    tested = [r.event for r in story() if isinstance(r.event, ev.DreamTested)]
    assert rows == [(e.dream, e.pattern, e.round, e.mode, int(e.passed)) for e in tested]


def test_what_the_judge_said_of_a_dream_is_among_the_verdicts(path: Path) -> None:
    rows = query(path, 'SELECT dream, verdict, better, "into", model FROM verdicts WHERE dream IS NOT NULL').rows
    said = [r.event for r in story() if isinstance(r.event, ev.DreamJudged) and r.event.by == "judge"]
    assert rows == [(e.dream, e.verdict, e.better, e.example or None, "m") for e in said]
    assert {row[1] for row in rows} == {"good", "bad"}


def test_figures_go_on_in_a_journal_that_goes_on_from_an_archive(tmp_path: Path) -> None:
    notes, own = DreamNotes(), dreamt().state.dreams
    for recorded in story():
        notes.see(recorded)
    carried = [ev.Recorded(0, at_ns, event) for at_ns, event in notes.taken_over(own, 0)]
    assert own.open is not None
    more = ev.DreamAnswered(own.open.id, "told", "said", Sketch(b"", b""), tokens=7)
    path = write_story(tmp_path / "journal.db", [*carried, ev.Recorded(0, 0, more)])
    columns = "name, baseline_bare, last_bare, dreams, practices, tokens"
    assert query(path, f"SELECT {columns} FROM patterns ORDER BY seq").rows == [
        (name, one.baseline["bare"][0], one.final.get("bare", (None, 0))[0], one.dreams, one.practices,
         one.tokens + 7 * (name == own.open.pattern))
        for name, one in own.courses.items()
    ]  # fmt: skip
