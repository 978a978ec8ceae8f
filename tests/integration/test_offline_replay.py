"""`apollod replay` gives the bits that a live trainer gave, says where it does not, and leaves out what it is told to.

The history has what makes it hard: a failed step number, a restart with other settings in the middle and on a machine
with other products, a cast parameter.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from support.fingerprints import file_fingerprint
from support.fork_server import ForkedPopen
from support.journals import edit
from support.learned_journal import bound_event, committed, started, write_journal
from support.model_memory import Memory
from support.replayed import EXAMPLES, LR, STEPS, learned, replay
from support.trainer_host import Trainer

from apollod.adapters.base_model import keep
from apollod.adapters.ipc import offline_trainer
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.settings import TrainerSettings
from apollod.trainer.bind import live_fingerprint
from apollod.wire import messages as m

BEFORE = m.OptimizerSettings(rank=16, seed=7)
AFTER = m.OptimizerSettings(rank=16, seed=7, betas=(0.8, 0.99))
CHECKPOINT, LAST = 2, 5


@dataclass
class History:
    """What a live trainer did, and the events of it in order."""

    journal: Path
    checkpoint: Path
    model: Path
    whole: Path
    """a directory with the weights of step 1"""
    base: Path
    events: list[ev.Event] = field(default_factory=list)
    fingerprints: dict[int, str] = field(default_factory=dict)
    never_had_2: str = ""
    """fingerprint after the other steps, done without the example of step 2"""

    def altered(self, path: Path, **change: Any) -> Path:
        """A journal in which some fields of events are others: kind_step=(field, value)."""
        events = []
        for event in self.events:
            name = event.kind.replace(".", "_") + (f"_{event.step}" if isinstance(event, ev.StepCompleted) else "")
            events.append(msgspec.structs.replace(event, **change[name]) if name in change else event)
        return write_journal(path, events)


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers are forked; test_checkpoint_cli.py replays with one that is started."""
    monkeypatch.setattr(offline_trainer, "subprocess", ForkedPopen)


