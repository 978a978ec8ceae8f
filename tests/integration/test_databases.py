"""Databases of agents, read while they are written: each turn once, and whoever writes is never kept waiting."""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.agent_databases import Chats, Cursor, Goose, Hermes, OpenClaw, OpenCode, Webui
from support.polled import Polled

from apollod.adapters.sources import database_files, foreign_database
from apollod.adapters.sources.source_files import Terms
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.curation.formats.session_rows import RawSession
from apollod.errors import SourceRefused

AGENTS: dict[str, Callable[[Path], Chats]] = {
    "hermes": Hermes, "openclaw": OpenClaw, "opencode": OpenCode, "goose": Goose, "cursor": Cursor,
}  # fmt: skip
each_agent = pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS.keys())


def of(root: Path, name: str = "state.db") -> Path:
    return root / "agents" / name


@each_agent
def test_sessions_that_grow_side_by_side_are_learned_turn_by_turn(
    agent: Callable[[Path], Chats], tmp_path: Path
) -> None:
    chats, polled = agent(of(tmp_path)), Polled(tmp_path / "agents")
    for session in ("s", "t"):
        chats.begin(session)
        chats.ask(session, f"how, {session}?")
    chats.answer("s", "so s")
    polled.poll()
    chats.answer("t", "so t")
    polled.poll()
    assert polled.learned() == [], "both turns may go on"
    chats.ask("s", "and then?")
    polled.poll()
    assert polled.learned() == ["so s"]
    polled.restart()
    chats.ask("t", "and then?")
    chats.answer("s", "then s")
    polled.poll()
    assert polled.learned() == ["so s", "so t"]
    polled.settle()
    assert polled.learned() == ["so s", "so t", "then s"]
    *_, last = polled.records()
    assert [m.content for m in last.messages] == ["how, s?", "so s", "and then?", "then s"]
    origin = polled.of(ev.ExampleAccepted)[-1].origin
    assert (origin.session, origin.model, len(origin.records)) == ("s", "apollo", 1)
    assert {e.path.partition("#")[2] for e in polled.of(ev.SourceDiscovered)} == {"s", "t"}
    assert not polled.of(ev.ExampleDuplicate) and not polled.of(ev.SourceQuarantined)


WORDS = st.sampled_from(["ask", "answer", "poll", "some", "lost", "restart", "settle"])


@each_agent
@settings(max_examples=30, deadline=None)
@example(steps=[("ask", "s"), ("some", "s"), ("answer", "s")])
@example(
    steps=[("answer", "t"), ("settle", "s"), ("answer", "t")]
)  # a call that follows is learned, too: it has no text
@given(steps=st.lists(st.tuples(WORDS, st.sampled_from("st")), max_size=25))
def test_any_order_of_writing_polling_and_crashing_gives_each_answer_once(
    agent: Callable[[Path], Chats], steps: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("any")
    chats, polled = agent(of(root)), Polled(root / "agents")
    said: list[str] = []
    for session in "st":
        chats.begin(session)
    for n, (step, session) in enumerate(steps):
        if step == "ask":
            chats.ask(session, f"q{n}")
        elif step == "answer":
            said.append(f"a{n}")
            chats.answer(session, said[-1])
        elif step == "settle":
            polled.settle()
        elif step == "restart":
            polled.restart()
        else:
            polled.poll(most=1 if step in ("some", "lost") else 1 << 30, record=step != "lost")
    polled.settle()
    polled.poll()
    assert sorted(a for turn in polled.learned() for a in turn.split("|") if a) == sorted(said)
    assert not polled.of(ev.ExampleDuplicate)


# --- who writes is never kept waiting -------------------------------------------------------------------------------


@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback-journal"])
def test_a_writer_is_never_blocked_and_can_checkpoint(wal: bool, tmp_path: Path) -> None:
    chats, polled = Hermes(of(tmp_path), wal=wal), Polled(tmp_path / "agents")
    failed, stop = list[str](), threading.Event()

    def write() -> None:
        chats.begin("s")
        for n in range(100):
            try:
                chats.ask("s", f"q{n}")
                chats.answer("s", f"a{n}")
                if wal and n % 10 == 0:
                    busy = chats.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                    failed.extend(["checkpoint"] * busy)
            except sqlite3.Error as error:
                failed.append(str(error))
            time.sleep(0.001)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    polls = 0
    while not stop.is_set():
        try:
            polls += polled.poll()
        except SourceRefused as error:
            assert not wal and "locked" in str(error)
    writer.join()
    assert not failed, failed
    assert polls > (5 if wal else 0), "it was read while it was written"
    polled.settle()
    assert sorted(polled.learned()) == sorted(f"a{n}" for n in range(100))


def test_no_transaction_is_open_between_two_looks(tmp_path: Path) -> None:
    chats, polled = Hermes(of(tmp_path)), Polled(tmp_path / "agents")
    chats.begin("s")
    chats.ask("s", "how?")
    polled.poll()
    chats.answer("s", "so")
    assert chats.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    chats.db.execute("VACUUM")
    polled.settle()
    assert polled.learned() == ["so"]


def test_a_locked_database_is_one_line_and_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_database, "BUSY_S", 0.01)
    locked, other = Hermes(of(tmp_path, "a.db"), wal=False), Hermes(of(tmp_path, "b.db"))
    for chats in (locked, other):
        chats.begin("s")
        chats.ask("s", "how?")
        chats.answer("s", f"so {chats.path.name}")
    polled = Polled(tmp_path / "agents")
    locked.db.execute("BEGIN EXCLUSIVE")
    first, second = polled.tree.scan()
    for _ in range(2):
        with pytest.raises(SourceRefused, match="another program keeps it locked") as refused:
            polled.files.read_batch(first, {})
    assert refused.value.hint
    assert polled.files.read_batch(second, {}) is not None
    locked.db.execute("COMMIT")
    polled.settle()
    assert sorted(polled.learned()) == ["so a.db", "so b.db"]


