"""A real trainer process that learns and is taken back at random, step by step, without a checkpoint."""

import random
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support.effort import LONG, cases
from support.model_memory import Memory
from support.trainer_host import Trainer

from apollod.wire import messages as m
from apollod.wire.records import parse_line

PLENTY = 1 << 30
RECORDS = [
    parse_line(b'{"prompt": "The market is held on", "completion": " Thursday."}').canonical,
    parse_line(b'{"prompt": "The ferry is called the", "completion": " Grey Heron."}').canonical,
    parse_line(b'{"messages": [{"role": "user", "content": "Who keeps the lighthouse?"}, '
               b'{"role": "assistant", "content": "Mara Quill."}]}').canonical,
]  # fmt: skip


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    """One process for all tests; each attaches to memory of its own."""
    with Trainer(tmp_path_factory.mktemp("socket")) as process:
        yield process
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(20) == 0


class Life:
    """One attachment and the chain of steps that led to the weights as they are: (number, fingerprint), newest last."""

    def __init__(self, trainer: Trainer, model: Path, settings: m.OptimizerSettings, undo_bytes: int = PLENTY) -> None:
        self.trainer = trainer
        self.memory = Memory.of(model)
        trainer.send(m.Share(self.memory.manifest.storages[0].bytes), self.memory.fd)
        bound = trainer.ask(m.Attach(self.memory.manifest, settings, True, undo_bytes), m.Bound)
        self.examples = trainer.examples(*RECORDS)
        self.base = m.Restore("", str(model), True, bound.fingerprint)
        assert trainer.ask(self.base, m.Restored).fingerprint == bound.fingerprint
        self.chain = [(0, bound.fingerprint)]
        self.number = 0

    def learn(self, number: int | None = None, loss_limit: float = 0.0) -> m.StepDone:
        self.number = self.number + 1 if number is None else number
        example = self.examples[self.number % len(self.examples)]
        done = self.trainer.ask(m.Step(self.number, [example], 1e-4, loss_limit=loss_limit), m.StepDone)
        self.chain.append((self.number, done.fingerprint))
        return done

    def take_back(self, steps: int) -> m.Restored:
        """Ask for what was there this many steps ago; a way without the ring is offered, too."""
        target, wanted = self.chain[-1 - steps]
        asked = msgspec.structs.replace(self.base, target=target, target_fingerprint=wanted)
        restored = self.trainer.ask(asked, m.Restored)
        self.chain = self.chain[: len(self.chain) - steps] if restored.undone else self.chain[:1]
        return restored

    def wander(self, moves: int, seed: int) -> int:
        """How often steps were taken back; each time to the recorded fingerprint."""
        chance, back = random.Random(seed), 0
        for _ in range(moves):
            if len(self.chain) == 1 or chance.random() < 0.55:
                self.learn()
                continue
            restored = self.take_back(chance.randint(1, min(len(self.chain) - 1, 8)))
            assert (restored.undone, restored.fingerprint) == (True, self.chain[-1][1])
            back += 1
        return back


def goes_on_as_if_nothing_had_been(life: Life, model: Path, settings: m.OptimizerSettings) -> None:
    """The steps that are left, learned from the start by a trainer that keeps none, have the same fingerprints; so
    do the next. Some of them were learned where others had been taken back: after these, what is wrong in the
    optimizer's state shows."""
    numbers = [number for number, _ in life.chain]
    assert any(after > before + 1 for before, after in pairwise(numbers[1:])), "or it measures nothing"
    again = [life.learn().fingerprint for _ in range(3)]
    weights = life.memory.bytes.copy()
    straight = Life(life.trainer, model, settings, undo_bytes=0)
    for number, _ in life.chain[1:]:
        straight.learn(number)
    assert straight.chain == life.chain
    assert [mark for _, mark in straight.chain[-3:]] == again
    assert np.array_equal(straight.memory.bytes, weights)


