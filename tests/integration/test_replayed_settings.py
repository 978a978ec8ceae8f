"""`apollod replay` gives the same bits whatever steps were made with: every optimizer, several examples a step, part of
the layers, a teacher."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.effort import cases
from support.fork_server import ForkedPopen
from support.learned_journal import bound_event, completed, started, write_journal
from support.model_memory import Memory
from support.replayed import EXAMPLES, LR, learned, replay
from support.teachers import made_up
from support.trainer_host import Trainer

from apollod.adapters.ipc import offline_trainer
from apollod.adapters.journal import blobs
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.errors import JournalError
from apollod.trainer.objectives.encoding import load_tokenizer, tokenise
from apollod.wire import messages as m
from apollod.wire.records import Record, decode_record
from apollod.wire.teacher import write_teacher


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers are forked; test_checkpoint_cli.py replays with one that is started."""
    monkeypatch.setattr(offline_trainer, "subprocess", ForkedPopen)


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
        for name in cases(["adamw-bf16-master", "adafactor", "adamw8bit"], ["adamw", "apollo-mini"])
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
        done = trainer.ask(m.Step(number, examples, LR, loss_limit=loss_limit), m.StepDone)
        names, digests = tuple(e.example for e in examples), tuple(e.digest for e in examples)
        begun = ev.StepStarted(number, number - 1, names[0], digests[0], LR, 1, names, digests, loss_limit=loss_limit)
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


def test_steps_are_replayed_with_what_they_held_retired_or_not(
    trainer: Trainer, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also without an example: the step after it holds the same. Without the anchor's file nothing is run again."""
    settings = m.OptimizerSettings(rank=16, seed=7)
    memory, directory = Memory.of(tiny_model), tmp_path / "blobs"
    events: list[ev.Event] = [started(tiny_model, settings), bound_event(trainer.attach(memory, settings, m.Bound))]
    tokenizer = load_tokenizer(str(tiny_model))
    first, second, said = list(EXAMPLES.values())[:3]
    tokens = tokenise(tokenizer, decode_record(said.canonical), 1000)
    answer = [token for token, learned in zip(tokens.ids, tokens.mask, strict=True) if learned]
    teacher = blobs.keep(directory, write_teacher(made_up(answer, len(tokenizer), k=16, seed=3)))
    frozen = ev.AnchorFrozen("a1", msgspec.Raw(said.canonical), teacher, "general", "shipped:1")
    journal = write_journal(tmp_path / "journal.db", [*events, frozen])
    (asked,) = blobs.anchors_of(journal, ["a1"])
    (encoded,) = trainer.ask(m.Encode([("a1", asked.record)]), m.EncodeDone).results
    events += [frozen, ev.AnchorEncoded("a1", encoded.tokens, encoded.targets, encoded.digest)]
    anchor = m.StepExample("a1", asked.record, encoded.digest)
    for number, record in enumerate((first, second), 1):
        (found,) = trainer.ask(m.Encode([(record.id, record.canonical)]), m.EncodeDone).results
        step = m.Step(
            number, [m.StepExample(record.id, record.canonical, found.digest)], LR, anchors=[anchor], hold=0.5
        )
        done = trainer.ask(step, m.StepDone)
        assert len(done.held) == 1
        begun = ev.StepStarted(number, number - 1, record.id, found.digest, LR, 1, held=("a1",), hold=0.5)
        result = msgspec.structs.replace(completed(done, number, number - 1, record.id, LR), held=done.held)
        events += [ev.ExampleAccepted(record.id, msgspec.Raw(record.canonical), "s", number), begun, result]
    events.append(ev.AnchorsRetired(("a1",), "a test"))
    journal = write_journal(tmp_path / "whole.db", events)
    assert [one.digest for one in blobs.anchors_of(journal, ["a1"])] == [encoded.digest]
    code, told = replay(capsys, journal)
    assert (code, told["verified"], told["steps"], told["fingerprint"]) == (0, True, 2, done.fingerprint)
    unheld = [msgspec.structs.replace(e, held=()) if isinstance(e, ev.StepStarted) else e for e in events]
    code, told = replay(capsys, write_journal(tmp_path / "unheld.db", unheld))
    assert (code, told["first_divergence"]["step"]) == (1, 1)
    (directory / teacher).unlink()
    assert main(["replay", "--journal", str(journal)]) == 1
    assert f"its teacher {teacher} is not there" in capsys.readouterr().err
    with pytest.raises(JournalError, match="holds no anchor a2"):
        blobs.anchors_of(journal, ["a1", "a2"])
