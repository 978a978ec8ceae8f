"""`apollod ctl environment`: from a journal, and at a daemon whose engine cannot sample."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.daemon import Daemon
from support.journals import write

from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.settings import EnvironmentSettings, Settings, TrainerSettings

EXAMPLE = "a" * 32
RECORD = {
    "group": {
        "answers": ["2", "3"], "environment": "sums", "objective": "grpo", "rollouts": "b" * 32, "scores": [1.0, 0.0],
        "prompt": [{"content": "1 + 1 = ?", "role": "user"}], "terms": {},
    }
}  # fmt: skip
SETTINGS = Settings(model_path="/m", trainer=TrainerSettings(), environment=(EnvironmentSettings("sums"),))
STEP = ev.StepCompleted(
    1, 0, EXAMPLE, True, 0.5, 1e-4, 1.0, 1.0, 9, 2, 0, 0, "f" * 16, 1.0,
    metrics={"ratio": 1.01, "clipped": 0.05, "kl": 0.001, "entropy": 0.9},
)  # fmt: skip
STORY: list[ev.Event] = [
    ev.DaemonStarted(1, "0", SETTINGS),
    ev.GroupSampled("sums", 1, EXAMPLE, (1.0, 0.0), 0, 0, 8),
    ev.ExampleAccepted(EXAMPLE, msgspec.Raw(msgspec.json.encode(RECORD)), "environment:sums", 1, "rollout"),
    ev.ExampleEncoded(EXAMPLE, 9, 2, 0, "d", "grpo"),
    ev.StepStarted(1, 0, EXAMPLE, "d", 1e-4, 1, objective="grpo"),
    STEP,
    ev.GroupSampled("sums", 2, "", (0.0, 0.0), 1, 1, 8, reason="all 2 answers have the score 0", asked="2 + 2 = ?",
                    answer="five\x1b[2J"),
    ev.EnvironmentPaused("sums", "ada", "the scores are wrong"),
]  # fmt: skip


def told(capsys: pytest.CaptureFixture[str], journal: Path, *verb: str) -> tuple[int, str]:
    code = main(["ctl", "environment", *verb, "--file", str(journal)])
    return code, capsys.readouterr().out


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return write(tmp_path / "journal.db", STORY)


def test_environments_are_listed_from_a_journal(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told(capsys, journal, "list")
    assert code == 0 and "sums" in said and "paused" in said and "the scores are wrong" in said
    _, text = told(capsys, journal, "list", "--json")
    (one,) = json.loads(text)["environments"]
    assert (one["learned"], one["flat"], one["reward"], one["ratio"]) == (1, 1, 0.5, 1.01)
    code, said = told(capsys, write(journal.parent / "none.db", STORY[:0] or [ev.SourceDiscovered("s", "p")]), "list")
    assert code == 0 and "docs/rewards.md" in said


def test_one_is_shown_with_its_last_groups(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told(capsys, journal, "show", "sums")
    assert code == 0 and "1 learned, 0 wait, 1 teach nothing" in said and "clipped 0.05" in said
    assert "1 + 1 = ? -> 2" in said and "all 2 answers have the score 0 | 2 + 2 = ? -> five" in said
    assert "\x1b" not in said, "an answer does not move the cursor"
    _, text = told(capsys, journal, "show", "sums", "--json")
    first = json.loads(text)["groups"][-1]
    assert (first["step"], first["example"], json.loads(first["answers"])) == (1, EXAMPLE, ["2", "3"])
    assert main(["ctl", "environment", "show", "sum", "--file", str(journal)]) == 1
    assert "did you mean sums?" in capsys.readouterr().err


def test_an_example_that_is_a_group_is_shown_and_not_exported(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ctl", "example", "show", EXAMPLE, "--file", str(journal)]) == 0
    said = capsys.readouterr().out
    assert "answer 1 of 2, score 1, target" in said and "1 + 1 = ?" in said
    assert main(["ctl", "why", "1", "--file", str(journal)]) == 0
    assert "environment:sums:1" in capsys.readouterr().out
    for form in ("trl", "openai", "atif"):
        assert main(["ctl", "export", "--format", form, "--file", str(journal)]) == 0
        found = capsys.readouterr()
        assert not found.out.strip() and "answers that are compared" in found.err


EXTRA = '[[environment]]\nname = "sums"\nentry = "apollod.demo.naming"\n'


def test_a_daemon_pauses_and_resumes_an_environment(tmp_path: Path, tiny_model: Path) -> None:
    """Its engine is the stub, which samples nothing: that is said, and nothing else happens."""
    daemon = Daemon(tmp_path, tiny_model, EXTRA)

    def one() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(daemon.ctl("environment", "list", "--json").stdout)["environments"][0]
        return found

    daemon.start()
    try:
        daemon.wait_ready()
        told = lambda s: s["environments"][0]["reason"] and s["environments"][0]["state"] == "waiting"  # noqa: E731
        assert daemon.wait(told, "a failure told", 30.0)["environments"][0]["failed"] == 0
        assert "is paused" in daemon.ctl("environment", "pause", "sums", "--reason", "later").stdout
        assert (one()["state"], one()["reason"]) == ("paused", "later")
        assert "was paused already" in daemon.ctl("environment", "pause", "sums").stdout
        assert "goes on" in daemon.ctl("environment", "resume", "sums").stdout
        assert daemon.ctl("environment", "pause", "sum", check=False).returncode == 1
    finally:
        daemon.stop()
