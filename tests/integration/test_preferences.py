"""Pairs and ratings in a daemon: learned by dpo and kto with a reference that the trainer gave, replayed to the same
bits from the file beside the journal, and taken out again."""

import json
import math
from pathlib import Path
from unittest.mock import patch

import pytest
from support.daemon import Daemon
from support.fork_server import ForkedPopen
from support.replayed import replay

from apollod.adapters.ipc import offline_trainer
from apollod.cli.main import main

WITH = {
    "APOLLOD_PREFERENCES__PAIRS": "dpo", "APOLLOD_PREFERENCES__RATINGS": "kto", "APOLLOD_TRAINER__LR": "3e-3",
    "APOLLOD_TRAINER__LR_DIRECT": "3e-3", "APOLLOD_PREFERENCES__RATINGS_PER_STEP": "2",
}  # fmt: skip
ASKED = [{"role": "user", "content": "Who keeps the lamp?"}]


def turn(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


PAIR = {"prompt": ASKED, "chosen": [turn("Mara Quill.")], "rejected": [turn("Nobody does.")]}
RATINGS = [
    {"prompt": "The ferry is called", "completion": " the Grey Heron.", "label": True},
    {"prompt": "The bakery opens at", "completion": " noon.", "label": False},
]


def test_they_are_learned_replayed_and_taken_out(
    tmp_path: Path, smaller_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = Daemon(tmp_path, smaller_model)
    try:
        daemon.start(WITH)
        daemon.wait_ready()
        daemon.drop("pairs.jsonl", json.dumps(PAIR))
        daemon.wait(lambda s: s["preferences"]["pairs"] == 1, "a pair learned")
        daemon.drop("rating.jsonl", json.dumps(RATINGS[0]))
        daemon.wait(lambda s: s["preferences"]["gathered"] == 1, "a rating that waits for another")
        daemon.drop("ratings.jsonl", json.dumps(RATINGS[1]))
        daemon.drop("again.jsonl", json.dumps({**PAIR, "prompt": [{"role": "user", "content": "Whose is the lamp?"}]}))
        status = daemon.wait(lambda s: s["queue"]["trained"] == 4, "all learned")
        assert status["preferences"]["ratings"] == 2 and status["preferences"]["margin"] is not None
        steps = daemon.query(
            "SELECT body ->> '$.objective', loss FROM steps JOIN events ON kind = 'step.started' AND key = step "
            "ORDER BY step"
        )
        assert abs(steps[0][1] - math.log(2)) < 1e-6, "it begins at its own reference"
        assert sorted(objective for objective, _ in steps) == ["dpo", "dpo", "kto"]
        encoded = daemon.query(
            "SELECT key, body ->> '$.reference', body ->> '$.weights' FROM events WHERE kind = 'example.encoded'"
        )
        assert len({file for _, file, _ in encoded}) == 4 and encoded[0][2] == 0 < max(one[2] for one in encoded)
        (pair,) = [id_ for id_, text in daemon.query("SELECT id, record FROM examples") if "Whose" in text]
        shown = daemon.ctl("example", "show", pair).stdout
        assert "assistant, the better answer, target" in shown and "assistant, the worse answer, target" in shown
        masked = daemon.ctl("example", "show", pair, "--mask").stdout
        assert "Mara Quill." in masked and "Nobody does." in masked
        fingerprint = status["weights"]["fingerprint"]
        daemon.stop()

        code, replayed = replay(capsys, daemon.journal)
        assert code == 0
        assert (replayed["fingerprint"], replayed["verified"]) == (fingerprint, True)
        _, without = replay(capsys, daemon.journal, "--without", pair)
        assert without["fingerprint"] != fingerprint and without["steps"] == 2
        daemon.ctl("journal", "verify", "--file", str(daemon.journal))
        reference = next(file for id_, file, _ in encoded if id_ == pair)
        (tmp_path / "state" / "blobs" / reference).unlink()
        refused = daemon.ctl("journal", "verify", "--file", str(daemon.journal), check=False)
        assert refused.returncode == 1 and reference in refused.stdout
        with patch.object(offline_trainer, "subprocess", ForkedPopen):
            assert main(["replay", "--journal", str(daemon.journal)]) == 1
        assert f"its reference {reference} is not there" in capsys.readouterr().err
    finally:
        daemon.end()
