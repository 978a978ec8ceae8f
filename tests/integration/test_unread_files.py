"""What lies among logs and is none: said in one line, not read, not learned. What is odd about logs, and read."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.agent_logs import claude_line, session
from support.journaled_source import JournaledSource

from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import SETTLE_S, UNENDED_S, SourceFiles, Terms
from apollod.adapters.sources.watched_places import Inbox, WatchedTree
from apollod.adapters.sources.whole_source import WholeSource
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.curation.formats.table import ReaderTable
from apollod.errors import SourceRefused

PRETTY = json.dumps({"messages": [{"role": "user", "content": "hi"}] * 40, "model": "x"}, indent=2).encode() + b"\n"
FOREIGN = b"".join(json.dumps({"kind": "turn", "n": n, "body": {"who": "me"}}).encode() + b"\n" for n in range(7))
ROW = b'{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a row"}]}\n'
TEXT = b'{"text": "a text that stands alone"}\n'


class Watch(JournaledSource):
    """A watched directory whose format is recognised, and the inbox beside it."""

    def __init__(self, root: Path, format_: str = "auto") -> None:
        super().__init__(Terms())
        self.directory = root / "logs"
        self.directory.mkdir()
        self.files = SourceFiles(Quarantine(root / "q"), self.terms, ReaderTable.of(format_), clock=lambda: self.now)
        self.tree = WatchedTree(self.directory, self.files, root / "q")

    def put(self, name: str, data: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(data)
        self.now = max(self.now, os.stat(path).st_mtime + 61)
        return path


class Dropped(JournaledSource):
    """The inbox."""

    def __init__(self, root: Path) -> None:
        super().__init__(Terms())
        self.directory = root / "inbox"
        self.directory.mkdir()
        self.tree = self.files = self.inbox = Inbox(self.directory, root / "q", clock=lambda: self.now)


def test_the_log_of_an_unknown_agent_is_said_once_and_not_read(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    path = watch.put("x.jsonl", FOREIGN)
    watch.put("s.jsonl", session("s", ["a", "b"]))
    watch.read()
    assert watch.learned() == ["answer a", "answer b"]
    (why,) = watch.tree.blocked().values()
    assert why.reason == "an unknown agent log, 7 records" and "formats.md" in why.hint
    with path.open("ab") as file:
        file.write(FOREIGN)
    watch.read()
    assert watch.tree.blocked() == {str(path): why}, "a log that grows is no news"
    assert not watch.of(ev.SourceQuarantined) and len(watch.of(ev.SourceDiscovered)) == 1
    path.write_bytes(session("x", ["c", "d"]))
    watch.now = os.stat(path).st_mtime + 61
    watch.read()
    assert watch.learned()[-1] == "answer d" and not watch.tree.blocked()


def test_a_text_that_stands_alone_is_learned_where_it_was_asked_for(tmp_path: Path) -> None:
    for name, format_, learned in (("auto", "auto", 1), ("records", "records", 2)):
        (tmp_path / name).mkdir()
        watch = Watch(tmp_path / name, format_)
        watch.put("r.jsonl", TEXT + ROW)
        watch.read()
        assert len(watch.records()) == learned, name
    assert len(watch.of(ev.SourceConsumed)) > 0
    inbox = Dropped(tmp_path)
    (inbox.directory / "r.jsonl").write_bytes(TEXT + ROW)
    inbox.read()
    assert len(inbox.records()) == 2


def test_a_document_in_the_inbox_costs_one_line(tmp_path: Path) -> None:
    """Also where another one is put in its place."""
    inbox = Dropped(tmp_path)
    for n, data in enumerate((PRETTY, PRETTY[:-2] + b', "more": 1}\n', b'[\n  {"no": "row"},\n  {"no": "row"}\n]\n')):
        path = inbox.directory / "d.jsonl"
        path.write_bytes(data)
        inbox.now = os.stat(path).st_mtime
        assert inbox.read() == 0, "it may still be on its way"
        inbox.now += SETTLE_S
        inbox.read()
        inbox.read()
        told = inbox.of(ev.SourceQuarantined)
        assert len(told) == n + 1 and "JSON document over several lines" in told[-1].reason
        assert Path(told[-1].kept).read_bytes() == data
    assert not inbox.records()
    inbox.inbox.close()


def test_a_document_in_a_watched_directory_is_left_where_it_is(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.put("d.jsonl", PRETTY)
    watch.put("package.json", PRETTY)
    watch.read()
    assert [why.reason[:24] for why in watch.tree.blocked().values()] == ["it is one JSON document "]
    assert not watch.events


def pipe(path: Path) -> None:
    os.mkfifo(path)


def nothing_known(path: Path) -> None:
    path.write_bytes(FOREIGN)


def document(path: Path) -> None:
    path.write_bytes(PRETTY)


def broken(path: Path) -> None:
    path.write_bytes(session("s", ["a", "b"])[:-40].replace(b"answer", b"\xff\xfe\xed\xa0\x80") + b"\n\x00\x00\n")


@pytest.mark.parametrize(("make", "said"), [
    (pipe, "is no file"), (nothing_known, "unknown agent log, 7 records"), (document, "over several lines"),
    (broken, "is no record of this log"),
])  # fmt: skip
def test_source_test_says_it_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / os.fsdecode(b"x\xff.jsonl")
    make(path)
    done = threading.Thread(target=main, args=(["ctl", "source", "test", str(path)],), daemon=True)
    done.start()
    done.join(20)
    out, err = capsys.readouterr()
    assert not done.is_alive() and said in out + err and "Traceback" not in out + err


def test_a_pipe_is_refused_where_it_is_read_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.jsonl")
    whole = WholeSource(tmp_path / "p.jsonl", "@b", tmp_path / "q", Terms(), "auto", tmp_path / "state")
    with pytest.raises(SourceRefused, match="is no file"):
        whole.scan()


def test_a_conversation_whose_time_lies_ahead_is_settled_all_the_same(tmp_path: Path) -> None:
    """The clock was wrong when it was written, or is now."""
    watch = Watch(tmp_path)
    path = watch.put("s.jsonl", session("s", ["a", "b"]))
    ahead = watch.now + 86_400
    os.utime(path, (ahead, ahead))
    watch.read()
    assert watch.learned() == ["answer a"]
    watch.now += 59
    watch.read()
    assert watch.learned() == ["answer a"]
    watch.now += 2
    watch.read()
    assert watch.learned() == ["answer a", "answer b"]


def test_a_session_that_was_resumed_or_forked_into_another_file_is_learned_once(tmp_path: Path) -> None:
    """The other file begins with all that was said before, under another session id and with times that go back."""
    watch = Watch(tmp_path)
    first = session("s", ["a", "b"])
    resumed = first.replace(b'"sessionId": "s"', b'"sessionId": "t"').replace(b"s-", b"t-")
    stamped = [
        json.dumps({**json.loads(line), "timestamp": f"2026-01-0{9 - n}T00:00:00Z"}).encode() + b"\n"
        for n, line in enumerate(resumed.splitlines())
    ]
    watch.put("s.jsonl", first)
    more = claude_line("t", 5, "user", "ask c"), claude_line("t", 6, "assistant", "answer c")
    watch.put("t.jsonl", b"".join((*stamped, *more)))
    watch.now += UNENDED_S
    watch.read()
    assert watch.learned() == ["answer a", "answer b", "answer c"]
    assert len(watch.of(ev.ExampleDuplicate)) == 2