def test_an_idle_database_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chats, polled = Hermes(of(tmp_path)), Polled(tmp_path / "agents")
    chats.begin("s")
    chats.ask("s", "how?")
    chats.answer("s", "so")
    polled.now = time.time() + 10
    polled.settle()
    opened: list[str] = []
    real = database_files.open_database
    monkeypatch.setattr(database_files, "open_database", lambda path: opened.append(path) or real(path))
    assert polled.poll() == 0 and not opened
    chats.ask("s", "again?")
    polled.poll()
    assert opened


# --- rows that change -----------------------------------------------------------------------------------------------


def test_what_hermes_took_back_is_not_learned_and_what_it_compacted_is(tmp_path: Path) -> None:
    chats, polled = Hermes(of(tmp_path)), Polled(tmp_path / "agents")
    chats.begin("s", system_prompt="Be kind.")
    chats.ask("s", "one?")
    chats.answer("s", "one.")
    chats.ask("s", "two?")
    chats.answer("s", "bad")
    polled.poll()
    chats.db.execute("UPDATE messages SET active = 0 WHERE id > 2")
    chats.ask("s", "two, please?")
    chats.answer("s", "two.")
    polled.poll()
    assert polled.learned() == ["one."] and polled.counts() == {"dropped: taken back by the user (rewound)": 1}
    # compaction in place: what was said is archived, and head, summary and tail are written again with their times
    kept = chats.db.execute("SELECT role, content, timestamp FROM messages WHERE active = 1").fetchall()
    chats.db.execute("BEGIN")
    chats.db.execute("UPDATE messages SET active = 0, compacted = 1 WHERE active = 1")
    chats.say("s", kept[0][0], kept[0][1], timestamp=kept[0][2])
    chats.say("s", "user", "[CONTEXT COMPACTION - REFERENCE ONLY] one was said")
    for role, content, at in kept[2:]:
        chats.say("s", role, content, timestamp=at)
    chats.db.execute("COMMIT")
    polled.poll()
    assert polled.learned() == ["one.", "two."], "it was compacted, which says nothing about its worth"
    chats.ask("s", "three?")
    chats.answer("s", "three.")
    polled.restart()
    polled.settle()
    assert polled.learned() == ["one.", "two.", "three."]
    assert [m.content for m in polled.records()[-1].messages] == [
        "Be kind.", "one?", "[CONTEXT COMPACTION - REFERENCE ONLY] one was said", "two, please?", "two.", "three?",
        "three.",
    ]  # fmt: skip
    assert polled.counts() == {"dropped: taken back by the user (rewound)": 1} and not polled.of(ev.ExampleDuplicate)


