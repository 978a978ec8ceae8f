"""What of a source cannot be read: one line that says what to do, an event, and on with the rest."""

import os
import socket
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs
from support.agent_databases import Hermes
from support.agent_logs import session
from support.other_user import open_place
from support.source_life import config_of, events_of, live, unprivileged, until

from apollod.adapters.sources import foreign_database, source_files
from apollod.core import events as ev
from apollod.core.rules.intake import policy
from apollod.core.state import State
from apollod.supervisor import sources
from apollod.supervisor.config import Config
from apollod.supervisor.sections import WatchSection


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sources, "RESCAN_S", 0.1)
    monkeypatch.setattr(sources, "INBOX_RESCAN_S", 0.1)
    with open_place() as found:
        (found / "logs").mkdir()
        yield found


def watching(place: Path, path: str = "logs", mode: str = "tail") -> Config:
    section = WatchSection(path=str(place / path), mode=mode, poll_s=0.1, settle_s=3600.0)  # type: ignore[arg-type]
    return config_of(place, section)


def turn(chats: Hermes, text: str) -> None:
    """A turn that is over, since the next one begins."""
    chats.ask("s", f"how {text}?")
    chats.answer("s", f"so {text}")
    chats.ask("s", "and then?")


def told(config: Config) -> list[str]:
    """What the journal says of obstructions, in order: `+NAME` and `-NAME`."""
    signs = {"source.blocked": "+", "source.unblocked": "-"}
    return [
        signs[event.kind] + Path(event.path).name
        for event in events_of(config)
        if isinstance(event, ev.SourceBlocked | ev.SourceUnblocked)
    ]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


def device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero, of which there is no end


def link(path: Path) -> None:
    elsewhere = path.parents[1] / "elsewhere.jsonl"
    elsewhere.write_bytes(session("e", ["e", "f"]))
    path.symlink_to(elsewhere)


def link_to_a_directory(path: Path) -> None:
    (path.parents[1] / "elsewhere").mkdir(exist_ok=True)
    path.symlink_to(path.parents[1] / "elsewhere")


ODD: list[Callable[[Path], None]] = [
    pipe,
    unix_socket,
    link,
    link_to_a_directory,
    *([device] if os.geteuid() == 0 else []),
]


def test_what_is_no_file_is_told_once_and_the_rest_is_read(place: Path) -> None:
    config = watching(place)
    directories = place / "logs", config.inbox_dir
    odd = [directory / f"{make.__name__}.jsonl" for directory in directories for make in ODD]
    for path, make in zip(odd, ODD * 2, strict=True):
        make(path)
    for directory in directories:
        (directory / "ok.jsonl").write_bytes(session(directory.name, [f"a {directory}", "b"]))

    async def during(state: State) -> None:
        await until(lambda: state.intake.counts.accepted == 2 and len(state.intake.blocked) == len(odd))
        await anyio.sleep(0.3)  # more looks
        for path in odd:
            path.unlink()
        await until(lambda: not state.intake.blocked)

    with capture_logs() as lines:
        live(config, during)
    names = [path.name for path in odd]
    assert sorted(told(config)) == sorted([f"+{name}" for name in names] + [f"-{name}" for name in names])
    said = {line["path"]: line for line in lines if line["event"] == "source.blocked"}
    assert sorted(said) == sorted(map(str, odd))
    assert all(line["log_level"] == "warning" and line["reason"] and line["hint"] for line in said.values())
    assert {Path(e.path).name for e in events_of(config) if isinstance(e, ev.SourceDiscovered)} == {"ok.jsonl"}


def test_a_link_to_what_is_read_anyway_is_no_news(place: Path) -> None:
    (place / "logs" / "s.jsonl").write_bytes(session("s", ["a", "b"]))
    (place / "logs" / "latest.jsonl").symlink_to("s.jsonl")
    (place / "logs" / "notes.txt").symlink_to("/etc/hostname")

    async def during(state: State) -> None:
        await until(lambda: state.intake.counts.accepted == 1)
        await anyio.sleep(0.2)

    config = watching(place)
    live(config, during)
    assert told(config) == []