@pytest.fixture(scope="module")
def history(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Two steps, a checkpoint, a restart with other betas, a failed step, two more steps, a checkpoint."""
    here = tmp_path_factory.mktemp("history")
    shutil.copytree(tiny_model, model := here / "tiny")
    done = History(here / "journal.db", here / "checkpoints/step-00000002", model, here / "1", tiny_model)
    events = done.events
    events += [ev.ExampleAccepted(r.id, msgspec.Raw(r.canonical), "s", line) for line, r in EXAMPLES.items()]
    with Trainer(here) as trainer:
        events += [
            started(model, BEFORE),
            bound_event(trainer.attach(Memory.of(model), BEFORE, m.Bound, products="bf16")),
        ]
        parent = 0
        for number in STEPS:
            if number == 4:
                events.append(committed(trainer, CHECKPOINT, done.checkpoint, model))
                memory = Memory.of(model)
                again = trainer.attach(memory, AFTER, m.Bound, products="float32")
                events += [started(model, AFTER), bound_event(again)]
                trainer.restore(done.checkpoint, memory, weights=False)
                record = EXAMPLES[4]
                events += [ev.StepStarted(3, 2, record.id, "0" * 32, LR, 1), ev.StepFailed(3, record.id, "test", 2)]
            step, result = learned(trainer, number, parent)
            events += step
            done.fingerprints[number], parent = result.fingerprint, number
        events.append(committed(trainer, LAST, done.checkpoint.with_name("step-00000005"), model))
        memory = Memory.of(tiny_model)
        trainer.attach(memory, BEFORE, m.Bound, products="bf16")
        assert learned(trainer, 1, 0)[1].fingerprint == done.fingerprints[1]
        trainer.checkpoint(1, done.whole)
        memory = Memory.of(done.whole)
        trainer.attach(memory, AFTER, m.Bound, products="float32")
        trainer.restore(done.whole, memory, weights=False)
        done.never_had_2 = [learned(trainer, number, 1)[1].fingerprint for number in (4, 5)][-1]
    write_journal(done.journal, events)
    return done


def on_disk(directory: Path) -> str:
    return live_fingerprint.format(file_fingerprint(directory / "model.safetensors"))


def test_from_the_base_model_every_step_gives_the_recorded_bits(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = replay(capsys, history.journal, "--out", str(tmp_path / "out"))
    assert (code, result["verified"], result["steps"], result["to"]) == (0, True, 4, LAST)
    assert "over 2 deltas" in result["weights"] and str(history.model) in result["weights"], "backwards"
    assert result["fingerprint"] == history.fingerprints[LAST] == on_disk(tmp_path / "out")
    assert result["first_divergence"] is None
    from transformers import AutoModelForCausalLM

    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True) is not None


def test_from_a_checkpoint_and_up_to_a_step(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    """The model directory holds step 5 by now: what step 2 had comes from there, backwards, and goes away again."""
    state = history.journal.parent
    (state / "replay.tmp-999999999").mkdir()  # of one that was killed
    before = set(os.listdir(state)) - {"replay.tmp-999999999"}
    assert main(["replay", "--journal", str(history.journal), "--from", str(CHECKPOINT), "--to", "4"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"verified 1 steps, fingerprint {history.fingerprints[4]}\n"
    assert f"weights of step {CHECKPOINT}: {history.model}, over 1 deltas, for now in {state}" in printed.err
    assert set(os.listdir(state)) == before
    code, result = replay(capsys, history.journal, "--from", str(LAST))
    assert (code, result["fingerprint"], result["weights"]) == (0, history.fingerprints[LAST], str(history.model)), (
        "no copy is made"
    )


def test_a_checkpoint_that_cannot_be_had_back_is_named_and_an_exported_one_takes_its_place(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "state"
    shutil.copytree(history.checkpoint.parent, moved / "checkpoints")
    (moved / "checkpoints/step-00000005/apollod/undo.delta").unlink()
    events = [
        msgspec.structs.replace(e, path=str(moved / "checkpoints" / Path(e.path).name))
        if isinstance(e, ev.CheckpointCommitted)
        else e
        for e in history.events
    ]
    journal = write_journal(moved / "journal.db", events)
    assert main(["replay", "--journal", str(journal), "--from", str(CHECKPOINT)]) == 1
    printed = capsys.readouterr()
    assert "undo.delta" in printed.err and not printed.out and not list(moved.glob("replay*"))
    exported = ["checkpoint", "export", str(tmp_path / "out"), "--step", str(CHECKPOINT)]
    assert main([*exported, "--checkpoints", str(history.checkpoint.parent), "--model", str(history.model)]) == 0
    capsys.readouterr()
    code, result = replay(capsys, journal, "--from", str(CHECKPOINT), "--model", str(tmp_path / "out"))
    assert (code, result["verified"], result["steps"], result["weights"]) == (0, True, 2, str(tmp_path / "out"))


def test_the_first_divergence_is_named_with_what_differs(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "0123456789abcdef"
    bound = next(e for e in history.events if isinstance(e, ev.TrainerBound))
    journal = history.altered(
        tmp_path / "journal.db",
        step_completed_4={"fingerprint": wrong},
        trainer_bound={"versions": {**bound.versions, "torch": "1.0"}},
    )
    out = tmp_path / "out"
    code, result = replay(capsys, journal, "--from", str(CHECKPOINT), "--out", str(out))
    divergence = result["first_divergence"]
    assert (code, result["verified"], result["verified_until"], result["out"], out.exists()) == (
        1,
        False,
        CHECKPOINT,
        None,
        False,
    )
    assert (divergence["step"], divergence["expected"], divergence["found"]) == (4, wrong, history.fingerprints[4])
    assert divergence["differing"] == ["fingerprint"]
    assert divergence["environment"] == {"torch": {"recorded": "1.0", "here": bound.versions["torch"]}}


def test_everything_else_that_a_binding_ran_on_is_named_at_a_divergence(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second binding ran elsewhere, with more threads: those are taken for its steps, and nothing else of it can
    be had here. What only one of them knows is named, too."""
    first, second = (place for place, e in enumerate(history.events) if isinstance(e, ev.TrainerBound))
    here = history.events[first].versions
    then = {name: f"another {name}" for name in here} | {
        "device": "NVIDIA H100 80GB HBM3",
        "threads": "2",
        "triton": "3.4.0",
    }
    del then["numba"]
    events = [
        msgspec.structs.replace(e, versions=then) if place == second else e for place, e in enumerate(history.events)
    ]
    events = [
        msgspec.structs.replace(e, fingerprint="0" * 16) if isinstance(e, ev.StepCompleted) and e.step == 4 else e
        for e in events
    ]
    assert main(["replay", "--journal", str(write_journal(tmp_path / "journal.db", events))]) == 1
    head, *named = capsys.readouterr().out.splitlines()
    assert head.startswith("diverged at step 4: ") and head.endswith("(fingerprint differ); verified until step 2")
    assert (
        here.keys() == {"torch", "transformers", "tokenizers", "numba", "device", "kernels", "threads"}
        and here["threads"] == "1"
    )
    assert set(named) == {
        *(
            f"  {name}: {then[name]} then, {value} now"
            for name, value in here.items()
            if name not in ("numba", "threads")
        ),
        f"  numba: not recorded then, {here['numba']} now",
        "  triton: 3.4.0 then, absent now",
    }


def test_a_cast_parameter_is_held_as_the_engine_held_it(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Why `trainer.bound` records `held`: A_log, stored in bf16 and held so, gets a rounded gradient. Its moments
    differ at once, its bits sooner or later."""
    bound = next(e for e in history.events if isinstance(e, ev.TrainerBound))
    assert bound.held
    assert all(name.endswith("A_log") and dtype == "float32" for name, dtype in bound.held.items())
    same, other = tmp_path / "same", tmp_path / "other"
    assert replay(capsys, history.journal, "--to", str(CHECKPOINT), "--out", str(same))[0] == 0
    assert on_disk(same) == history.fingerprints[CHECKPOINT]
    name = "apollod/optimizer.safetensors"
    assert (same / name).read_bytes() == (history.checkpoint / name).read_bytes()
    as_stored = history.altered(tmp_path / "journal.db", trainer_bound={"held": {}})
    replay(capsys, as_stored, "--to", str(CHECKPOINT), "--out", str(other))
    state, altered = (load_file(where / "apollod/optimizer.safetensors") for where in (same, other))
    assert {name.rpartition(".")[0] for name in state if not torch.equal(state[name], altered[name])} == set(bound.held)


def test_the_way_back_to_the_untrained_weights_outlives_the_model_directory(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "base" / "tiny"
    keep(history.base, base, "copy", lambda: False)
    gone = {
        "daemon_started": {
            "settings": ev.Settings(model_path=str(tmp_path / "gone"), trainer=TrainerSettings(rank=16, seed=7))
        }
    }
    kept = history.altered(tmp_path / "kept.db", **gone)
    write_journal(kept, [ev.BaseKept(str(base), "link", 0, 0.0)])
    code, result = replay(capsys, kept, "--to", "1", "--out", str(tmp_path / "out"))
    assert (code, result["verified"], result["weights"]) == (0, True, str(base)) and on_disk(
        tmp_path / "out"
    ) == history.fingerprints[1]
    assert not list((tmp_path / "out").glob(".*")), "what belongs to the base is in the copy"
    write_journal(kept, [ev.BaseLost(str(base), "gone")])
    assert main(["replay", "--journal", str(kept), "--to", "1"]) == 1
    assert str(tmp_path / "gone") in capsys.readouterr().err


def test_without_an_example_the_weights_are_those_of_a_run_that_never_had_it(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = EXAMPLES[2].id
    code, result = replay(capsys, history.journal, "--without", without, "--out", str(tmp_path / "out"))
    assert (code, result["verified"], result["verified_until"], result["without"], result["steps"]) == (
        0,
        False,
        1,
        [without],
        3,
    )
    assert result["fingerprint"] == history.never_had_2 == on_disk(tmp_path / "out") != history.fingerprints[LAST]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--from", "4"], "no checkpoint of step 4; --from one of 0, 2, 5"),
        (["--to", "3"], "step 3 is not completed"),
        (["--from", "2", "--to", "1"], "does not descend"),
        (["--without", "nothing"], "learned nothing"),
        (["--without", "L7"], "no step of these learned lesson L7"),
        (["--out", "/"], "exists already"),
        (["--model", "WHOLE"], "the base model had"),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_words(
    history: History, args: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(history.whole) if arg == "WHOLE" else arg for arg in args]
    assert main(["replay", "--journal", str(history.journal), *given]) == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert not printed.out


def test_a_journal_that_was_edited_proves_nothing(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Path(shutil.copy(history.journal, tmp_path / "journal.db"))
    edit(journal, "UPDATE events SET at_ns = at_ns + 1 WHERE seq = 2")
    assert main(["replay", "--journal", str(journal), "--from", str(CHECKPOINT), "--to", "4"]) == 1
    printed = capsys.readouterr()
    assert "breaks at event 2" in printed.err and "proves nothing" in printed.err and not printed.out


@pytest.mark.parametrize(("field", "value"), [("applied", False), ("skipped_zero", 7), ("skipped_nonfinite", 7)])
def test_the_recorded_weights_made_in_another_way_are_a_divergence(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: Any
) -> None:
    journal = history.altered(tmp_path / "journal.db", step_completed_4={field: value})
    code, result = replay(capsys, journal, "--from", str(CHECKPOINT), "--to", "4")
    divergence = result["first_divergence"]
    assert (code, result["verified"], divergence["step"], divergence["differing"]) == (1, False, 4, [field])
    assert divergence["expected"] == divergence["found"] == history.fingerprints[4]


def test_steps_are_run_with_as_many_threads_as_were_recorded(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sum over another number of them has other bits."""
    bound = next(e for e in history.events if isinstance(e, ev.TrainerBound))
    threads = {"versions": {**bound.versions, "threads": "2"}}
    journal = history.altered(
        tmp_path / "journal.db", trainer_bound=threads, step_completed_4={"fingerprint": "0" * 16}
    )
    code, result = replay(capsys, journal, "--from", str(CHECKPOINT), "--to", "4")
    assert (code, result["first_divergence"]["environment"]) == (1, {}), "the environment here is the recorded one"


def test_what_made_room_is_not_started_from_and_what_was_gone_back_to_is_where_it_ends(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    back = ev.RollbackStarted(
        to=CHECKPOINT,
        from_step=LAST,
        fingerprint=history.fingerprints[CHECKPOINT],
        origin="",
        replay=(),
        undone=(5, 4),
        examples=(),
    )
    removed = write_journal(
        tmp_path / "removed.db", [*history.events, ev.CheckpointRemoved(CHECKPOINT, str(history.checkpoint))]
    )
    assert main(["replay", "--journal", str(removed), "--from", str(CHECKPOINT)]) == 1
    assert f"no checkpoint of step {CHECKPOINT}; --from one of 0, {LAST}" in capsys.readouterr().err
    code, result = replay(
        capsys, write_journal(tmp_path / "back.db", [*history.events, back]), "--from", str(CHECKPOINT)
    )
    assert (code, result["to"], result["steps"], result["fingerprint"]) == (
        0,
        CHECKPOINT,
        0,
        history.fingerprints[CHECKPOINT],
    )
    first = next(place for place, e in enumerate(history.events) if isinstance(e, ev.StepCompleted) and e.step == 4)
    went_on = write_journal(tmp_path / "went_on.db", [*history.events[:first], back, *history.events[first:]])
    code, result = replay(capsys, went_on, "--from", str(LAST))
    assert (code, result["to"]) == (0, LAST)


def test_what_another_replay_works_with_stays(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    other = history.journal.parent / f"replay.tmp-{os.getppid()}"
    other.mkdir()
    try:
        assert replay(capsys, history.journal, "--from", str(CHECKPOINT), "--to", "4")[0] == 0
        assert other.exists()
    finally:
        other.rmdir()
