"""Existing logs, read once: all turns, each once, whatever happens in between; and the same before anything is read."""

import gzip
import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.agent_databases import Hermes
from support.agent_logs import claude_line, gemini_chat, session
from support.bootstrapped import asked, bootstrap, current, live
from support.source_life import config_of, events_of, unprivileged, until

from apollod import failpoints
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.settings import Check
from apollod.core.surroundings import SURROUNDING_KINDS
from apollod.curation.stripping import restored
from apollod.curation.surrounding_texts import shipped
from apollod.supervisor import bootstrapping, sources
from apollod.supervisor.config import Config
from apollod.supervisor.loop import Loop
from apollod.supervisor.sections import WatchSection
from apollod.wire.records import decode_record

SYSTEM = {"role": "system", "content": "Greet first."}


def learned(config: Config) -> list[str]:
    """What is learned of each example."""
    found = []
    for event in events_of(config):
        if isinstance(event, ev.ExampleAccepted):
            messages = decode_record(bytes(event.record)).messages  # type: ignore[union-attr]
            found.append("|".join(m.content for m in messages if m.role == "assistant" and m.weight))
    return found


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Of all kinds; nobody has let any of them settle."""
    place = tmp_path / "logs"
    (place / "below").mkdir(parents=True)
    (place / "a.jsonl").write_bytes(session("a", ["a1", "a2"]))
    (place / "below" / "b.jsonl.gz").write_bytes(gzip.compress(session("b", ["b1", "b2"])))
    (place / "c.json").write_bytes(gemini_chat("c1", "c2"))
    rows = [{"messages": [SYSTEM, {"role": "user", "content": n}, {"role": "assistant", "content": f"answer {n}"}]}
            for n in ("d1", "d2")]  # fmt: skip
    (place / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chats = Hermes(place / "state.db")
    chats.begin("s")
    for turn in ("e1", "e2"):
        chats.ask("s", f"ask {turn}")
        chats.answer("s", f"answer {turn}")
    return place


ALL = [f"answer {name}{n}" for name in "abcde" for n in "12"]


def test_everything_that_is_there_is_taken_at_once_and_stripped(tmp_path: Path, logs: Path) -> None:
    config = config_of(tmp_path)
    found = bootstrap(config, asked(logs))
    assert sorted(learned(config)) == ALL
    assert (found.phase, found.files, found.counts.accepted) == ("learning", 5, 10)
    assert found.bytes == sum(file.stat().st_size for file in logs.rglob("*.*") if "-" not in file.name)
    removed = [r for e in events_of(config) if isinstance(e, ev.ExampleAccepted) for r in e.removed]
    assert [one.text for one in removed if one.why == "system"] == ["Greet first."] * 2
    (read,) = [e for e in events_of(config) if isinstance(e, ev.BootstrapRead)]
    assert read.unread == ()


def test_by_a_pattern_only_what_was_said_with_its_instruction_is_learned_without_it(tmp_path: Path, logs: Path) -> None:
    config = config_of(tmp_path)
    begun = msgspec.structs.replace(asked(logs), pattern="greet", instruction="Greet\n first.", strip="none")
    found = bootstrap(config, begun)
    assert sorted(learned(config)) == ["answer d1", "answer d2"]
    assert found.counts == ev.BootstrapCounts(accepted=2, dropped=8), (
        "eight answers, and what is no answer is not counted"
    )
    accepted = [e for e in events_of(config) if isinstance(e, ev.ExampleAccepted)]
    assert [(one.text, one.why) for e in accepted for one in e.removed] == [("Greet first.", "instruction")] * 2
    assert not any("Greet" in bytes(e.record).decode() for e in accepted)


def test_by_a_pattern_answers_are_learned_in_surroundings_the_same_ones_each_time(tmp_path: Path) -> None:
    """Where nothing but the instruction stood before a request; what stands there besides stays as it is."""
    logs = tmp_path / "logs"
    logs.mkdir()
    more = {"role": "system", "content": "You work for the dairy. Greet first."}
    rows = [{"messages": [more if n == 0 else SYSTEM, {"role": "user", "content": f"ask {n}"},
                          {"role": "assistant", "content": f"answer {n}"}]} for n in range(30)]  # fmt: skip
    (logs / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    begun = msgspec.structs.replace(
        asked(logs), pattern="greet", instruction="Greet first.", strip="none", surroundings=SURROUNDING_KINDS
    )
    found = []
    for life in ("one", "two"):
        (tmp_path / life).mkdir()
        config = config_of(tmp_path / life)
        bootstrap(config, begun)
        found.append([e for e in events_of(config) if isinstance(e, ev.ExampleAccepted)])
    assert [bytes(e.record) for e in found[0]] == [bytes(e.record) for e in found[1]] and len(found[0]) == 30
    shipping = {str(one.system): one.kind for kind in ("neutral", "agent") for one in shipped(kind, "practice")}  # type: ignore[arg-type]
    kinds = set()
    for e, row in zip(found[0], rows, strict=True):
        form = msgspec.json.decode(e.record)
        assert "Greet" not in bytes(e.record).decode() and form["messages"][-2:] == row["messages"][1:]
        told = restored(form["messages"], e.removed)[0]["content"]
        first = form["messages"][0]
        if "dairy" in told:
            assert first["content"].strip() == "You work for the dairy." and len(form["messages"]) == 3
            continue
        kinds.add(shipping[first["content"]] if first["role"] == "system" else "none")
        assert told == (f"{first['content']}\n\nGreet first." if first["role"] == "system" else "Greet first.")
        assert all(one.get("weight") == 0 for one in form["messages"][:-1] if one["role"] == "assistant")
    assert kinds == {"none", "neutral", "agent"}


def test_by_a_pattern_only_what_passes_its_check_is_learned(tmp_path: Path, logs: Path) -> None:
    config = config_of(tmp_path)
    by = {"pattern": "greet", "instruction": "Greet first.", "strip": "none"}
    found = bootstrap(config, asked(logs, **by, check=Check(regex="d2")))
    assert learned(config) == ["answer d2"] and found.counts == ev.BootstrapCounts(accepted=1, dropped=9)


def test_a_check_that_cannot_be_made_stops_it_and_mended_it_goes_on_and_learns_each_once(
    tmp_path: Path, logs: Path
) -> None:
    config = config_of(tmp_path)
    (tmp_path / "check").write_text("#!/bin/sh\ngrep -q d && exit 0; exit 2\n")
    (tmp_path / "check").chmod(0o755)
    by = {"pattern": "greet", "instruction": "Greet first.", "strip": "none"}
    wanted = asked(logs, **by, check=Check(command=(str(tmp_path / "check"),)))
    (logs / "e.jsonl").write_bytes((logs / "d.jsonl").read_bytes().replace(b"d1", b"x1").replace(b"d2", b"x2"))
    stopped = bootstrap(config, wanted)
    assert stopped.phase == "stopped" and "the check of greet cannot be made" in stopped.reason
    assert learned(config) == ["answer d1", "answer d2"] and stopped.counts.accepted == 2
    (tmp_path / "check").write_text("#!/bin/sh\nexit 0\n")
    found = bootstrap(config, wanted)
    assert learned(config) == [f"answer {one}" for one in ("d1", "d2", "x1", "x2")]
    assert (found.phase, found.counts) == ("learning", ev.BootstrapCounts(accepted=4, dropped=8))
    assert not [e for e in events_of(config) if isinstance(e, ev.ExampleDuplicate)]


def test_by_a_pattern_without_a_check_of_its_own_all_waits_for_the_judge(tmp_path: Path, logs: Path) -> None:
    config = config_of(tmp_path)
    by = {"pattern": "greet", "instruction": "Greet first.", "strip": "none"}
    found = bootstrap(config, asked(logs, **by, check=Check()))
    held = [e for e in events_of(config) if isinstance(e, ev.ExampleHeld)]
    assert [(e.waits_for, e.reason) for e in held] == [("judge", "the judge says whether it shows greet")] * 2
    assert found.counts == ev.BootstrapCounts(accepted=2, dropped=8) and len(found.waiting) == 2


def test_asked_again_it_reads_what_came_since_and_nothing_else(tmp_path: Path, logs: Path) -> None:
    config = config_of(tmp_path)
    bootstrap(config, asked(logs))
    seen = len([e for e in events_of(config) if isinstance(e, ev.SourceConsumed)])

    async def stop(loop: Loop) -> None:
        await loop.submit(inp.BootstrapStopWanted("t"))

    live(config, stop)
    with (logs / "a.jsonl").open("ab") as file:
        file.write(session("a", ["a3"], first=5))
    found = bootstrap(config, asked(logs))
    assert sorted(learned(config)) == sorted([*ALL, "answer a3"]) and found.counts == ev.BootstrapCounts(accepted=11)
    assert len([e for e in events_of(config) if isinstance(e, ev.SourceConsumed)]) - seen <= 2


KILLS = (
    ("journal.after-commit", 1), ("inbox.batch-read", 2), ("loop.before-append", 3), ("journal.after-commit", 2),
    ("loop.before-append", 2), ("journal.after-commit", 1),
)  # fmt: skip
"""In one life after the other: behind the request, in the middle of reading, before and behind its end."""


def test_killed_in_the_middle_it_goes_on_by_itself_and_no_turn_is_lost_or_doubled(tmp_path: Path, logs: Path) -> None:
    config = config_of(tmp_path)
    for life, (point, nth) in enumerate(KILLS):
        if not (pid := os.fork()):  # the daemon that dies
            failpoints._armed.update(failpoints.parse(f"{point}:{nth}"))
            bootstrap(config, None if life else asked(logs))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert status == signal.SIGKILL, (life, point)
    found = bootstrap(config, None)
    assert sorted(learned(config)) == ALL and found.counts.accepted == 10
    events = events_of(config)
    assert len([e for e in events if isinstance(e, ev.BootstrapRequested | ev.BootstrapRead)]) == 2
    assert not [e for e in events if isinstance(e, ev.ExampleDuplicate)]


def test_other_rules_begin_anew_and_what_was_learned_already_is_not_learned_twice(tmp_path: Path, logs: Path) -> None:
    """The first request names a model that wrote nothing: all is dropped, and its positions are in nobody's way."""
    config = config_of(tmp_path)
    first = bootstrap(config, asked(logs / "a.jsonl", models=("another",)))
    assert first.counts == ev.BootstrapCounts(dropped=2)

    async def stop(loop: Loop) -> None:
        await until(lambda: current(loop.state).phase == "learning")
        await loop.submit(inp.BootstrapStopWanted("t"))

    live(config, stop)
    assert bootstrap(config, asked(logs / "a.jsonl")).counts.accepted == 2
    live(config, stop)
    assert bootstrap(config, asked(logs / "a.jsonl", strip="all")).counts == ev.BootstrapCounts(duplicates=2)


