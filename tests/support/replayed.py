"""Examples that a trainer learns and a replay learns again."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.fork_server import ForkedPopen
from support.learned_journal import chat, completed
from support.trainer_host import Trainer

from apollod.adapters.ipc import offline_trainer
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.wire import messages as m
from apollod.wire.records import parse_line

LR = 1e-2
STEPS = (1, 2, 4, 5)  # 3 failed


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


def learned(trainer: Trainer, number: int, parent: int) -> tuple[list[ev.Event], m.StepDone]:
    """A step of the trainer, with its events and what it said."""
    record = EXAMPLES[number]
    digest = trainer.ask(m.Encode([(record.id, record.canonical)]), m.EncodeDone).results[0].digest
    done = trainer.step(number, record.canonical, lr=LR / number, digest=digest)
    begun = ev.StepStarted(number, parent, record.id, digest, LR / number, 1)
    return [begun, completed(done, number, parent, record.id, LR / number)], done


def replay(capsys: pytest.CaptureFixture[str], journal: Path, *args: str) -> tuple[int, dict[str, Any]]:
    """The exit code of `apollod replay`, with a forked trainer, and what it printed."""
    with patch.object(offline_trainer, "subprocess", ForkedPopen):
        code = main(["replay", "--journal", str(journal), "--json", *args])
    return code, json.loads(capsys.readouterr().out)
