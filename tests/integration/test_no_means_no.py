"""A session of Claude Code in which people say no, through the daemon with its defaults: no rejected answer is learned,
and one that was learned before anybody said no leaves the weights, also if the daemon is killed meanwhile."""

import json
import os
import signal
from pathlib import Path
from unittest.mock import patch

import pytest
from support.agent_logs import claude_record
from support.daemon import Daemon
from support.fork_server import ForkedPopen
from support.invariants import journal_of, open_intents_of

from apollod.adapters.ipc import offline_trainer
from apollod.cli.main import main
from apollod.failpoints import ONCE, VARIABLE

SAID_NO = ("undo that", "hmm no, I want one function for both", "Das stimmt nicht", "no, use pnpm")
WATCH = '[[watch]]\npath = "{root}/logs"\n'


class Session:
    """A log that grows as the agent writes it: each prompt, then its answer."""

    def __init__(self, path: Path) -> None:
        self.path, self.last, self.written = path, "", 0

    def write(self, *said: str) -> None:
        """Prompts and answers in turn."""
        with self.path.open("ab") as file:
            for text in said:
                self.written += 1
                uuid, role = f"u{self.written}", "user" if self.written % 2 else "assistant"
                file.write(claude_record(uuid, self.last, role, text).replace(b'"apollo"', b'"tiny"'))
                self.last = uuid


def answers(daemon: Daemon, state: str) -> list[str]:
    """What the examples of this state teach, in order."""
    rows = daemon.query(f"SELECT record FROM examples WHERE state = '{state}' ORDER BY seq")
    return [json.loads(record)["messages"][-1]["content"] for (record,) in rows]


def dies(daemon: Daemon) -> None:
    assert daemon.process is not None and daemon.process.wait(60) == -signal.SIGKILL


def test_four_of_four_rejected_answers_are_not_learned_and_a_fifth_is_forgotten(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    daemon, points = Daemon(tmp_path, tiny_model, WATCH.format(root=tmp_path)), tmp_path / "points"
    points.mkdir()
    log = Session(tmp_path / "logs" / "s.jsonl")
    for number, no in enumerate(SAID_NO):
        log.write(f"Please do task {number}.", f"wrong {number}", no, f"right {number}")
    log.write("Thanks. And now the release notes.", "notes", "Good, then the changelog.", "changelog", "Thanks.")
    daemon.start({VARIABLE: "effect.PlanForget.after", ONCE: str(points)})
    try:
        daemon.wait_ready()
        status = daemon.wait_learned(6)
        assert answers(daemon, "held") == [f"wrong {n}" for n in range(4)] and status["queue"]["held"] == 4
        assert answers(daemon, "trained") == [*(f"right {n}" for n in range(4)), "notes", "changelog"]
        ((changelog,),) = daemon.query("SELECT id FROM examples WHERE record LIKE '%:\"changelog\"%'")
        other = Session(tmp_path / "logs" / "t.jsonl")
        other.write("What is the port?", "It is 7341.", "ok")
        daemon.wait_learned(7)

        fork = Session(tmp_path / "logs" / "fork.jsonl")  # resumed in another file, where the user says no after all
        fork.write("Good, then the changelog.", "changelog", "revert that")
        dies(daemon)  # the plan is on its way
        daemon.start({VARIABLE: "effect.Restore.after:2", ONCE: str(points)})
        dies(daemon)  # the weights are on their way back
        daemon.start()
        status = daemon.wait(lambda s: s["queue"]["withdrawn"] == 1 and not s["queue"]["forgetting"], "it is forgotten")
        assert len(os.listdir(points)) == 2 and answers(daemon, "withdrawn") == ["changelog"]
        assert status["queue"]["trained"] == 6 and "It is 7341." in answers(daemon, "trained")
        ((before,),) = daemon.query("SELECT body ->> '$.from_step' FROM events WHERE kind = 'forget.started'")
        why = daemon.ctl("why", changelog).stdout
        assert "withdrawn by step" in why and 'rejected (undo): "revert that"' in why and "by what a log shows" in why
        daemon.stop()
    finally:
        daemon.kill()
    assert not open_intents_of(journal_of(daemon))
    capsys.readouterr()
    told = ["replay", "--journal", str(daemon.journal), "--json", "--to", str(before), "--without", changelog]
    with patch.object(offline_trainer, "subprocess", ForkedPopen):
        assert main(told) == 0
    assert json.loads(capsys.readouterr().out)["fingerprint"] == status["weights"]["fingerprint"]