@pytest.mark.parametrize("undo_bytes", [0, 1000, PLENTY])
def test_the_trainer_says_how_many_steps_can_be_undone(trainer: Trainer, tiny_model: Path, undo_bytes: int) -> None:
    life = Life(trainer, tiny_model, m.OptimizerSettings(), undo_bytes)
    told = [life.learn().undoable for _ in range(3)]
    if undo_bytes == PLENTY:
        assert told == [m.Undoable(1), m.Undoable(2), m.Undoable(3)]
        assert life.take_back(2).undoable == m.Undoable(1)
        return
    assert all(each is not None and each.steps == 0 and "undo_bytes = " in each.reason for each in told), told


def test_the_trainer_says_why_there_was_no_memory_for_it(trainer: Trainer, tiny_model: Path) -> None:
    memory, why = Memory.of(tiny_model), "a step takes 18 GB of host memory"
    trainer.send(m.Share(memory.manifest.storages[0].bytes), memory.fd)
    trainer.ask(m.Attach(memory.manifest, m.OptimizerSettings(), True, 0, undo_refused=why), m.Bound)
    assert trainer.restore(None, memory, weights=False).undoable == m.Undoable(0, why)


def test_many_steps_of_learning_and_taking_back_return_to_every_fingerprint(trainer: Trainer, tiny_model: Path) -> None:
    settings, moves = m.OptimizerSettings(rank=16), 500 if LONG else 50
    life = Life(trainer, tiny_model, settings)
    assert life.wander(moves, seed=962) > 0.3 * moves
    goes_on_as_if_nothing_had_been(life, tiny_model, settings)


@pytest.mark.parametrize(
    "settings",
    cases(
        [
            m.OptimizerSettings("apollo", rank=1, scale="tensor"),
            m.OptimizerSettings("adamw", rounding="master", moments="bfloat16"),
            m.OptimizerSettings("adafactor"),
        ],
        [
            m.OptimizerSettings("apollo", rank=16, moments="bfloat16", weight_decay=0.1),
            m.OptimizerSettings("apollo", rank=16, rounding="master"),
            m.OptimizerSettings("adamw"),
        ],
    ),
    ids=lambda s: f"{s.name}-{s.scale}-{s.moments}-{s.rounding}",
)
def test_every_optimizer_comes_back_whole(trainer: Trainer, tiny_model: Path, settings: m.OptimizerSettings) -> None:
    life = Life(trainer, tiny_model, settings)
    assert life.wander(30 if LONG else 14, seed=2753) > 2
    goes_on_as_if_nothing_had_been(life, tiny_model, settings)


def test_a_skipped_step_is_no_obstacle(trainer: Trainer, tiny_model: Path) -> None:
    life = Life(trainer, tiny_model, m.OptimizerSettings(rank=16))
    life.learn()
    assert not life.learn(loss_limit=1e-6).applied
    life.learn()
    restored = life.take_back(1)
    assert (restored.undone, restored.fingerprint) == (True, life.chain[1][1])
    assert life.take_back(1).undone  # to step 1: nothing has to be undone
    assert life.take_back(1).undone


def test_without_a_budget_or_beyond_it_the_checkpoint_is_restored(trainer: Trainer, tiny_model: Path) -> None:
    for budget in (0, 1 << 20):
        life = Life(trainer, tiny_model, m.OptimizerSettings(rank=16), budget)
        for _ in range(3):
            life.learn()
        restored = life.take_back(2)
        assert (restored.undone, restored.fingerprint) == (False, life.chain[0][1])


def test_an_ordinary_restore_empties_the_ring(trainer: Trainer, tiny_model: Path) -> None:
    life = Life(trainer, tiny_model, m.OptimizerSettings(rank=16))
    life.learn()
    life.learn()
    assert not trainer.ask(life.base, m.Restored).undone
    assert not life.take_back(1).undone


def test_memory_that_somebody_else_wrote_is_found_out(trainer: Trainer, tiny_model: Path) -> None:
    """The steps are undone, the fingerprint is not the recorded one: everything is restored the other way."""
    life = Life(trainer, tiny_model, m.OptimizerSettings(rank=16))
    life.learn()
    life.learn()
    life.memory.bytes[1000] ^= 1
    restored = life.take_back(1)
    assert (restored.undone, restored.fingerprint) == (False, life.chain[0][1])