@pytest.mark.parametrize("mode", ["tail", "poll"])
def test_what_may_not_be_read_is_told_with_whom_to_ask_and_read_when_it_may(place: Path, mode: str) -> None:
    for directory in (place, place / "logs"):
        os.chmod(directory, 0o777)
    with unprivileged(place):
        for name in ("open", "below"):
            (place / "logs" / name).mkdir()
        files = [place / "logs" / name / "s" for name in ("open", "below")]
        for n, file in enumerate(files):
            if mode == "tail":
                files[n] = file.with_suffix(".jsonl")
                files[n].write_bytes(session(str(n), [f"a{n}", f"b{n}"]))
            else:
                files[n] = file.with_suffix(".db")
                chats = Hermes(files[n])
                chats.begin("s")
                turn(chats, str(n))
                chats.db.close()
        config = watching(place, mode=mode)
        files[0].chmod(0)
        files[1].parent.chmod(0)

        async def during(state: State) -> None:
            await until(lambda: len(state.intake.blocked) == 2)
            reasons = {Path(path).name: one for path, one in state.intake.blocked.items()}
            assert reasons.keys() == {files[0].name, "below"}
            for one in reasons.values():
                assert "may not be used" in one.reason and "chmod" in one.hint and one.mode == mode
            files[0].chmod(0o600)
            files[1].parent.chmod(0o700)
            await until(lambda: not state.intake.blocked and state.intake.counts.accepted == 2)

        if mode == "poll":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("apollod.adapters.sources.watched_places.SEARCH_S", 0.1)
                live(config, during)
        else:
            live(config, during)
        assert sorted(told(config)) == ["+below", f"+{files[0].name}", "-below", f"-{files[0].name}"]


@pytest.mark.parametrize("path", ["logs", "state/inbox", "agent.db"])
def test_a_place_that_vanishes_is_told_and_read_again_when_it_is_there(place: Path, path: str) -> None:
    config = watching(place, "agent.db", "poll") if path == "agent.db" else watching(place)
    where, away = place / path, place / "away"
    if path == "agent.db":
        chats = Hermes(where, wal=False)
        chats.begin("s")
        turn(chats, "one")
        chats.db.close()
    else:
        (where / "s.jsonl").write_bytes(session("s", ["a", "b"]))

    async def during(state: State) -> None:
        await until(lambda: state.intake.counts.accepted == 1)
        where.rename(away)
        await until(lambda: str(where) in state.intake.blocked)
        assert state.intake.blocked[str(where)].reason == "it is not there"
        away.rename(where)
        await until(lambda: not state.intake.blocked)

    state = live(config, during)
    assert told(config) == [f"+{where.name}", f"-{where.name}"] and state.intake.counts.accepted == 1


def test_a_restart_says_nothing_again_and_what_is_watched_no_longer_is_no_obstacle(place: Path) -> None:
    config = watching(place, "gone")

    async def blocked(state: State) -> None:
        await until(lambda: bool(state.intake.blocked))
        await anyio.sleep(0.2)

    async def free(state: State) -> None:
        await until(lambda: not state.intake.blocked)

    live(config, blocked)
    live(config, blocked)
    assert told(config) == ["+gone"]
    live(watching(place), free)
    assert told(config) == ["+gone", "-gone"]


def test_a_database_that_stays_locked_is_told_and_one_that_is_locked_for_a_moment_is_not(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_database, "BUSY_S", 0.01)
    chats = Hermes(place / "agent.db", wal=False)
    chats.begin("s")
    turn(chats, "one")
    config = watching(place, "agent.db", "poll")

    async def for_a_moment(state: State) -> None:
        await anyio.sleep(0.5)
        assert not state.intake.blocked and not state.intake.sources
        chats.db.execute("COMMIT")
        await until(lambda: state.intake.counts.accepted == 1)

    async def for_long(state: State) -> None:
        await until(lambda: str(chats.path) in state.intake.blocked)
        (one,) = state.intake.blocked.values()
        assert "another program keeps it locked" in one.reason and one.hint
        chats.db.execute("COMMIT")
        await until(lambda: state.intake.counts.accepted == 2 and not state.intake.blocked)

    chats.db.execute("BEGIN EXCLUSIVE")
    live(config, for_a_moment)
    assert told(config) == []
    monkeypatch.setattr(policy, "PASSING_S", 0.3)
    turn(chats, "two")
    chats.db.execute("BEGIN EXCLUSIVE")
    live(config, for_long)
    assert told(config) == ["+agent.db", "-agent.db"]


def test_what_is_no_database_is_told_and_one_that_was_just_made_is_waited_for(place: Path) -> None:
    (place / "agent.db").write_text("no database")

    async def during(state: State) -> None:
        await until(lambda: bool(state.intake.blocked))
        assert state.intake.blocked[str(place / "agent.db")].reason == "it is no SQLite database"
        (place / "agent.db").write_bytes(b"")
        await until(lambda: not state.intake.blocked)
        with closing(sqlite3.connect(place / "agent.db")) as db:
            db.execute("CREATE TABLE t (a)")
        await until(lambda: "has not the tables" in "".join(one.reason for one in state.intake.blocked.values()))

    config = watching(place, "agent.db", "auto")
    live(config, during)