def test_what_opencode_reverted_is_not_learned_and_its_rows_may_go(tmp_path: Path) -> None:
    chats, polled = OpenCode(of(tmp_path)), Polled(tmp_path / "agents")
    chats.begin("s")
    chats.ask("s", "one?")
    chats.answer("s", "one.")
    polled.settle()
    chats.ask("s", "two?")
    chats.answer("s", "bad")
    polled.poll()
    (first,) = chats.db.execute("SELECT max(id) FROM message WHERE data LIKE '%user%'").fetchone()
    chats.db.execute(
        "UPDATE session SET revert = ?, time_updated = ?", (json.dumps({"messageID": first}), int(chats.tick()))
    )
    polled.settle()
    assert polled.learned() == ["one."] and polled.counts() == {"dropped: taken back by the user (rewound)": 1}
    chats.db.execute("DELETE FROM message WHERE id >= ?", (first,))
    chats.db.execute("UPDATE session SET revert = NULL")
    chats.ask("s", "two, please?")
    chats.answer("s", "two.")
    polled.settle()
    assert polled.learned() == ["one.", "two."]
    assert polled.counts() == {"dropped: taken back by the user (rewound)": 1}


def test_an_answer_of_opencode_is_read_when_it_is_complete_with_its_calls(tmp_path: Path) -> None:
    chats, polled = OpenCode(of(tmp_path)), Polled(tmp_path / "agents")
    chats.begin("s")
    asked = chats.message("s", {"role": "user"}, [
        {"type": "text", "text": "look"}, {"type": "text", "text": "Called the Read tool", "synthetic": True},
        {"type": "file", "url": "data:" + "x" * (2 << 20)},
    ])  # fmt: skip
    name = chats.message("s", {"role": "assistant", "modelID": "apollo"}, [
        {"type": "step-start"}, {"type": "reasoning", "text": "hm"}, {"type": "text", "text": "I look."},
        {"type": "tool", "callID": "c1", "tool": "bash", "state": {"status": "running", "input": {"command": "ls"}}},
    ])  # fmt: skip
    polled.settle()
    assert polled.learned() == [], "the call runs"
    done = {"type": "tool", "callID": "c1", "tool": "bash",
            "state": {"status": "error", "input": {"command": "ls"}, "error": "no such directory"}}  # fmt: skip
    chats.db.execute("UPDATE part SET data = ? WHERE data LIKE '%callID%'", (json.dumps(done),))
    chats.part("s", name, {"type": "hologram"})
    chats.finish(name, finish="tool-calls")
    chats.answer("s", "It is not there.")
    polled.settle()
    assert polled.learned() == ["I look.", "It is not there."]
    _, record = polled.records()
    assert [m.role for m in record.messages] == ["user", "assistant", "tool", "assistant"]
    assert record.messages[0].content == "look" and record.messages[2].content == "no such directory"
    assert record.messages[1].tool_calls[0].function.arguments == {"command": "ls"}
    assert polled.counts() == {"dropped: a part that is too long": 1, "unknown: part: hologram": 1}
    assert asked < name


def test_a_session_that_openclaw_wrote_anew_is_read_again_and_nothing_is_doubled(tmp_path: Path) -> None:
    chats, polled = OpenClaw(of(tmp_path, "openclaw-agent.sqlite")), Polled(tmp_path / "agents")
    chats.begin("s")
    for n in range(4):
        chats.ask("s", f"q{n}")
        chats.answer("s", f"a{n}")
    polled.settle()
    rows = chats.db.execute("SELECT event_json FROM transcript_events ORDER BY seq").fetchall()
    chats.db.execute("DELETE FROM transcript_events")
    for (event,) in rows[:5]:
        chats.event("s", event)
    chats.last["s"] = json.loads(rows[4][0])["id"]
    chats.ask("s", "q9")
    chats.answer("s", "a9")
    polled.settle()
    assert polled.learned() == ["a0", "a1", "a2", "a3", "a9"]
    assert [e.replaces != "" for e in polled.of(ev.SourceDiscovered)] == [False, True]


def test_a_branch_that_was_left_in_openclaw_is_not_learned(tmp_path: Path) -> None:
    chats, polled = OpenClaw(of(tmp_path)), Polled(tmp_path / "agents")
    chats.begin("s", key="agent:main:main")
    chats.ask("s", "one?")
    chats.answer("s", "one.")
    place = chats.last["s"]
    chats.ask("s", "two?")
    chats.answer("s", "bad")
    polled.poll()
    chats.ask("s", "two, please?", after=place)
    polled.poll()
    chats.answer("s", "two.")
    polled.settle()
    assert polled.learned() == ["one.", "two."]
    assert polled.counts() == {"dropped: taken back by the user (branch)": 1}


# --- what is in them ------------------------------------------------------------------------------------------------


