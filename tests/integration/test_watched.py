"""A watched directory of agent logs: what is written there is learned turn by turn, each turn once."""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_databases import Hermes
from support.agent_logs import claude_line, gemini_chat, session
from support.journaled_source import JournaledSource
from support.no_effects import NoEffects

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import SourceFiles, Terms
from apollod.adapters.sources.watched_tree import WatchedTree
from apollod.core import events as ev
from apollod.core.fold import fold
from apollod.core.intake.state import IntakeCounts
from apollod.core.state import State
from apollod.curation.moments import Rules
from apollod.errors import ConfigError
from apollod.supervisor import sources
from apollod.supervisor.config import Config, InboxSection, ModelSection, StateSection, WatchSection
from apollod.supervisor.loop import Loop
from apollod.wire.records import decode_record


class Watch(JournaledSource):
    """A watched directory and the journal's knowledge of it; `restart` forgets everything else."""

    def __init__(self, root: Path, terms: Terms = Terms()) -> None:  # noqa: B008
        super().__init__(terms)
        self.root, self.directory = root, root / "logs"
        self.directory.mkdir(exist_ok=True)
        (root / "state").mkdir(exist_ok=True)
        self.restart()

    def restart(self) -> None:
        quarantine = self.root / "state" / "quarantine"
        self.files = SourceFiles(Quarantine(quarantine), self.terms, clock=lambda: self.now)
        self.tree = WatchedTree(self.directory, self.files, self.root / "state")


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def test_a_session_in_a_subdirectory_is_learned_turn_by_turn(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    log = watch.directory / "-home-me-project" / "5f.jsonl"
    append(log, session("s", ["a", "b"]))
    watch.read()
    assert watch.learned() == ["answer a"], "the last turn may go on"
    append(log, session("s", ["c"], first=5))
    watch.read()
    assert watch.learned() == ["answer a", "answer b"]
    watch.now = os.stat(log).st_mtime + 61
    watch.read()
    assert watch.learned() == ["answer a", "answer b", "answer c"]
    watch.restart()
    assert watch.read() == 0
    (last,) = watch.of(ev.ExampleAccepted)[-1:]
    assert last.origin.session == "s" and last.origin.records == ("s-6",) and last.line == 6
    assert last.origin.agent == "claude-code" and last.origin.responses == ("r-s-6",)


def test_it_goes_on_in_a_quiet_session_with_all_of_it_as_context(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    log = watch.directory / "5f.jsonl"
    append(log, session("s", ["a"]))
    watch.now = os.stat(log).st_mtime + 61
    watch.read()
    watch.restart()
    append(log, claude_line("s", 3, "assistant", "answer a, too"))
    watch.now = os.stat(log).st_mtime + 61
    watch.read()
    assert watch.learned() == ["answer a", "answer a, too"]
    record = decode_record(bytes(watch.of(ev.ExampleAccepted)[-1].record))
    assert [m.content for m in record.messages] == ["ask a", "answer a", "answer a, too"]  # type: ignore[union-attr]


def test_links_pipes_and_our_own_files_are_left_alone(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    append(tmp_path / "elsewhere" / "x.jsonl", session("x", ["x", "y"]))
    os.symlink(tmp_path / "elsewhere", watch.directory / "link")
    os.symlink(tmp_path / "elsewhere" / "x.jsonl", watch.directory / "link.jsonl")
    os.mkfifo(watch.directory / "pipe.jsonl")
    watch.tree = WatchedTree(tmp_path, watch.files, tmp_path / "state")
    append(tmp_path / "state" / "own.jsonl", session("o", ["o", "p"]))
    assert [Path(path).name for path in watch.tree.scan()] == ["x.jsonl"]


def test_a_directory_that_vanishes_is_an_error_once_and_what_cannot_be_read_below_is_not_there(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    append(watch.directory / "a" / "x.jsonl", session("x", ["x", "y"]))
    watch.directory.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        watch.tree.scan()
    (tmp_path / "away").rename(watch.directory)
    assert len(watch.tree.scan()) == 1


def test_a_renamed_file_goes_on_and_a_rewritten_one_begins_anew(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    log = watch.directory / "x.jsonl"
    append(log, session("x", ["a", "b"]))
    watch.read()
    log.rename(watch.directory / "y.jsonl")
    append(watch.directory / "y.jsonl", session("x", ["c"], first=5))
    watch.read()
    assert watch.learned() == ["answer a", "answer b"]
    (watch.directory / "y.jsonl").write_bytes(session("z", ["a"]) + session("z", ["d", "e"], first=3))
    watch.read()
    assert watch.learned() == ["answer a", "answer b", "answer d"], "what was learned already is a duplicate"


@given(seed=st.integers(0, 1 << 30))
def test_growing_logs_and_crashes_lose_and_double_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    chance = random.Random(seed)
    watch = Watch(tmp_path_factory.mktemp("watch"))
    logs = {name: session(name, [f"{name}{n}" for n in range(chance.randint(1, 6))]) for name in ("k", "l", "m")}
    written = dict.fromkeys(logs, 0)
    while any(written[name] < len(log) for name, log in logs.items()):
        name = chance.choice(list(logs))
        more = chance.randint(0, 400)
        append(watch.directory / name / f"{name}.jsonl", logs[name][written[name] :][:more])
        written[name] += more
        if chance.random() < 0.5:
            watch.read(most=chance.randint(1, 3), record=chance.random() < 0.7)
        if chance.random() < 0.3:
            watch.restart()
    watch.restart()
    watch.now = 1e12
    watch.read()
    whole = [turn for name, log in logs.items() for turn in turns(log)]
    assert sorted(watch.learned()) == sorted(whole)


def turns(log: bytes) -> list[str]:
    return re.findall(r"answer \w+", log.decode())


def test_a_document_is_taken_when_nobody_writes_it_any_more_and_again_as_it_grows(tmp_path: Path) -> None:
    watch = Watch(tmp_path, Terms(rules=Rules(models=("*",))))
    chat, other = watch.directory / "session-1.json", watch.directory / "settings.json"
    chat.write_bytes(gemini_chat("a"))
    other.write_text('{"theme": "dark"}')
    watch.now = os.stat(chat).st_mtime + 1
    assert watch.read() == 0
    watch.now += 31
    watch.read()
    assert watch.learned() == ["answer a"]
    chat.write_bytes(gemini_chat("a", "b"))
    watch.now = os.stat(chat).st_mtime + 31
    watch.read()
    assert watch.learned() == ["answer a", "answer b"] and len(watch.of(ev.ExampleDuplicate)) == 1
    assert not watch.of(ev.SourceQuarantined), "a document of no known format is not ours to refuse"
    watch.restart()
    assert watch.read() == 0


# --- the daemon's task --------------------------------------------------------------------------------------------


def config_of(tmp_path: Path, *sections: WatchSection) -> Config:
    return Config(
        model=ModelSection(path=str(tmp_path / "m")), state=StateSection(dir=str(tmp_path / "state")), watch=sections
    )


@pytest.mark.parametrize(
    ("path", "format", "said"),
    [
        ("state/inbox", "auto", "the state directory"),
        ("logs", "claud", "no format 'claud'"),
        ("logs", "hermess", "or of databases openclaw, hermes"),
        ("state/journal.db", "hermes", "the state directory"),
        ("state", "auto", "state"),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path: Path, path: str, format: str, said: str) -> None:
    refused = sources.refused(config_of(tmp_path, WatchSection(path=str(tmp_path / path), format=format)))
    assert isinstance(refused, ConfigError) and said in refused.line() and refused.hint


def test_a_daemon_reads_what_is_written_while_it_runs(tmp_path: Path) -> None:
    database = WatchSection(path=str(tmp_path / "state.db"), tier="direct", poll_s=0.1)
    config = config_of(tmp_path, WatchSection(path=str(tmp_path / "logs"), tier="direct"), database)
    config.inbox_dir.mkdir(parents=True)
    (config.state_dir / "quarantine").mkdir()
    (tmp_path / "logs").mkdir()

    async def run() -> State:
        journal = await Journal.open(config.journal_path)
        executor, loop = NoEffects(), Loop(State(), journal)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop.run, executor)
            sources.read_sources(config, loop, tasks)
            await anyio.sleep(0.2)
            (tmp_path / "logs" / "new").mkdir()
            (tmp_path / "logs" / "new" / "s.jsonl").write_bytes(session("s", ["a", "b"]))
            chats = Hermes(tmp_path / "state.db")
            chats.begin("s")
            for text in ("a", "b"):
                chats.ask("s", text)
                chats.answer("s", f"in a database {text}")
            with anyio.fail_after(20):
                while loop.state.intake.counts.accepted < 2:
                    await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        await journal.close()
        return loop.state

    state = anyio.run(run)
    assert state.intake.direct.waiting[0].tier == "direct"
    events = [item.event for item, _ in journal_reader.recorded(config.journal_path)]
    for name in ("s.jsonl", "state.db#s"):
        kinds = [type(event).__name__ for event in events if getattr(event, "path", "").endswith(name)]
        assert kinds == ["SourceDiscovered", "SourceConsumed"]


def test_a_session_seen_by_its_log_and_by_the_inbox_is_trained_once_across_a_restart(tmp_path: Path) -> None:
    """The log is read turn by turn, the record holds both turns and one more; a third of them was known to nobody."""
    config = config_of(tmp_path, WatchSection(path=str(tmp_path / "logs"), settle_s=3600.0))
    config = msgspec.structs.replace(config, inbox=InboxSection(rescan_s=0.2))
    config.inbox_dir.mkdir(parents=True)
    (config.state_dir / "quarantine").mkdir()
    (tmp_path / "logs").mkdir()
    turns_ = [("ask a", "answer a"), ("ask b", "answer b"), ("ask c", "answer c")]

    def given(turns: list[tuple[str, str]]) -> bytes:
        pairs = (({"role": "user", "content": a}, {"role": "assistant", "content": b}) for a, b in turns)
        return json.dumps({"messages": [message for pair in pairs for message in pair]}).encode() + b"\n"

    async def life(until: Callable[[IntakeCounts], bool]) -> None:
        journal = await Journal.open(config.journal_path)
        state = State()
        for item, _ in journal_reader.recorded(config.journal_path):
            fold(state, item)
        executor, loop = NoEffects(), Loop(state, journal)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop.run, executor)
            sources.read_sources(config, loop, tasks)
            with anyio.fail_after(20):
                while not until(loop.state.intake.counts):
                    await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        await journal.close()

    (tmp_path / "logs" / "s.jsonl").write_bytes(session("s", ["a", "b", "d"]))
    anyio.run(life, lambda counts: counts.accepted == 2)
    (config.inbox_dir / "1.jsonl").write_bytes(given(turns_) + given(turns_[1:2]))
    anyio.run(life, lambda counts: counts.duplicates == 1 and counts.accepted == 3)
    events = [item.event for item, _ in journal_reader.recorded(config.journal_path)]
    accepted = [event for event in events if isinstance(event, ev.ExampleAccepted)]
    (duplicate,) = [event for event in events if isinstance(event, ev.ExampleDuplicate)]
    trained = [
        message.content
        for event in accepted
        for message in decode_record(bytes(event.record)).messages  # type: ignore[union-attr]
        if message.role == "assistant" and message.weight
    ]
    assert sorted(trained) == ["answer a", "answer b", "answer c"]
    assert accepted[2].repeated == (accepted[0].example, accepted[1].example)
    assert duplicate.of == accepted[1].example