def test_a_last_line_without_an_end_is_told_and_taken_when_it_has_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "UNENDED_S", 0.3)
    config = watching(place)
    half = config.inbox_dir / "half.jsonl"
    half.write_bytes(b'{"text": "one"}\n{"text": "two"}')
    (config.inbox_dir / "none.jsonl").write_bytes(b'{"text": "three"}')

    async def during(state: State) -> None:
        await until(lambda: len(state.intake.blocked) == 2)
        assert state.intake.counts.accepted == 1
        assert all("newline" in one.hint for one in state.intake.blocked.values())
        with half.open("ab") as file:
            file.write(b"\n")
        await until(lambda: state.intake.counts.accepted == 2 and len(state.intake.blocked) == 1)

    state = live(config, during)
    assert state.intake.counts.rejected == 0


def test_text_in_another_encoding_is_told_as_a_whole_with_the_way_to_convert_it(place: Path) -> None:
    """As Windows writes it: line by line it would be a quarantine full of halves of characters."""
    config = watching(place)
    files = [place / "logs" / "s.jsonl", config.inbox_dir / "a.jsonl", config.inbox_dir / "b.jsonl"]
    texts = [session("s", ["a", "b"]), b'{"text": "one"}\n', b'{"text": "two"}\n']
    for file, text, encoding in zip(files, texts, ("utf-16", "utf-16", "utf-8-sig"), strict=True):
        file.write_text(text.decode(), encoding=encoding)

    async def during(state: State) -> None:
        await until(lambda: len(state.intake.blocked) == 2 and state.intake.counts.accepted == 1)
        assert all("UTF-16" in one.reason and "iconv" in one.hint for one in state.intake.blocked.values())
        for file, text in zip(files, texts, strict=True):
            file.write_bytes(text)
        await until(lambda: not state.intake.blocked and state.intake.counts.accepted == 3)

    assert live(config, during).intake.counts.rejected == 0


def test_a_bad_line_that_begins_like_another_encoding_costs_no_other_line(place: Path) -> None:
    config = watching(place)
    (config.inbox_dir / "a.jsonl").write_bytes(b'\xff\xfe{"text": "x"}\n{"text": "one"}\n')

    async def during(state: State) -> None:
        await until(lambda: state.intake.counts.accepted == 1)
        assert not state.intake.blocked

    assert live(config, during).intake.counts.rejected == 1


# --- a loop -------------------------------------------------------------------------------------------------------


def test_the_log_of_the_daemon_itself_is_not_read(place: Path) -> None:
    """It would grow with each line of it that is taken."""
    config = watching(place)
    log = place / "logs" / "apollod.jsonl"
    log.write_bytes(session("s", ["a", "b"]))

    async def during(state: State) -> None:
        await until(lambda: str(log) in state.intake.blocked)
        assert "its own log" in state.intake.blocked[str(log)].reason

    with log.open("ab") as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            state = live(config, during)
        finally:
            os.dup2(before, 2)
            os.close(before)
    assert not state.intake.sources and told(config) == ["+apollod.jsonl"]


def test_the_state_directory_below_a_watched_one_is_left_out_and_told(place: Path) -> None:
    config = watching(place, ".", "auto")
    (config.state_dir / "own.jsonl").write_bytes(session("s", ["a", "b"]))
    (place / "logs" / "s.jsonl").write_bytes(session("t", ["c", "d"]))

    async def during(state: State) -> None:
        await until(lambda: state.intake.counts.accepted == 1 and bool(state.intake.blocked))

    live(config, during)
    assert told(config) == ["+state"]
    assert [e.path for e in events_of(config) if isinstance(e, ev.SourceDiscovered)] == [
        str(place / "logs" / "s.jsonl")
    ]


# --- many files ---------------------------------------------------------------------------------------------------


def test_a_backlog_in_one_file_does_not_keep_the_others_waiting(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "TURNS", 1)
    config = watching(place)
    lines = [b'{"text": "%d"}\n' % n for n in range(4 * source_files.BATCH_LINES_MAX)]
    (config.inbox_dir / "long.jsonl").write_bytes(b"".join(lines))
    (config.inbox_dir / "short.jsonl").write_bytes(b'{"text": "short"}\n')

    async def during(state: State) -> None:
        await until(lambda: state.intake.counts.accepted == len(lines) + 1)

    live(config, during)
    order = [Path(e.path).stem for e in events_of(config) if isinstance(e, ev.SourceConsumed)]
    assert order[:3] == ["long", "short", "long"] and len(order) > 4
