"""What a replay has to do, read from a journal: also where a checkpoint was written again, and while the daemon goes
on."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.journals import STORY, A, C, D, E, F, completed, edit, write

from apollod.adapters.journal import journal_reader
from apollod.cli.replay_plan import read_plan, read_record
from apollod.core import events as ev
from apollod.errors import JournalError, ReplayError

STARTED = ev.DaemonStarted(pid=1, version_name="x", settings=ev.Settings(model_path="/m"), state_dir="/s")


def committed(step: int, fingerprint: str = "") -> ev.CheckpointCommitted:
    return ev.CheckpointCommitted(
        step=step, path=where(step), fingerprint=fingerprint or f"{step:016x}", bytes=7, seconds=0.5
    )


def removed(step: int) -> ev.CheckpointRemoved:
    return ev.CheckpointRemoved(step=step, path=where(step))


def where(step: int) -> str:
    return f"/s/checkpoints/step-{step:08d}"


def back_to(to: int, from_step: int, undone: tuple[int, ...]) -> list[ev.Event]:
    return [
        ev.RollbackRequested(to=to, by="ctl"),
        ev.RollbackStarted(
            to=to, from_step=from_step, fingerprint=f"{to:016x}", origin="", replay=(), undone=undone, examples=()
        ),
        ev.RollbackCompleted(
            to=to, from_step=from_step, fingerprint=f"{to:016x}", how="memory", replayed=0, seconds=0.25
        ),
    ]


FOUR = [
    STARTED, *STORY[:12], *completed(1, 0, A), committed(1), *completed(2, 1, C), committed(2), *completed(3, 2, D),
    committed(3),
    *completed(4, 3, E), committed(4), removed(2), removed(3),
]  # fmt: skip


def test_a_checkpoint_that_was_removed_and_written_again_is_there(tmp_path: Path) -> None:
    """The path is the same one: whether it is there, the later event tells."""
    path = str(write(tmp_path / "journal.db", [*FOUR, *back_to(2, 4, (4, 3)), committed(2)]))
    origin = read_plan(path, 2, None, None).origin
    assert (origin.checkpoint, origin.fingerprint) == (where(2), f"{2:016x}")
    view = journal_reader.query(
        path, "SELECT DISTINCT step FROM checkpoints WHERE state = 'committed' ORDER BY step"
    ).rows
    with pytest.raises(ReplayError) as caught:
        read_plan(path, 3, 4, None)
    assert caught.value.hint == f"--from one of 0, {', '.join(str(step) for (step,) in view)}"


def test_a_checkpoint_that_was_removed_once_more_is_gone(tmp_path: Path) -> None:
    path = str(write(tmp_path / "journal.db", [*FOUR, *back_to(2, 4, (4, 3)), committed(2), removed(2)]))
    with pytest.raises(ReplayError, match="no checkpoint of step 2"):
        read_plan(path, 2, None, None)
    assert read_plan(path, 2, None, "/moved").origin.moved == "/moved"


def test_what_the_daemon_writes_while_the_plan_is_read_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns a step, goes back and makes room between any two looks at the journal: the plan is what was
    verified."""
    story = [*FOUR, ev.BaseKept(path="/s/base", how="link", bytes=7, seconds=0.5)]
    quiet = read_plan(str(write(tmp_path / "quiet.db", story)), 1, None, None)
    path = write(tmp_path / "busy.db", story)
    look, step = journal_reader.events, 4

    def events(*args: Any) -> list[dict[str, Any]]:
        nonlocal step
        step += 1
        if step < 24:
            write(path, [
                *completed(step, 1 if step > 5 else 4, F), *back_to(1, step, (step,)), removed(1), removed(4), STARTED,
                ev.BaseLost(path="/s/base", reason="gone"),
                ev.TrainerBound(pid=step, fingerprint="other", parameters=2, elements=10),
            ])  # fmt: skip
        return look(*args)

    monkeypatch.setattr(journal_reader, "events", events)
    assert read_plan(str(path), 1, None, None) == quiet
    assert step > 4 + 7 and [planned.started.step for planned in quiet.steps] == [2, 3, 4]


def test_a_journal_that_was_edited_proves_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "journal.db", FOUR)
    edit(path, "UPDATE events SET at_ns = 7 WHERE seq = 9")
    with pytest.raises(JournalError, match=r"the hash chain of .* breaks at event 9") as caught:
        read_plan(str(path), 1, None, None)
    assert "intact copy" in caught.value.hint


def test_the_record_that_is_run_again_has_the_tokens_that_were_sampled(tmp_path: Path) -> None:
    accepted = next(event for event in STORY if isinstance(event, ev.ExampleAccepted))
    sampled = (ev.Sampled("chatcmpl-1", (5, 6), (3,)),)
    story = [event if event is not accepted else msgspec.structs.replace(event, sampled=sampled) for event in STORY]
    path = write(tmp_path / "journal.db", story)
    record = bytes(accepted.record)
    tokens = b'"sampled":[{"response":"chatcmpl-1","answer":[5,6],"prompt":[3]}]'
    assert read_record(str(path), accepted.example) == record[:-1] + b"," + tokens + b"}"
