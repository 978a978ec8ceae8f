"""From trajectories in ATIF to what is learned of them."""

import json

from support.log_samples.atif import DOCUMENT, DRIFT, OLD, STEPS, TOOL, step
from support.readings import every, examples, read

from apollod.curation.formats.atif import READER
from apollod.curation.formats.table import ReaderTable
from apollod.wire.records import decode_record

LOG = json.dumps(DOCUMENT).encode()
FIRST = [
    "system: You are terse.",
    "user: Fix it",
    "assistant*: [hm] I look. ls{'of': '.'}",
    "tool: a.py",
    "assistant*: Done.",
]


def test_a_trajectory_becomes_examples() -> None:
    reading = read(READER, LOG)
    assert examples(reading) == [
        FIRST,
        [*(text.replace("*:", ":") for text in FIRST), "user: And now?", "assistant*: ls -l"],
    ]
    assert (reading.bad, reading.counts) == (
        [],
        {"dropped: a note of the system": 1, "dropped: facts about the run": 2, "dropped: a run of a subagent": 1},
    )
    (_, everybody) = examples(reading, models=("*",))
    assert everybody[-2:] == ["user: a.py 7", "assistant*: Enough."], "what was seen answers a call that is text"


def test_where_it_comes_from() -> None:
    call, first = every(read(READER, LOG).moments[0])
    origin = first.origin
    assert (origin.session, origin.agent, origin.version, origin.model) == ("s1", "terminus-2", "2.0", "apollo")
    assert (call.origin.records, origin.records) == (("step 3",), ("step 4",))
    assert decode_record(first.record.canonical).tools == [TOOL]  # type: ignore[union-attr]


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, json.dumps(DRIFT, indent=1).encode())
    before = ["user: go on", "assistant: I went", "user: more", "assistant: ls{'of': '.'}", "tool: b.py"]
    assert examples(reading) == [[*before, "assistant*: Fine."]]
    assert reading.counts["unknown: step of oracle"] == 1
    assert reading.counts["dropped: an answer of an earlier run, or that no model wrote"] == 2
    assert len(reading.bad) == 1 and "step_id" in reading.bad[0].reason


def test_runs_in_one_file_have_nothing_to_do_with_each_other() -> None:
    other = {**OLD, "steps": [step(1, "user", "q"), step(2, "agent", "a")]}
    reading = read(READER, LOG, b"\n", json.dumps(other).encode(), b"\n")
    assert examples(reading)[-1] == ["user: q", "assistant*: a"]
    assert reading.moments[-1].session.id == "s0" and reading.moments[-1].session.tools == ()


def test_what_is_cut_off_is_read_so_far_and_said() -> None:
    reading = read(READER, LOG[: LOG.index(json.dumps(STEPS[4]).encode())])
    assert examples(reading) == [FIRST]
    assert "the document ends" in reading.bad[0].reason


def test_it_is_recognised_by_its_version() -> None:
    table = ReaderTable()
    assert table.recognise("trajectory.json", json.dumps(DOCUMENT, indent=2).encode()[:500]).name == "atif"
    assert table.recognise("a.jsonl", b'{"text": "\\"schema_version\\": \\"ATIF-v1.0\\""}\n').name == "records"
