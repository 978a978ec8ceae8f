"""`apollod ctl why`, and `journal verify --expect`: what a person types, on a journal without a daemon."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.journals import AT, BASE, STORY, TAKEN_BACK, TWIN, A, B, C, D, E, F, completed, dream_of, write

from apollod.adapters.journal import journal_reader
from apollod.cli.main import main
from apollod.core import events as ev


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("why") / "journal.db", STORY)


def why(path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["ctl", "why", what, "--json", "--file", str(path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.pop("schema_version") == 1
    return answer


def test_from_a_step_to_its_line_and_its_weights(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = why(path, "1", capsys)
    step, example = answer["step"], answer["example"]
    assert (step["state"], step["lr"], step["loss"], step["tokens"], step["targets"]) == ("completed", 1e-5, 1.5, 9, 4)
    assert step["before"] == {"version": 0, "fingerprint": BASE}
    assert step["after"] == {"version": 1, "fingerprint": f"{1:016x}"}
    assert (step["checkpoint"]["path"], step["checkpoint"]["state"]) == ("/c/1", "removed")
    assert (example["id"], example["path"], example["line"], example["record"]) == (
        A,
        "/in/a.jsonl",
        1,
        {"text": "line 1"},
    )
    assert (example["tokens"], example["targets"], example["cut"], example["duplicates"]) == (9, 4, 0, 1)


def test_from_a_step_to_session_and_records_and_to_what_was_stripped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = ev.Origin(
        session="s1", agent="claude-code", version="2.1", records=("r1", "r2"), responses=("m1",), model="apollo",
        first_line=3,
    )  # fmt: skip
    removed = (ev.Removed(0, -1, "Be\nkind.", "system", "system"), ev.Removed(1, 0, "<memory>x</memory>", "memory"))
    of_a_log = ev.ExampleAccepted(A, msgspec.Raw(b'{"text":"a"}'), "src", 9, origin=origin, removed=removed)
    given = ev.ExampleAccepted(B, msgspec.Raw(b'{"text":"b"}'), "http", 1)
    begun, done = completed(1, 0, A)
    together = {"examples": (A, B), "digests": ("d", "d")}
    story = [
        *STORY[:4], of_a_log, given, msgspec.structs.replace(begun, **together),
        msgspec.structs.replace(done, examples=(A, B)),
    ]  # fmt: skip
    path = write(tmp_path / "journal.db", story)
    answer = why(path, "1", capsys)
    assert answer["example"]["origin"] == json.loads(msgspec.json.encode(origin))
    assert answer["example"]["removed"] == json.loads(msgspec.json.encode(removed))
    assert answer["step"]["sources"] == [
        {"example": A, "path": "/in/a.jsonl", "line": 9, "origin": json.loads(msgspec.json.encode(origin))},
        {"example": B, "path": "http", "line": 1, "origin": {}},
    ]
    assert main(["ctl", "why", "1", "--file", str(path)]) == 0
    out = capsys.readouterr().out
    from_log = "session s1, claude-code 2.1, answers of apollo, records r1 r2, responses m1"
    for words in (
        "source      /in/a.jsonl:3-9   bulk", f"origin      {from_log}\n", f"            {B}   http:1\n",
        f"            {A}   /in/a.jsonl:3-9   {from_log}\n",
        "removed     system (1x, 8 characters): Be kind.; memory (1x, 18 characters): <memory>x</memory>\n",
    ):  # fmt: skip
        assert words in out


def test_from_a_step_through_its_example_to_signal_dream_and_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dream_of(write(tmp_path / "journal.db", STORY), A)
    evidence = why(path, "1", capsys)["example"]["evidence"]
    assert [e["kind"] for e in evidence] == [
        "signal.flagged",
        "dream.requested",
        "dream.imagined",
        "verdict.given",
        "dream.settled",
    ]
    assert evidence[0]["body"]["signal"] == "correction" and evidence[3]["body"] == {
        "dream": "d1", "verdict": "good", "by": "judge", "reason": "kind",
    }  # fmt: skip
    assert why(path, "4", capsys)["example"]["evidence"] == []
    assert main(["ctl", "why", A, "--file", str(path)]) == 0
    assert "because     verdict.given   dream=d1 verdict=good by=judge reason=kind" in capsys.readouterr().out
    rows = journal_reader.query(path, "SELECT dream, state, example FROM dreams ORDER BY seq").rows
    assert rows == [("d1", "settled", A), ("d2", "requested", None)]
    assert journal_reader.query(path, 'SELECT dream, verdict, "by", reason FROM verdicts').rows == [
        ("d1", "good", "judge", "kind")
    ]
    sql = 'SELECT number, why, step, metric, value, items, "drop", margin, alarmed, share FROM quality ORDER BY metric'
    assert journal_reader.query(path, sql).rows == [
        (3, "steps", 4, "facts.passed", 0.5, 3, 0.5, 0.05, 1, 0.5),
        (3, "steps", 4, "repetition", 0.25, 1, None, None, 0, 0.5),
    ]


@pytest.mark.parametrize(
    ("example", "state", "reason", "step"),
    [
        (A, "trained", "", 1),
        (B, "rejected", "no target tokens", None),
        (C, "skipped", "loss is not finite", 2),
        (D, "held", "out of memory", 3),
        (E, "trained", "", 4),
        (F, "pending", "", None),
    ],
)
def test_what_became_of_an_example(
    path: Path, capsys: pytest.CaptureFixture[str], example: str, state: str, reason: str, step: int | None
) -> None:
    answer = why(path, example, capsys)
    told = answer["example"]
    assert (told["state"], told["reason"], told["step"]) == (state, reason, step)
    assert (answer["step"] and answer["step"]["step"]) == step
    ((view,),) = journal_reader.query(path, f"SELECT state FROM examples WHERE id = '{example}'").rows
    assert view == state
    assert why(path, example[:30].upper(), capsys) == answer


def test_examples_that_were_learned_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of them could not be: then one by one."""
    begun, done = completed(1, 0, A)
    together = {"examples": (A, B, C)}
    story = [
        *STORY[:12], msgspec.structs.replace(begun, **together, digests=("d", "d", "d")),
        msgspec.structs.replace(done, **together),
        ev.StepStarted(step=2, parent=1, example=D, digest="d", lr=1e-5, window=1, examples=(D, E), digests=("d", "d")),
        ev.StepFailed(step=2, example=D, reason="out of memory", attempts=1, examples=(D, E), apart=True),
        *completed(3, 1, D),
    ]  # fmt: skip
    path = write(tmp_path / "journal.db", story)
    answer = why(path, C, capsys)
    assert (answer["example"]["state"], answer["example"]["step"], answer["example"]["tier"]) == ("trained", 1, "bulk")
    assert answer["step"]["examples"] == [A, B, C] and answer["step"]["example"] == A
    assert why(path, "3", capsys)["step"]["examples"] == [D]
    assert [why(path, id_, capsys)["example"]["state"] for id_ in (D, E)] == ["trained", "pending"]
    assert journal_reader.query(path, "SELECT state, step FROM examples WHERE source = 'src' ORDER BY seq").rows == [
        ("trained", 1), ("trained", 1), ("trained", 1), ("trained", 3), ("pending", None), ("pending", None),
    ]  # fmt: skip
    assert main(["ctl", "why", "1", "--file", str(path)]) == 0
    assert f"3 examples: {A} {B} {C}" in capsys.readouterr().out


