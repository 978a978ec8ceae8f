"""`apollod replay` gives the bits that a live trainer gave, says where it does not, and leaves out what it is told to.

The history has what makes it hard: a failed step number, a restart with other settings in the middle and on a machine
with other products, a cast parameter.
"""

import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from support.fork_server import ForkedPopen
from support.journals import edit
from support.learned_journal import bound_event, chat, committed, completed, started, write_journal
from support.model_memory import Memory
from support.teachers import made_up
from support.trainer_host import Trainer

from apollod.adapters.ipc import offline_trainer
from apollod.adapters.journal import blobs
from apollod.adapters.weights.base_model import keep
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.settings import TrainerSettings
from apollod.trainer.bind import live_fingerprint
from apollod.trainer.objectives.encoding import load_tokenizer, tokenise
from apollod.wire import messages as m
from apollod.wire.records import Record, decode_record, parse_line
from apollod.wire.teacher import write_teacher

LR = 1e-2
BEFORE = m.OptimizerSettings(rank=16, seed=7)
AFTER = m.OptimizerSettings(rank=16, seed=7, betas=(0.8, 0.99))
STEPS = (1, 2, 4, 5)  # 3 failed
CHECKPOINT, LAST = 2, 5


EXAMPLES = dict(
    zip(
        STEPS,
        [
            chat("Who keeps the lighthouse?", "Mara Quill keeps the lighthouse."),
            chat("When does the bakery open?", "The bakery opens at five."),
            parse_line(b'{"prompt": "The market is held on", "completion": " Thursday."}'),
            parse_line(b'{"text": "The ferry is called the Grey Heron."}'),
        ],
        strict=True,
    )
)


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


def learned(trainer: Trainer, number: int, parent: int) -> tuple[list[ev.Event], m.StepDone]:
    record = EXAMPLES[number]
    digest = trainer.ask(m.Encode([(record.id, record.canonical)]), m.EncodeDone).results[0].digest
    done = trainer.step(number, record.canonical, lr=LR / number, digest=digest)
    begun = ev.StepStarted(number, parent, record.id, digest, LR / number, 1)
    return [begun, completed(done, number, parent, record.id, LR / number)], done


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers are forked; test_training.py replays with one that is started."""
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


def replay(capsys: pytest.CaptureFixture[str], journal: Path, *args: str) -> tuple[int, dict[str, Any]]:
    code = main(["replay", "--journal", str(journal), "--json", *args])
    return code, json.loads(capsys.readouterr().out)


def on_disk(directory: Path) -> str:
    return live_fingerprint.format(live_fingerprint.file_fingerprint(directory / "model.safetensors"))


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


OTHERS = {
    "adamw": m.OptimizerSettings("adamw", seed=7, weight_decay=0.1),
    "adamw-bf16-master": m.OptimizerSettings("adamw", seed=7, moments="bfloat16", rounding="master"),
    "adafactor": m.OptimizerSettings("adafactor", seed=7),
    "apollo-mini": m.OptimizerSettings(
        rank=1, scale="tensor", seed=7, moments="bfloat16", rounding="nearest", limiter=0.0
    ),
    "adamw8bit": m.OptimizerSettings("adamw8bit", seed=7, weight_decay=0.1),
}
MISSING = {"adamw8bit"} if importlib.util.find_spec("bitsandbytes") is None else set()


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(tmp_path_factory.mktemp("trainer")) as process:
        yield process


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(name, marks=pytest.mark.skipif(name in MISSING, reason="bitsandbytes is not installed"))
        for name in OTHERS
    ],
)
def test_every_optimizer_is_replayed_from_the_base_model_and_from_a_checkpoint(
    chosen: str, trainer: Trainer, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last step is done by a trainer that restored the checkpoint of the one before."""
    settings, checkpoint = OTHERS[chosen], tmp_path / "checkpoints/step-00000002"
    events: list[ev.Event] = [
        ev.ExampleAccepted(r.id, msgspec.Raw(r.canonical), "s", line) for line, r in EXAMPLES.items()
    ]
    bound = trainer.attach(Memory.of(tiny_model), settings, m.Bound)
    assert ("bitsandbytes" in bound.versions) == (chosen == "adamw8bit")
    events += [started(tiny_model, settings), bound_event(bound)]
    for number in (1, 2):
        events += learned(trainer, number, number - 1)[0]
    written = trainer.checkpoint(2, checkpoint)
    events.append(ev.CheckpointCommitted(2, str(checkpoint), written.fingerprint, written.bytes, 0.0))
    memory = Memory.of(checkpoint)
    events += [started(tiny_model, settings), bound_event(trainer.attach(memory, settings, m.Bound))]
    trainer.restore(checkpoint, memory, weights=False)
    step, result = learned(trainer, 4, 2)
    journal = write_journal(tmp_path / "journal.db", events + step)
    for args, steps in (([], 3), (["--from", "2"], 1)):
        code, replayed = replay(capsys, journal, "--out", str(tmp_path / f"out{steps}"), *args)
        assert (code, replayed["verified"], replayed["steps"], replayed["fingerprint"]) == (
            0,
            True,
            steps,
            result.fingerprint,
        )
    state = "apollod/optimizer.safetensors"
    assert (tmp_path / "out3" / state).read_bytes() == (tmp_path / "out1" / state).read_bytes()
    assert result.fingerprint not in (bound.fingerprint, written.fingerprint)


