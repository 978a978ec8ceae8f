"""A ranking by a real trainer process, of a window in which one example taught a wrong answer."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
from support.learned_window import FIRST, ITEMS, LAST, POISON, POISON_LR, SETTINGS, LearnedWindow, learned_window
from support.model_memory import Memory
from support.trainer_host import Trainer

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.rules.quality.incidents import first
from apollod.supervisor.config import load_config
from apollod.supervisor.executor import Executor
from apollod.wire import messages as m

NONE = cast(Any, None)
WEIGHTS = {"facts.passed": 20.0, "texts.loss": 20.0}


@pytest.fixture(scope="module")
def learned(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearnedWindow]:
    here = tmp_path_factory.mktemp("learned")
    shutil.copytree(tiny_model, model := here / "tiny")
    with Trainer(here) as trainer:
        yield learned_window(trainer, model, here)


class Records:
    """Those of the journal."""

    def __init__(self, learned: LearnedWindow) -> None:
        accepted = [one for one in learned.events if isinstance(one, ev.ExampleAccepted)]
        self._records = {one.example: bytes(one.record) for one in accepted}

    async def records_of(self, ids: list[str]) -> dict[str, bytes]:
        return {one: self._records[one] for one in ids}


class Told:
    """What the trainer is told."""

    def __init__(self) -> None:
        self.messages = list[msgspec.Struct]()

    def tell_trainer(self, message: msgspec.Struct, fd: int | None = None) -> None:
        self.messages.append(message)


def effect(learned: LearnedWindow, **changes: Any) -> fx.RankExamples:
    steps = [one for one in learned.events if isinstance(one, ev.StepStarted) and one.step > FIRST]
    suspects = tuple(fx.RankedStep(one.example, one.digest, "sft", POISON_LR) for one in steps)
    asked = fx.RankExamples(1, 2, suspects, ITEMS, WEIGHTS, learned.references)
    return msgspec.structs.replace(asked, **changes)


def run(learned: LearnedWindow, asked: fx.RankExamples) -> tuple[list[msgspec.Struct], list[inp.Input]]:
    """What the trainer is told, and what is known at once."""
    told = Told()

    async def life() -> list[inp.Input]:
        config = load_config(None, [f"model.path={learned.state_dir / 'tiny'}", f"state.dir={learned.state_dir}"], {})
        async with anyio.create_task_group() as tasks:
            executor = Executor(config, cast(Any, Records(learned)), cast(Any, told), NONE, NONE, tasks)
            return list(await executor.run(asked))

    return told.messages, anyio.run(life)


def answer(trainer: Trainer, asked: msgspec.Struct) -> tuple[m.ExamplesRanked, int]:
    """The answer, and how often it said before that it is at work."""
    trainer.send(asked)
    said = 0
    while isinstance(message := trainer.receive_any(), m.AtWork):
        said += 1
    assert isinstance(message, m.ExamplesRanked)
    return message, said


def test_who_taught_the_wrong_answer_stands_first_and_nothing_is_written(
    learned: LearnedWindow, tmp_path: Path
) -> None:
    (asked,), at_once = run(learned, effect(learned))
    assert isinstance(asked, m.Rank) and not at_once and len(asked.suspects) == LAST - FIRST
    assert sorted((one.rate, one.weight) for one in asked.items) == [(False, 20.0), (True, 20.0)]
    asked = msgspec.structs.replace(asked, items=[one for one in asked.items if one.rate])
    memory = Memory.of(learned.state_dir / "good")
    with Trainer(tmp_path) as trainer:
        before = trainer.attach(memory, SETTINGS, m.Bound).fingerprint
        found, said = answer(trainer, asked)
        assert (found.incident, found.number, found.error, found.unscored) == (1, 2, "", {})
        assert said == len(asked.items) + len(asked.suspects) and found.seconds > 0.0
        assert first(found.scores, 1) == [learned.ids[POISON]]
        assert trainer.attach(memory, SETTINGS, m.Bound, fresh=False).fingerprint == before
        nonsense = [msgspec.structs.replace(one, objective="none") for one in asked.suspects]
        failed, _ = answer(trainer, msgspec.structs.replace(asked, suspects=nonsense))
        assert "there is no objective 'none'" in failed.error and not failed.scores
        trainer.send(msgspec.structs.replace(asked, suspects=asked.suspects * 20))
        assert isinstance(trainer.receive_any(), m.AtWork)
        trainer.process.send_signal(signal.SIGTERM)
        assert trainer.process.wait(60) == 0, "it is no step, so it is left in the middle"


def test_without_the_answers_of_the_baseline_there_is_no_ranking(learned: LearnedWindow) -> None:
    told, (failed,) = run(learned, effect(learned, references="0" * 32))
    assert not told and isinstance(failed, inp.ExamplesRanked) and "has a reference" in failed.error