def test_ratings_of_open_webui(tmp_path: Path) -> None:
    ratings, polled = Webui(of(tmp_path, "webui.db")), Polled(tmp_path / "agents")
    ratings.rate("f1", "how?", "so", 1)
    ratings.rate("f2", "why?", "because", -1)
    ratings.rate("f3", "?", "!", 1, snapshot="{broken")
    polled.poll()
    assert polled.learned() == ["so"] and polled.counts() == {"dropped: rated bad": 1}
    assert [e.path.partition("#")[2] for e in polled.of(ev.SourceQuarantined)] == ["f3"]
    ratings.db.execute(
        "UPDATE feedback SET data = ?, updated_at = ? WHERE id = 'f2'", ('{"rating": 1}', int(ratings.tick()))
    )
    polled.restart()
    polled.settle()
    assert polled.learned() == ["so", "because"], "the person thought better of it"


def test_what_is_nearly_a_known_text_is_compared_as_in_files(tmp_path: Path) -> None:
    chats, polled = Hermes(of(tmp_path)), Polled(tmp_path / "agents", Terms(near_duplicate=0.7))
    chats.begin("s")
    chats.ask("s", "how?")
    chats.answer("s", "so")
    batch = polled.files.read_batch(polled.tree.scan()[0], {})
    assert batch is not None and batch.near_duplicate == 0.7