def test_steps_that_made_no_weights(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = why(path, "3", capsys)["step"]
    assert (failed["state"], failed["after"], failed["checkpoint"], failed["before"]["version"]) == (
        "failed",
        None,
        None,
        2,
    )
    running = why(path, "5", capsys)["step"]
    assert (running["state"], running["after"], running["loss"]) == ("running", None, None)


def test_the_first_checkpoint_with_a_step_in_it(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert why(path, "2", capsys)["step"]["checkpoint"]["path"] == "/c/4", "the one at step 2 failed"
    branched = [
        *STORY[:12],
        *completed(1, 0, A),
        *completed(2, 1, C),
        *completed(3, 1, D),
        ev.CheckpointCommitted(step=3, path="/c/3", fingerprint="f", bytes=7, seconds=0.5),
    ]
    other = write(tmp_path / "journal.db", branched)
    assert why(other, "2", capsys)["step"]["checkpoint"] is None, "step 3 was built on step 1"
    assert why(other, "1", capsys)["step"]["checkpoint"]["path"] == "/c/3"


def test_of_two_checkpoints_of_a_step_the_one_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a rollback a step that is served again gets another checkpoint; the first one made room."""

    def written(path: str) -> ev.CheckpointCommitted:
        return ev.CheckpointCommitted(step=2, path=path, fingerprint=f"{2:016x}", bytes=7, seconds=0.5)

    story = [
        *STORY[:12], *completed(1, 0, A), *completed(2, 1, C), written("/c/2"), *completed(3, 2, D),
        ev.CheckpointCommitted(step=3, path="/c/3", fingerprint="f", bytes=7, seconds=0.5),
        ev.CheckpointRemoved(step=2, path="/c/2"),
    ]  # fmt: skip
    one = write(tmp_path / "one.db", story)
    assert why(one, "2", capsys)["step"]["checkpoint"]["state"] == "removed", (
        "the first one with the step in it, gone or not"
    )
    for again in ("/c/2", "/c/2-1"):
        two = write(tmp_path / f"{len(again)}.db", [*story, written(again)])
        checkpoint = why(two, "2", capsys)["step"]["checkpoint"]
        assert (checkpoint["step"], checkpoint["path"], checkpoint["state"]) == (2, again, "committed")


def test_words_for_people(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ctl", "why", "4", "--file", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("step        4   completed")
    assert f"version 2 ({2:016x}) -> version 4 ({4:016x})" in out and "/in/a.jsonl:5" in out and "step 4 /c/4" in out
    for what, words in (
        (B, "rejected: no target tokens"),
        (TWIN, "/home/me/more.jsonl:1"),
        ("2", "nothing was written"),
        (F, "pending"),
    ):
        assert main(["ctl", "why", what, "--file", str(path)]) == 0
        assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("99", 1, "no step 99: the last one is 5"),
        ("0", 1, "untrained"),
        ("123456", 1, "no step 123456: the last one is 5"),
        ("dddddd123", 1, "no example begins with dddddd123: the journal knows 7 examples"),
        (A[:7], 1, "several examples begin with"),
        ("abc", 2, "neither a step nor an example"),
        ("'; DROP TABLE events", 2, "neither a step nor an example"),
        (A + "0", 2, "neither"),
        ("-", 2, "neither"),
    ],
)
def test_what_is_unknown_says_what_there_is(
    path: Path, capsys: pytest.CaptureFixture[str], what: str, code: int, words: str
) -> None:
    assert main(["ctl", "why", what, "--file", str(path)]) == code
    said = capsys.readouterr()
    assert words in said.err and "; " in said.err and not said.out


def test_a_journal_in_which_nothing_was_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "journal.db", STORY[:1])
    for what, words in (("1", "nothing was learned yet"), ("abcdef", "no example was accepted yet")):
        assert main(["ctl", "why", what, "--file", str(path)]) == 1
        assert words in capsys.readouterr().err


# --- journal verify --expect --------------------------------------------------------------------------------------


def verify(path: Path, expect: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["ctl", "journal", "verify", "--json", "--file", str(path), "--expect", expect])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


def hash_of(path: Path, seq: int) -> str:
    return str(journal_reader.query(path, f"SELECT hash FROM events WHERE seq = {seq}").rows[0][0])


def test_a_pinned_hash_is_found_on_the_chain(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = len(STORY)
    code, answer = verify(path, hash_of(path, last), capsys)
    assert (code, answer["ok"], answer["head_hash"], answer["expected"]) == (
        0,
        True,
        hash_of(path, last),
        {"seq": last, "after": 0},
    )
    code, answer = verify(path, hash_of(path, 5)[:16].upper(), capsys)
    assert (code, answer["expected"]) == (0, {"seq": 5, "after": last - 5})
    assert main(["ctl", "journal", "verify", "--file", str(path), "--expect", hash_of(path, 5)]) == 0
    assert f"is event 5, {last - 5} events came after" in capsys.readouterr().out
    assert main(["ctl", "journal", "verify", "--json", "--file", str(path)]) == 0
    assert "expected" not in json.loads(capsys.readouterr().out)


def test_another_history_is_not_what_was_pinned(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cut off, or chained anew after an edit: consistent in itself, and shown only by the pin."""
    for story in (STORY[:-2], [ev.EngineSpawned(pid=99, model_dir="/m", attempt=1), *STORY[1:]]):
        other = write(tmp_path / f"{len(story)}.db", story)
        code, answer = verify(other, hash_of(path, len(STORY)), capsys)
        assert (code, answer["ok"], answer["first_bad"], answer["expected"]) == (1, False, None, None)
        assert main(["ctl", "journal", "verify", "--file", str(other), "--expect", hash_of(path, len(STORY))]) == 1
        assert "another history" in capsys.readouterr().out


def test_a_pin_after_an_edit_is_not_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "journal.db", STORY)
    pins = hash_of(path, 3), hash_of(path, len(STORY))
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TRIGGER events_unchanged")
        db.execute("UPDATE events SET at_ns = ? WHERE seq = 8", (AT + 1,))
        db.commit()
    assert [(code, a["first_bad"], a["expected"]) for code, a in (verify(path, pin, capsys) for pin in pins)] == [
        (1, 8, {"seq": 3, "after": 4}),
        (1, 8, None),  # of what comes after the edit nothing is said
    ]


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "0" * 65, "' OR 1=1"])
def test_a_pin_that_is_no_hash(path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["ctl", "journal", "verify", "--file", str(path), "--expect", text]) == 2
    assert "no hash of an event" in capsys.readouterr().err