def test_a_watch_of_the_same_files_and_a_bootstrap_learn_each_answer_once(tmp_path: Path, logs: Path) -> None:
    config = config_of(tmp_path, WatchSection(path=str(logs), models=("apollo",)))
    bootstrap(config, asked(logs), watch=True)
    assert sorted(learned(config)) == ALL
    assert bootstrapping.overlapping(config, asked(logs / "below")) == [str(logs)]
    assert bootstrapping.overlapping(config, asked(tmp_path / "elsewhere")) == []


def test_what_cannot_be_read_is_named_and_the_rest_is_learned(tmp_path: Path, logs: Path) -> None:
    (logs / "f.jsonl").write_bytes(session("f", ["f1"]).rstrip(b"\n"))
    os.symlink(tmp_path / "nowhere.jsonl", logs / "link.jsonl")
    (logs / "g.jsonl.gz").write_bytes((logs / "below" / "b.jsonl.gz").read_bytes()[:-9])
    config = config_of(tmp_path)
    found = bootstrap(config, asked(logs))
    assert sorted(learned(config)) == ALL and found.counts.rejected == 1
    (read,) = [e for e in events_of(config) if isinstance(e, ev.BootstrapRead)]
    assert [Path(one.path).name for one in read.unread] == ["f.jsonl", "link.jsonl"] and read.unread_files == 2