def test_secrets_and_rows_that_are_none(tmp_path: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5F6" * 3
    chats, polled = Hermes(of(tmp_path)), Polled(tmp_path / "agents")
    chats.begin("s", system_prompt=f"token {key}")
    chats.ask("s", f"use {key}")
    chats.say("s", "assistant", None, tool_calls="[{no JSON " + key)
    chats.say("s", "assistant", '\x00json:[{"type": "text", "text": "so"}]')
    chats.say("s", "session_meta", "x")
    chats.say("s", "oracle", "x")
    chats.say("s", "assistant", sqlite3.Binary(b"\xff\xfe").tobytes())  # type: ignore[arg-type]
    chats.say("s", "user", "y" * (2 << 20))
    polled.settle()
    polled.poll()
    assert polled.learned() == ["so"]
    whole = "".join(bytes(e.record).decode() for e in polled.of(ev.ExampleAccepted))
    kept = "".join(Path(e.kept).read_text() for e in polled.of(ev.SourceQuarantined))
    assert key not in whole + kept and whole.count("[redacted github-pat") == 2
    assert [e.line for e in polled.of(ev.SourceQuarantined)] == [2, 6, 7]
    assert polled.counts() == {
        "dropped: session_meta": 1, "unknown: message: oracle": 1, "redacted: github-pat": 2,
    }  # fmt: skip


# --- drift ----------------------------------------------------------------------------------------------------------


def test_a_migration_in_the_middle_is_survived(tmp_path: Path) -> None:
    from support.agent_databases import HERMES_2

    chats, polled = Hermes(of(tmp_path), HERMES_2), Polled(of(tmp_path))
    chats.begin("s")
    chats.ask("s", "one?")
    chats.answer("s", "one.")
    polled.poll()
    chats.db.execute("ALTER TABLE messages RENAME TO messages_old")
    with pytest.raises(SourceRefused, match="has not the tables"):
        polled.poll()
    chats.db.execute("ALTER TABLE messages_old RENAME TO messages")
    for column in ("reasoning_content TEXT", "active INTEGER NOT NULL DEFAULT 1", "compacted INTEGER DEFAULT 0"):
        chats.db.execute(f"ALTER TABLE messages ADD COLUMN {column}")
    chats.say("s", "user", "two?", reasoning_content=None)
    chats.say("s", "assistant", "two.", reasoning_content="hm")
    polled.settle()
    assert polled.learned() == ["one.", "two."] and not polled.of(ev.ExampleDuplicate)
    assert polled.records()[-1].messages[-1].reasoning_content == "hm"


def test_a_replaced_database_begins_anew_and_doubles_nothing(tmp_path: Path) -> None:
    chats, polled = Hermes(of(tmp_path)), Polled(tmp_path / "agents")
    chats.begin("s")
    for n in range(3):
        chats.ask("s", f"q{n}")
        chats.answer("s", f"a{n}")
    polled.settle()
    chats.db.execute(f"VACUUM INTO '{tmp_path / 'copy.db'}'")
    chats.close()
    for name in ("state.db-wal", "state.db-shm"):
        of(tmp_path, name).unlink(missing_ok=True)
    os.replace(tmp_path / "copy.db", of(tmp_path))
    copy = Hermes(of(tmp_path), "")
    copy.time = 2000
    copy.ask("s", "q9")
    copy.answer("s", "a9")
    polled.settle()
    assert polled.learned() == ["a0", "a1", "a2", "a9"] and len(polled.of(ev.ExampleDuplicate)) == 3
    assert len(polled.of(ev.SourceDiscovered)) == 2


def test_another_database_of_the_same_shape_at_the_same_place_is_read(tmp_path: Path) -> None:
    polled = Polled(tmp_path / "agents")
    for answer in ("one", "two"):
        chats = Hermes(tmp_path / f"{answer}.db", wal=False)
        chats.begin("s")
        chats.ask("s", "how?")
        chats.answer("s", answer)
        chats.close()
        of(tmp_path).parent.mkdir(exist_ok=True)
        os.replace(tmp_path / f"{answer}.db", of(tmp_path))
        polled.settle()
    assert polled.learned() == ["one", "two"]


@each_agent
def test_a_long_session_is_fetched_piece_by_piece_from_near_its_position(
    agent: Callable[[Path], Chats], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_database, "FETCH_BYTES", 4000)
    monkeypatch.setattr(foreign_database, "CONTEXT_BYTES", 1000)
    sizes: list[int] = []
    real = foreign_database.ForeignDatabase.read

    def read(*args: Any) -> RawSession:
        raw = real(*args)
        sizes.append(len(raw.records))
        return raw

    monkeypatch.setattr(foreign_database.ForeignDatabase, "read", read)
    chats, polled = agent(of(tmp_path)), Polled(tmp_path / "agents")
    chats.begin("s")
    for n in range(120):
        chats.ask("s", f"q{n} " + "x" * 100)
        chats.answer("s", f"a{n} " + "y" * 100)
    polled.settle()
    chats.ask("s", "last?")
    chats.answer("s", "a120 last")
    polled.settle()
    assert [turn.split()[0] for turn in polled.learned()] == [f"a{n}" for n in range(121)]
    assert max(sizes) < 100, "of 240 records"
    assert polled.of(ev.ExampleAccepted)[-1].line >= 242
    asked = [message.content for message in polled.records()[-1].messages if message.role == "user"]
    assert asked[-1] == "last?" and 1 < len(asked) < 60, "with what is near its position as context"
    assert not polled.of(ev.ExampleDuplicate)


def test_what_is_no_database_of_an_agent(tmp_path: Path) -> None:
    directory = tmp_path / "agents"
    directory.mkdir()
    (directory / "text.db").write_text("hello")
    (directory / "torn.db").write_bytes(b"SQLite format 3\x00" + b"\x00" * 90)
    (directory / "link.db").symlink_to(directory / "other.db")
    sqlite3.connect(directory / "other.db").execute("CREATE TABLE cats (name TEXT)").connection.close()
    polled = Polled(directory)
    other, torn = polled.tree.scan()
    assert (Path(other).name, Path(torn).name) == ("other.db", "torn.db")
    assert polled.files.read_batch(other, {}) is None, "in a directory it is nothing to speak of"
    with pytest.raises(SourceRefused, match="cannot be read: it is damaged"):
        polled.files.read_batch(torn, {})
    with pytest.raises(SourceRefused, match="has not the tables of an agent"):
        Polled(directory / "other.db").poll()


# --- before anything is learned -------------------------------------------------------------------------------------


def test_source_test_shows_databases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chats = Hermes(of(tmp_path))
    chats.begin("s", model="apollo")
    chats.ask("s", "<memory>Tabs!</memory> how?")
    chats.answer("s", "so")
    Webui(of(tmp_path, "webui.db")).rate("f1", "how?", "like this", 1)
    assert main(["ctl", "source", "test", str(of(tmp_path)), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["records"], len(said["examples"])) == ("hermes", 2, 1)
    assert said["examples"][0]["stripped"] == ["<memory>Tabs!</memory> "] and said["examples"][0]["trained"] == [1]
    assert said["examples"][0]["path"].endswith("state.db#s")
    assert main(["ctl", "source", "test", str(tmp_path / "agents"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["formats"] == {"hermes": 1, "open-webui-db": 1} and len(said["examples"]) == 2
    assert [s["kind"] for e in said["examples"] for s in e["signals"]] == ["rating"]
    assert main(["ctl", "source", "test", str(of(tmp_path)), "--format", "opencode"]) != 0
    assert "has not the tables" in capsys.readouterr().err
