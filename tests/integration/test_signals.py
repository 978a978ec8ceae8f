"""From a log to what people see: signals in the journal, beside the examples whose answers they are about."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agent_databases import Hermes, Webui
from support.agent_logs import claude_record

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.adapters.sources.database_files import DatabaseFiles
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import SourceFiles, Terms
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.curation.moments import Rules
from apollod.supervisor.loop import Loop

SECRET = "ghp_" + sha256(b"a token of nobody").hexdigest()[:36]
ASKED = claude_record("u1", "", "user", "Add the library.") + claude_record("u2", "u1", "assistant", "I used npm.")
CORRECTED = claude_record("u3", "u2", "user", f"no, use pnpm, with {SECRET}")


class Lives:
    """A journal, and what reads a directory; every `life` begins with the journal alone."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 0.0
        self.journal = root / "journal.db"
        (root / "quarantine").mkdir(parents=True)

    def life(self, *paths: Path) -> None:
        """Everything that is there to be read, by the clock `now`."""
        anyio.run(self._life, paths)

    async def _life(self, paths: tuple[Path, ...]) -> None:
        state, terms = State(), Terms(Rules(models=("*",)))
        for item, _ in journal_reader.recorded(self.journal) if self.journal.exists() else ():
            fold(state, item)
        journal = await Journal.open(self.journal)
        loop = Loop(state, journal)
        quarantine = Quarantine(self.root / "quarantine")
        files = SourceFiles(quarantine, terms, clock=lambda: self.now)
        databases = DatabaseFiles(quarantine, terms, clock=lambda: self.now)
        for path in paths:
            reader = databases if path.suffix == ".db" else files
            reader.found([str(path)])
            while (batch := reader.read_batch(str(path), state.intake.sources)) is not None:
                known = await loop._with_known(inp.LinesRead(batch, frozenset()))
                for item in await journal.append(decide(state, known, 1).events, 1):
                    fold(state, item)
        await journal.close()

    def of(self, kind: type[ev.Event]) -> list[Any]:
        events = (item.event for item, _ in journal_reader.recorded(self.journal))
        return [event for event in events if isinstance(event, kind)]


def ctl(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["ctl", *arguments]) == 0
    return capsys.readouterr().out


def test_a_correction_after_a_restart_names_the_example_and_is_recorded_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lives, log = Lives(tmp_path), tmp_path / "s.jsonl"
    log.write_bytes(ASKED)
    lives.now = 1e12  # nobody writes any more
    lives.life(log)
    (accepted,) = lives.of(ev.ExampleAccepted)
    assert not lives.of(ev.SignalFlagged)
    with log.open("ab") as file:
        file.write(CORRECTED)
    lives.life(log)
    (signal,) = lives.of(ev.SignalFlagged)
    assert (signal.cue, signal.polarity, signal.example) == ("correction", "correction", accepted.example)
    assert (signal.session, signal.records, signal.line) == ("s", ("u2", "u3"), 3)
    assert signal.quote.startswith("no, use pnpm, with [") and SECRET not in signal.quote
    events = [item.event.kind for item, _ in journal_reader.recorded(lives.journal)]
    assert events[-3:] == ["signal.flagged", "example.held", "source.consumed"], "with the position, in one transaction"
    copy = tmp_path / "fork.jsonl"
    shutil.copy(log, copy)
    lives.life(log, copy)
    assert len(lives.of(ev.SignalFlagged)) == 1 and len(lives.of(ev.ExampleDuplicate)) == 1

    shown = ctl(capsys, "example", "show", accepted.example, "--file", str(lives.journal))
    assert 'signal      correction 0.8: "no, use pnpm, with' in shown and "records u2 u3, line 3" in shown
    assert "because     signal.flagged   correction 0.8" in ctl(
        capsys, "why", accepted.example, "--file", str(lives.journal)
    )
    rows = json.loads(ctl(capsys, "query", "SELECT * FROM signals", "--json", "--file", str(lives.journal)))["rows"]
    assert len(rows) == 1
    tried = json.loads(ctl(capsys, "source", "test", str(log), "--model", "*", "--json"))
    assert [(one["kind"], one["records"]) for one in tried["examples"][0]["signals"]] == [("correction", ["u2", "u3"])]
    assert [(one["example"], one["line"], one["value"]) for one in tried["signals"]] == [
        (accepted.example, 2, signal.quote)
    ]


def test_a_database_carries_them_too(tmp_path: Path) -> None:
    lives, chats = Lives(tmp_path), Hermes(tmp_path / "state.db")
    chats.begin("s", model="apollo")
    for asked, answered in (("how?", "so"), ("no, otherwise", "like this")):
        chats.ask("s", asked)
        chats.answer("s", answered)
    Webui(tmp_path / "webui.db").rate("f1", "how?", "badly", -1)
    lives.now = 1e12
    for _ in range(2):
        lives.life(tmp_path / "state.db", tmp_path / "webui.db")
    corrected, rated = lives.of(ev.SignalFlagged)
    (first, *_) = lives.of(ev.ExampleAccepted)
    assert (corrected.cue, corrected.example) == ("correction", first.example)
    assert (rated.cue, rated.polarity, rated.example) == ("rating", "bad", "")


def test_a_turn_that_is_taken_back_is_held_with_all_its_answers(tmp_path: Path) -> None:
    lives, log = Lives(tmp_path), tmp_path / "s.jsonl"
    call = [{"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "/a", "new_string": "b"}}]
    done = [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]
    said = [("user", "Fix it."), ("assistant", call), ("user", done), ("assistant", "Fixed."), ("user", "undo that")]
    records = [claude_record(f"u{n}", f"u{n - 1}" if n else "", role, text) for n, (role, text) in enumerate(said)]
    log.write_bytes(b"".join(records))
    lives.life(log)
    first, second = lives.of(ev.ExampleAccepted)
    (signal,) = lives.of(ev.SignalFlagged)
    assert (signal.cue, signal.example, signal.also) == ("undo", second.example, (first.example,))
    assert {e.example for e in lives.of(ev.ExampleHeld)} == {first.example, second.example}

    log.write_bytes(b"".join(records[:4]))  # the same, where the user says it later
    later = Lives(tmp_path / "later")
    lives.now = later.now = 1e12
    later.life(log)
    assert not later.of(ev.ExampleHeld) and len(later.of(ev.ExampleAccepted)) == 2
    with log.open("ab") as file:
        file.write(records[4])
    later.life(log)
    assert len(later.of(ev.ExampleHeld)) == 2


def test_the_retry_names_the_answer_that_it_was_given_instead_of(tmp_path: Path) -> None:
    lives, log = Lives(tmp_path), tmp_path / "s.jsonl"
    said = ("Add it.", "I used npm.", "no, use pnpm", "I used pnpm.", "Thanks. Now the docs.", "Written.", "ok")
    records = [
        claude_record(f"u{n}", f"u{n - 1}" if n else "", "assistant" if n % 2 else "user", text)
        for n, text in enumerate(said)
    ]
    log.write_bytes(b"".join(records))
    lives.life(log)
    wrong, retry, other = lives.of(ev.ExampleAccepted)
    assert retry.instead_of == wrong.responses[0] and not wrong.instead_of and not other.instead_of
    assert [e.example for e in lives.of(ev.ExampleHeld)] == [wrong.example]