def test_what_was_taken_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path / "journal.db", STORY + TAKEN_BACK))
    for what, told in (
        ("4", ["taken back  by the rollback to step 0"]),
        (E, ["undone by step 4: taken back by the rollback to step 0"]),
        (A, ["pending by step 1: asked for again"]),
    ):
        assert main(["ctl", "why", what, "--file", path]) == 0
        out = capsys.readouterr().out
        assert all(words in out for words in told), out
    assert main(["ctl", "why", "4", "--file", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"]["taken_back"]["to"] == 0


def test_a_step_of_several_that_failed_settles_nothing_for_any_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They wait, to be learned one by one: state and step are those from before it, as in the view and in `example
    show`."""
    failed = ev.StepFailed(step=2, example=A, reason="oom", attempts=1, examples=(A, C), apart=True)
    begun = ev.StepStarted(
        step=2, parent=0, example=A, digest="d", lr=1.0, window=1, examples=(A, C), digests=("d", "d")
    )
    back = ev.RollbackStarted(to=0, from_step=1, fingerprint=BASE, origin="", replay=(), undone=(1,), examples=(A,))
    again = ev.ExampleRequeued(example=A, tier="bulk", by="ctl")
    histories = {
        "asked for again": [*completed(1, 0, A), back, again, begun, failed],
        "not yet": [*completed(1, 0, A), back, begun, failed],
        "trained": [*completed(1, 0, A), begun, failed],
        "learned alone": [*completed(1, 0, A), back, again, begun, failed, *completed(3, 0, A), *completed(4, 3, C)],
    }
    for name, tail in histories.items():
        path = write(tmp_path / f"{name}.db", STORY[:12] + tail)
        for example in (A, C):
            told = why(path, example, capsys)["example"]
            (view,) = journal_reader.query(path, f"SELECT state, step FROM examples WHERE id = '{example}'").rows
            assert main(["ctl", "example", "show", example, "--json", "--file", str(path)]) == 0
            shown = json.loads(capsys.readouterr().out)["example"]
            assert view == (told["state"], told["step"]) == (shown["state"], shown["step"]), name
            assert told["steps"] == shown["steps"] and "oom" not in told["reason"], name
    path = tmp_path / "not yet.db"
    answer = why(path, C, capsys)
    assert (answer["example"]["state"], answer["example"]["reason"], answer["step"]) == ("pending", "", None)
    assert main(["ctl", "why", C, "--file", str(path)]) == 0
    assert "tried in steps 2" in capsys.readouterr().out, "that it was tried is told still"
    assert why(path, "2", capsys)["step"]["reason"] == "oom"


def test_a_checkpoint_keeps_the_steps_it_was_made_of_though_later_ones_build_on_older_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "journal.db", [*STORY, *TAKEN_BACK, *completed(6, 0, A)])
    assert [why(path, step, capsys)["step"]["checkpoint"]["path"] for step in ("1", "4")] == ["/c/1", "/c/4"]