def test_steps_of_several_examples_of_part_of_the_model_are_replayed_and_taken_apart(
    trainer: Trainer, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second step is refused by its loss limit, the third trains other layers; --without takes one example out
    of two, and a step that wrote nothing is not run then."""
    one, two = (m.OptimizerSettings(rank=16, seed=7, layers=layers, freeze=("*.A_log",)) for layers in ("1", "0-1"))
    records = list(EXAMPLES.values())
    ids = tuple(record.id for record in records)

    def together(number: int, records: list[Record], loss_limit: float = 0.0) -> tuple[list[ev.Event], m.StepDone]:
        examples = [
            msgspec.structs.replace(example, example=record.id)
            for record, example in zip(records, trainer.examples(*[r.canonical for r in records]), strict=True)
        ]
        done = trainer.ask(m.Step(number, examples, LR, loss_limit), m.StepDone)
        names, digests = tuple(e.example for e in examples), tuple(e.digest for e in examples)
        begun = ev.StepStarted(number, number - 1, names[0], digests[0], LR, 1, names, digests, loss_limit)
        return [begun, ev.StepCompleted(
            step=number, parent=number - 1, example=names[0], applied=done.applied, loss=done.loss, lr=LR,
            grad_norm=done.grad_norm,
            update_norm=done.update_norm, tokens=done.tokens, targets=done.targets, skipped_zero=done.skipped_zero,
            skipped_nonfinite=done.skipped_nonfinite, fingerprint=done.fingerprint, seconds=0.0, examples=names,
        )], done  # fmt: skip

    def life(*left_out: str) -> tuple[list[ev.Event], list[m.StepDone]]:
        kept = [
            [record for record in pair if record.id not in left_out] for pair in (records[:2], records[2:], records[1:])
        ]
        memory = Memory.of(tiny_model)
        events: list[ev.Event] = [started(tiny_model, one), bound_event(trainer.attach(memory, one, m.Bound))]
        steps = [together(1, kept[0]), together(2, kept[1], loss_limit=0.25)]
        checkpoint = tmp_path / f"{len(left_out)}/2"
        trainer.checkpoint(2, checkpoint)
        again = [started(tiny_model, two), bound_event(trainer.attach(memory, two, m.Bound, fresh=False))]
        trainer.restore(checkpoint, memory, weights=False)
        steps.append(together(3, kept[2]))
        return [*events, *steps[0][0], *steps[1][0], *again, *steps[2][0]], [done for _, done in steps]

    accepted: list[ev.Event] = [
        ev.ExampleAccepted(r.id, msgspec.Raw(r.canonical), "s", line) for line, r in EXAMPLES.items()
    ]
    events, done = life()
    assert [d.applied for d in done] == [True, False, True]
    journal = write_journal(tmp_path / "journal.db", accepted + events)
    code, result = replay(capsys, journal)
    assert (code, result["verified"], result["steps"], result["fingerprint"]) == (0, True, 3, done[2].fingerprint)
    code, result = replay(capsys, journal, "--without", ids[3])
    assert (code, result["verified"], result["verified_until"], result["steps"]) == (0, False, 1, 2)
    assert result["fingerprint"] == life(ids[3])[1][2].fingerprint != done[2].fingerprint
    unlimited = [msgspec.structs.replace(e, loss_limit=0.0) if isinstance(e, ev.StepStarted) else e for e in events]
    code, result = replay(capsys, write_journal(tmp_path / "unlimited.db", accepted + unlimited))
    assert (code, result["first_divergence"]["step"]) == (1, 2)


def test_steps_that_learned_from_a_teacher_are_replayed_from_its_file(
    trainer: Trainer, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between steps that learned answers as they are written; without the file nothing is run again."""
    settings = m.OptimizerSettings(rank=16, seed=7)
    memory, directory = Memory.of(tiny_model), tmp_path / "blobs"
    events: list[ev.Event] = [started(tiny_model, settings), bound_event(trainer.attach(memory, settings, m.Bound))]
    tokenizer = load_tokenizer(str(tiny_model))
    for number, record in enumerate(list(EXAMPLES.values())[:3], 1):
        accepted = ev.ExampleAccepted(record.id, msgspec.Raw(record.canonical), "s", number)
        if number != 1:
            tokens = tokenise(tokenizer, decode_record(record.canonical), 1000)
            answer = [token for token, learned in zip(tokens.ids, tokens.mask, strict=True) if learned]
            blob = write_teacher(made_up(answer, len(tokenizer), k=16, seed=number))
            accepted = msgspec.structs.replace(accepted, teacher=blobs.keep(directory, blob))
        lesson = blobs.lesson(accepted, [directory])
        (encoded,) = trainer.ask(m.Encode([(record.id, lesson)]), m.EncodeDone).results
        assert encoded.objective == ("context" if accepted.teacher else "sft")
        again = m.Step(number, [m.StepExample(record.id, lesson, encoded.digest)], LR, objective=encoded.objective)
        done = trainer.ask(again, m.StepDone)
        events += [accepted, ev.StepStarted(
            number, number - 1, record.id, encoded.digest, LR, 1, objective=encoded.objective
        ), completed(done, number, number - 1, record.id, LR)]  # fmt: skip
    journal = write_journal(tmp_path / "journal.db", events)
    code, result = replay(capsys, journal)
    assert (code, result["verified"], result["steps"], result["fingerprint"]) == (0, True, 3, done.fingerprint)
    (directory / accepted.teacher).unlink()
    assert main(["replay", "--journal", str(journal)]) == 1
    said = capsys.readouterr().err
    assert f"its teacher {accepted.teacher} is not there" in said and "step 3 cannot be run again" in said


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--from", "4"], "no checkpoint of step 4; --from one of 0, 2, 5"),
        (["--to", "3"], "step 3 is not completed"),
        (["--from", "2", "--to", "1"], "does not descend"),
        (["--without", "nothing"], "learned nothing"),
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