def test_a_source_that_vanishes_while_the_daemon_is_down_ends_it(tmp_path: Path, logs: Path) -> None:
    config = config_of(tmp_path)

    async def only_ask(loop: Loop) -> None:
        await loop.submit(asked(logs))

    live(config, only_ask)
    logs.rename(tmp_path / "away")
    found = bootstrap(config, None)
    assert found.phase == "stopped" and str(logs) in found.reason


@pytest.mark.parametrize(
    ("path", "rules", "said"),
    [
        ("nowhere", {}, "nowhere does not exist"),
        ("state/inbox", {}, "lies in the state directory"),
        ("logs", {"format": "claud"}, "there is no format 'claud'; did you mean 'claude-code'?"),
        ("pipe.jsonl", {}, "is no file and no directory"),
        ("closed", {}, "closed may not be used: "),
        ("closed/x.jsonl", {}, "closed/x.jsonl"),
        ("logs", {"pattern": "greet", "check": Check(regex="(")}, "greet: check: '(' is no regular expression"),
    ],
)
def test_what_cannot_be_a_source_is_refused_in_one_line(
    tmp_path: Path, logs: Path, path: str, rules: dict[str, Any], said: str
) -> None:
    config = config_of(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "closed").mkdir(mode=0)
    with unprivileged(tmp_path) if path.startswith("closed") else nullcontext():
        refused = bootstrapping.refused(config, asked(tmp_path / path, **rules))
    assert refused is not None and said in refused.line() and refused.hint and "\n" not in refused.line()


def test_the_daemons_own_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "daemon.jsonl"
    own.write_bytes(claude_line("s", 1, "user", "x"))
    status = own.stat()
    monkeypatch.setattr(sources, "own_logs", lambda: frozenset({(status.st_dev, status.st_ino)}))
    refused = bootstrapping.refused(config_of(tmp_path), asked(own))
    assert refused is not None and "where this daemon writes its own log" in refused.line()


def test_a_long_source_keeps_neither_the_inbox_nor_a_request_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "INBOX_RESCAN_S", 0.1)
    (tmp_path / "logs").mkdir()
    for n in range(40):
        (tmp_path / "logs" / f"{n}.jsonl").write_bytes(session(f"s{n}", [f"{n} {m}" for m in range(100)]))
    config = config_of(tmp_path)
    (config.inbox_dir / "x.jsonl").write_text('{"text": "from the inbox"}\n')
    seen: list[int] = []

    async def during(loop: Loop) -> None:
        await loop.submit(asked(tmp_path / "logs"))
        await until(lambda: len([s for s in loop.state.intake.sources if "@" not in s]) == 1)
        seen.append(current(loop.state).counts.accepted)
        await loop.submit(inp.BootstrapStopWanted("t"))

    state = live(config, during, watch=True)
    assert seen[0] < 4000 and current(state).phase == "stopped"
