"""The views tell what was taken back, what waits again, and how it went."""

from pathlib import Path

from support.journals import STORY, TAKEN_BACK, A, C, D, E, F, completed, write

from apollod.adapters.journal_reader import query
from apollod.adapters.lineage import plan_way_back, tiers_of
from apollod.core import events as ev


def states(path: Path) -> dict[str, str]:
    return dict(query(path, "SELECT id, state FROM examples").rows)


def test_examples_of_steps_that_were_taken_back_are_marked(tmp_path: Path) -> None:
    path = write(tmp_path / "j.db", STORY + TAKEN_BACK)
    found = states(path)
    assert (found[A], found[C], found[E], found[D], found[F]) == ("pending", "skipped", "undone", "held", "pending")
    assert query(path, "SELECT step FROM steps WHERE undone ORDER BY step").rows == [(1,), (2,), (4,)]


def test_an_example_that_was_learned_again_is_trained(tmp_path: Path) -> None:
    path = write(tmp_path / "j.db", [*STORY, *TAKEN_BACK, *completed(6, 0, A)])
    assert states(path)[A] == "trained"
    assert query(path, "SELECT undone FROM steps WHERE step = 6").rows == [(0,)]


def test_rollbacks_with_their_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "j.db", STORY + TAKEN_BACK[:-2])
    columns = "step, from_step, state, steps, examples, how, seconds, reason"
    assert query(path, f"SELECT {columns} FROM rollbacks ORDER BY seq").rows == [
        (9, None, "refused", None, None, None, None, "there is no step 9 before step 4"),
        (0, 4, "started", 3, 2, None, None, None),
    ]
    path = write(tmp_path / "k.db", STORY + TAKEN_BACK)
    assert query(path, f"SELECT {columns} FROM rollbacks WHERE step = 0").rows == [(0, 4, "completed", 3, 2, "memory", 0.25, None)]


def test_the_way_back_is_read_from_the_end_of_the_journal(tmp_path: Path) -> None:
    life = ev.DaemonStarted(pid=1, version_name="", settings=ev.Settings(model_path="/m", rank=7), state_dir="/s")
    path = write(tmp_path / "j.db", [life, *STORY])
    found = plan_way_back(path, 1, 4, {4: "/c/4"})
    assert not found.error and found.undone == (4, 2) and found.examples == (E,) and found.origin == ""
    assert [again.step for again in found.replay] == [1] and found.fingerprint == f"{1:016x}"
    assert found.made_with == life.settings
    assert plan_way_back(path, 2, 4, {2: "/c/2"}).origin == "/c/2"
    assert "no step 9" in plan_way_back(path, 9, 4, {}).error
    assert "no step 7" in plan_way_back(path, 1, 7, {}).error, "the journal does not know it"
    assert tiers_of(path, [A, "0" * 32]) == [(A, "bulk")]
