"""A watched directory of agent logs: what is written there is learned turn by turn, each turn once."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_databases import Hermes
from support.agent_logs import claude_line, gemini_chat, session
from support.effort import draws
from support.journaled_source import JournaledSource
from support.source_life import config_of, events_of, live, until

from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import SourceFiles, Terms
from apollod.adapters.sources.watched_places import WatchedTree
from apollod.core import events as ev
from apollod.core.facts.intake.state import IntakeCounts
from apollod.core.state import State
from apollod.curation.moments import Rules
from apollod.errors import ConfigError
from apollod.supervisor import sources
from apollod.supervisor.sections import WatchSection
from apollod.wire.records import decode_record

FOREIGN = Path(__file__).parents[1] / "foreign"
"""Samples that others published, each with its origin and licence beside it"""


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


@draws(here=30, long=100)
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


BAD = [
    (b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n", "recursion depth"),
    (b'{"type":"user","message":{"content":' + b"[" * 50_000 + b"]" * 50_000 + b"}}\n", "recursion depth"),
    (session("x", ["\xe4"]).decode().replace("\\u00e4", "\xe4").encode("latin-1").splitlines(True)[0], "not UTF-8"),
    (session("x", ["a"]).splitlines()[0].decode().encode("utf-16-le") + b"\n", "JSON"),
    (b'{"type":"user","message":"' + b"x" * (2 << 20) + b'"}\n', "longer than 1048576 bytes"),
    (b"\x00" * 5000 + b"\n", "JSON"),
]


@pytest.mark.parametrize(("line", "said"), BAD, ids=["braces", "lists", "latin-1", "utf-16", "long", "zeros"])
def test_a_bad_line_in_a_session_is_kept_with_the_reason_and_the_turns_around_it_are_learned(
    tmp_path: Path, line: bytes, said: str
) -> None:
    watch = Watch(tmp_path)
    append(watch.directory / "s.jsonl", session("s", ["a"]) + line + session("s", ["b", "c"], first=3))
    watch.read()
    assert watch.learned() == ["answer a", "answer b"]
    (bad,) = watch.of(ev.SourceQuarantined)
    assert said in bad.reason and "; " in bad.reason and (bad.line, bad.bytes) == (3, len(line))
    assert Path(bad.kept).read_bytes() == line


# --- the daemon's task --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "format", "mode", "said"),
    [
        ("state/inbox", "auto", "auto", "the state directory"),
        ("logs", "claud", "auto", "no format 'claud'; did you mean 'claude-code'?"),
        ("logs", "hermess", "auto", "did you mean 'hermes'? one of auto, "),
        ("state/journal.db", "hermes", "auto", "the state directory"),
        ("state", "auto", "tail", "state"),
        ("logs", "hermes", "tail", "'hermes' is a format of databases; use mode = \"poll\""),
        ("logs", "codex", "poll", "'codex' is a format of files; use mode = \"tail\""),
        ("agent.db", "auto", "tail", 'agent.db is a database; use mode = "poll"'),
        ("logs/../other", "auto", "auto", "stands in two [[watch]] tables; keep one of them"),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path: Path, path: str, format: str, mode: Any, said: str) -> None:
    other = WatchSection(path=str(tmp_path / "other"))
    section = WatchSection(path=str(tmp_path / path), format=format, mode=mode)
    refused = sources.refused(config_of(tmp_path, other, section))
    assert isinstance(refused, ConfigError) and said in refused.line() and refused.hint
    assert refused.line().startswith("[[watch]] ")


@pytest.mark.parametrize(
    ("path", "format", "mode", "modes"),
    [
        ("logs", "auto", "auto", ("tail", "poll")),
        ("logs", "codex", "auto", ("tail",)),
        ("logs", "hermes", "auto", ("poll",)),
        ("agent.db", "auto", "auto", ("poll",)),
        ("logs.db", "auto", "auto", ("tail", "poll")),
        ("logs", "auto", "tail", ("tail",)),
        ("logs", "auto", "poll", ("poll",)),
    ],
)
def test_what_is_looked_for_is_decided_by_what_the_path_holds_unless_it_is_said(
    tmp_path: Path, path: str, format: str, mode: Any, modes: tuple[str, ...]
) -> None:
    for directory in ("logs", "logs.db"):
        (tmp_path / directory).mkdir()
    assert sources.modes_of(WatchSection(path=str(tmp_path / path), format=format, mode=mode)) == modes


def test_a_watched_log_has_the_context_that_was_asked_for_and_a_step_takes(tmp_path: Path) -> None:
    section = WatchSection(path="/logs")
    tokens = [
        sources.terms_of(config_of(tmp_path), msgspec.structs.replace(section, **asked)).rules.context_tokens
        for asked in ({}, {"context_tokens": 100}, {"context_tokens": 1 << 20})
    ]
    assert tokens == [4096, 100, 4096]


def test_a_daemon_reads_what_is_written_while_it_runs(tmp_path: Path) -> None:
    database = WatchSection(path=str(tmp_path / "state.db"), tier="direct", poll_s=0.1)
    config = config_of(tmp_path, WatchSection(path=str(tmp_path / "logs"), tier="direct"), database)
    (tmp_path / "logs").mkdir()

    async def during(state: State) -> None:
        await anyio.sleep(0.2)
        (tmp_path / "logs" / "new").mkdir()
        (tmp_path / "logs" / "new" / "s.jsonl").write_bytes(session("s", ["a", "b"]))
        chats = Hermes(tmp_path / "state.db")
        chats.begin("s")
        for text in ("a", "b"):
            chats.ask("s", text)
            chats.answer("s", f"in a database {text}")
        await until(lambda: state.intake.counts.accepted == 2)

    state = live(config, during)
    assert state.intake.direct.waiting[0].tier == "direct"
    events = events_of(config)
    for name in ("s.jsonl", "state.db#s"):
        kinds = [type(event).__name__ for event in events if getattr(event, "path", "").endswith(name)]
        assert kinds == ["SourceDiscovered", "SourceConsumed"]


def test_a_session_seen_by_its_log_and_by_the_inbox_is_trained_once_across_a_restart(tmp_path: Path) -> None:
    """The log is read turn by turn, the record holds both turns and one more; a third of them was known to nobody."""
    config = config_of(tmp_path, WatchSection(path=str(tmp_path / "logs"), settle_s=3600.0))
    (tmp_path / "logs").mkdir()
    turns_ = [("ask a", "answer a"), ("ask b", "answer b"), ("ask c", "answer c")]

    def given(turns: list[tuple[str, str]]) -> bytes:
        pairs = (({"role": "user", "content": a}, {"role": "assistant", "content": b}) for a, b in turns)
        return json.dumps({"messages": [message for pair in pairs for message in pair]}).encode() + b"\n"

    def life(done: Callable[[IntakeCounts], bool]) -> None:
        live(config, lambda state: until(lambda: done(state.intake.counts)))

    (tmp_path / "logs" / "s.jsonl").write_bytes(session("s", ["a", "b", "d"]))
    life(lambda counts: counts.accepted == 2)
    (config.inbox_dir / "1.jsonl").write_bytes(given(turns_) + given(turns_[1:2]))
    life(lambda counts: counts.duplicates == 1 and counts.accepted == 3)
    events = events_of(config)
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


@pytest.mark.parametrize(
    ("name", "model", "samples"),
    [("log_streaming.eval", "Meta-Llama-3-405B-Instruct", 4), ("log_message_deduplication.eval", "hardcoded", 1)],
)
def test_a_log_of_inspect_is_taken_once_whole_and_with_its_scores(
    name: str, model: str, samples: int, tmp_path: Path
) -> None:
    watch = Watch(tmp_path, Terms(rules=Rules(models=(model,))))
    log = watch.directory / name
    shutil.copyfile(FOREIGN / "inspect" / name, log)
    (watch.directory / "other.eval").write_bytes(b"no archive\n")
    watch.now = os.stat(log).st_mtime + 10
    assert watch.read() == 0, "it may still be written"
    watch.now += 60
    watch.read()
    accepted = watch.of(ev.ExampleAccepted)
    assert len(accepted) >= samples
    assert {(one.origin.agent, one.origin.model) for one in accepted} == {("inspect", model)}
    assert {flag.cue for flag in watch.of(ev.SignalFlagged)} == {"evaluation"}
    watch.restart()
    assert watch.read() == 0
    assert watch.of(ev.SourceQuarantined) == []
