"""`ctl submit --wait` and `ctl train --wait`: what the quality guard took back and holds is exit code 5. A guarded
world in the place of the daemon; the journal is a real one."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.dreamt_journal import write_story
from support.guarded_world import ITEMS, GuardedWorld, guarded

from apollod.cli.control import ctl, submit
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import reasons
from apollod.supervisor.status_view import status_view
from apollod.wire import status as st
from apollod.wire.status import Journal


class Daemon:
    """Takes each line as an example that is called what it says. Whoever asks for the status lets it do one thing."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.world = GuardedWorld(guarded(**{"every_steps": 3} | settings)).up()
        self.world.settle()
        self.world.answers = False
        self.root, self.asked = root, 0
        self.seen: list[str] = []
        monkeypatch.setattr(ctl, "ask", lambda path, request, timeout_s=0.0: self.submit(request))
        monkeypatch.setattr(ctl, "status", lambda path: self.status())
        monkeypatch.setattr(ctl, "journal_path", lambda args: self.status().journal.path)
        monkeypatch.setattr(submit, "WAIT_S", 0.0)

    def submit(self, request: Any) -> dict[str, Any]:
        names = [line.split(b'"')[3].decode() for line in request.lines]
        if names:
            self.world.lines(*names)
        return {"examples": names, "duplicates": [], "held": [], "rejected": []}

    def status(self) -> st.Status:
        self.asked += 1
        assert self.asked < 100, "it waits for ever"
        if self.asked > 2:
            if self.world.replayed:
                self.world.replay()
            elif self.world.probed:
                self.world.look()
            self.world.settle()
        state = self.world.state
        self.seen.append(state.quality.incident.phase if state.quality.incident else "")
        path = self.root / f"{self.asked}.db"
        refused = any(not e.applied for e in self.world.of(ev.StepCompleted))
        if refused or self.world.of(ev.QualityNamed):  # nobody reads one without
            write_story(path, self.world.journal)
        journal = Journal(seq=len(self.world.journal), bytes=1, head_hash="", path=str(path))
        shown = status_view(state, self.world.now, journal)
        return msgspec.structs.replace(shown, activities=reasons(state))


def submitted(root: Path, *names: str) -> int:
    file = root / "lines.jsonl"
    file.write_text("".join(f'{{"text": "{name}"}}\n' for name in names))
    return main(["ctl", "submit", str(file), "--wait", "--socket", "unused"])


@pytest.mark.parametrize("resume", ["auto", "manual"])
def test_what_an_alarm_took_back_and_holds_is_five_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], resume: str
) -> None:
    daemon = Daemon(tmp_path, monkeypatch, resume=resume)
    daemon.world.poison = {"bad": ITEMS}
    assert submitted(tmp_path, "a", "bad", "c") == 5
    out, err = capsys.readouterr()
    assert out == "3 accepted, 0 duplicates, 0 rejected\n" and "searching" in daemon.seen
    assert err == (
        "apollod: the quality guard took back and holds 1 of 3 examples; see `apollod ctl quality incident show 1`\n"
    )


def test_innocent_ones_that_were_taken_back_are_waited_for_and_are_no_five(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = Daemon(tmp_path, monkeypatch)
    daemon.world.poison = {"theirs": ITEMS}
    daemon.world.lines("theirs")
    assert submitted(tmp_path, "a", "b") == 0
    assert daemon.world.of(ev.QualityAlarmed) and {"a", "b"} <= set(daemon.world.learned())
    assert capsys.readouterr().err == ""


def test_a_train_that_was_refused_is_five(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = Daemon(tmp_path, monkeypatch, every_steps=1)
    daemon.world.poison = {"bad": ITEMS}
    given = ["ctl", "train", "--text", "bad", "--wait", "--socket", "unused"]
    assert main(given) == 5
    out, err = capsys.readouterr()
    assert out == "bad held\n" and "holds 1 of 1 examples" in err


def test_what_the_model_knows_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = Daemon(tmp_path, monkeypatch)
    daemon.world.losses |= {"easy": 0.0, "broken": math.inf}
    given = ["ctl", "train", "--wait", "--socket", "unused", "--text"]
    assert main([*given, "easy"]) == 0
    assert capsys.readouterr().out == "easy skipped: the model knows it, so that nothing was written\n"
    assert main([*given, "broken", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["state"], said["known"]) == ("skipped", False)


def test_one_that_was_learned_while_an_old_alarm_had_been_settled_is_no_five(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(tmp_path, monkeypatch)
    daemon.world.answers, daemon.world.poison = True, {"old": ITEMS}
    daemon.world.lines("old", "older", "oldest")
    daemon.world.settle()
    assert daemon.world.state.quality.incidents == 1
    daemon.world.answers = False
    assert submitted(tmp_path, "a") == 0


def test_an_alarm_that_waits_for_a_person_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The damage was there before, so that nobody is held and nothing is learned again."""
    daemon = Daemon(tmp_path, monkeypatch)
    daemon.world.poison, daemon.world.lost_before = {"b": 20}, 0.8
    assert submitted(tmp_path, "a", "b", "c") == 1
    assert "alarm 1 of the quality guard waits for a person" in capsys.readouterr().err


def test_a_daemon_that_ends_meanwhile_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = Daemon(tmp_path, monkeypatch)
    daemon.world.poison = {"b": ITEMS}
    stop = daemon.status

    def status() -> st.Status:
        if daemon.asked == 4:
            daemon.world.give(inp.ShutdownRequested("t"))
        return stop()

    monkeypatch.setattr(ctl, "status", lambda path: status())
    assert submitted(tmp_path, "a", "b", "c") == 1
    assert "the daemon is stopping" in capsys.readouterr().err
