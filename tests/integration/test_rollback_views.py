"""The views tell what was taken back, what waits again, and how it went."""

from pathlib import Path

import msgspec
from support.journals import STORY, TAKEN_BACK, A, B, C, D, E, F, accepted, completed, write

from apollod.adapters.journal.examples import plan_way_back, tiers_of
from apollod.adapters.journal.journal_reader import query
from apollod.core import events as ev
from apollod.core.settings import TrainerSettings

ISO = "2023-11-14T22:13:20.123Z"


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
    assert query(path, f"SELECT {columns} FROM rollbacks WHERE step = 0").rows == [
        (0, 4, "completed", 3, 2, "memory", 0.25, None)
    ]


def test_the_way_back_is_read_from_the_end_of_the_journal(tmp_path: Path) -> None:
    life = ev.DaemonStarted(
        pid=1, version_name="", settings=ev.Settings(model_path="/m", trainer=TrainerSettings(rank=7)), state_dir="/s"
    )
    path = write(tmp_path / "j.db", [life, *STORY])
    found = plan_way_back(path, 1, 4, {4: "/c/4"})
    assert not found.error and found.undone == (4, 2) and found.examples == (E,) and found.origin == ""
    assert [again.step for again in found.replay] == [1] and found.fingerprint == f"{1:016x}"
    assert found.made_with == life.settings
    assert plan_way_back(path, 2, 4, {2: "/c/2"}).origin == "/c/2"
    assert "no step 9" in plan_way_back(path, 9, 4, {}).error
    assert "no step 7" in plan_way_back(path, 1, 7, {}).error, "the journal does not know it"
    assert tiers_of(path, [A, "0" * 32]) == [(A, "bulk")]


def test_every_column_of_checkpoints_and_rollbacks_says_what_its_name_says(tmp_path: Path) -> None:
    committed = ev.CheckpointCommitted(
        step=4,
        path="/c/4",
        fingerprint="f4",
        bytes=9,
        seconds=0.5,
        held_s=0.25,
        written_bytes=2,
        delta_bytes=3,
        full=True,
    )
    back = [
        ev.RollbackRequested(to=1, by="somebody"),
        ev.RollbackStarted(
            to=1, from_step=4, fingerprint="f1", origin="/c/0", replay=(), undone=(4, 3, 2), examples=(E, D)
        ),
        ev.RollbackCompleted(to=1, from_step=4, fingerprint="f1", how="checkpoint", replayed=7, seconds=1.5),
    ]
    path = write(tmp_path / "j.db", [committed, *back])

    def only(sql: str) -> dict[str, object]:
        answer = query(path, sql)
        return dict(zip(answer.columns, answer.rows[0], strict=True))

    assert only("SELECT * FROM checkpoints") == {
        "step": 4, "path": "/c/4", "state": "committed", "fingerprint": "f4", "bytes": 9, "delta_bytes": 3,
        "written_bytes": 2,
        "seconds": 0.5, "held_s": 0.25, "full": 1, "reason": None, "at": ISO, "seq": 1,
    }  # fmt: skip
    assert only("SELECT * FROM rollbacks") == {
        "step": 1, "from_step": 4, "state": "completed", "steps": 3, "examples": 2, "how": "checkpoint", "replayed": 7,
        "seconds": 1.5,
        "reason": None, "by": "somebody", "at": ISO, "seq": 2,
    }  # fmt: skip


def test_a_checkpoint_that_takes_the_path_of_a_removed_one_is_there(tmp_path: Path) -> None:
    first, again = (
        ev.CheckpointCommitted(step=1, path="/c/1", fingerprint=name, bytes=7, seconds=0.5)
        for name in ("first", "again")
    )
    path = write(tmp_path / "j.db", [first, ev.CheckpointRemoved(step=1, path="/c/1"), again])
    assert query(path, "SELECT fingerprint, state FROM checkpoints ORDER BY seq").rows == [
        ("first", "removed"),
        ("again", "committed"),
    ]


def test_an_example_has_its_tier_and_the_counts_of_its_newest_tokens(tmp_path: Path) -> None:
    """It was learned, taken back, asked for again, and tokenised with another limit."""
    direct = msgspec.structs.replace(accepted(A, 1), tier="direct")
    encoded = [
        ev.ExampleEncoded(example=A, tokens=tokens, targets=targets, cut=0, digest="d")
        for tokens, targets in ((9, 4), (6, 2))
    ]
    path = write(tmp_path / "j.db", [direct, accepted(B, 2), encoded[0], *completed(1, 0, A), encoded[1]])
    assert query(path, "SELECT id, tier, tokens, targets FROM examples ORDER BY seq").rows == [
        (A, "direct", 6, 2),
        (B, "bulk", None, None),
    ]
