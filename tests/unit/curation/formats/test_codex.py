"""From rollouts of Codex to what is learned of them."""

import pytest
from support.log_samples.codex import BARE, BROKEN, DRIFT, META, OLD, SESSION, event, item, line, said
from support.readings import every, evidence, examples, kinds, learned, read

from apollod.curation.formats.codex import READER
from apollod.curation.formats.table import ReaderTable

SYSTEM = "system: You are Codex."


def test_a_session_becomes_examples() -> None:
    reading = read(READER, *SESSION)
    first = [
        SYSTEM,
        "user: Fix it",
        "assistant*: [hm] I look. exec_command{'cmd': 'ls'}",
        "tool: a.py",
        "assistant*: apply_patch{'input': '*** Begin Patch'}",
        'tool: {"output": "no such file", "metadata": {"exit_code": 1}}',
        "assistant*: [so] Done.",
    ]
    assert examples(reading) == [
        first,
        "taken back by the user (rewound)",
        [text.replace("*:", ":") for text in first] + ["user: Run the tests", "assistant*: I run"],
        [SYSTEM, "user: Run the tests", "user: So far: fixed", "assistant*: They pass."],
    ]
    assert reading.bad == []


def test_what_gives_nothing_is_counted() -> None:
    assert read(READER, *SESSION).counts == {
        "dropped: a message of developer": 1,
        "dropped: text of the program, not of a person": 1,
        "dropped: an event that items say, too": 4,
        "dropped: turn_context": 3,
        "dropped: encrypted reasoning": 1,
        "dropped: compaction": 1,
        "dropped: world_state": 1,
    }


def test_where_it_comes_from_and_what_shows_its_worth() -> None:
    first, back, third, _ = read(READER, *SESSION).moments
    origin = learned(first).origin
    assert (origin.session, origin.agent, origin.version, origin.model) == ("s1", "codex", "0.140.0", "apollo")
    assert [one.origin.records for one in every(first)] == [("msg_1",), (), ("msg_2",)]
    assert kinds(first) == ["tool-error"]
    assert evidence(third) == [("interrupted", "bad", "interrupted")]
    assert kinds(back) == [], "another model's answers"
    assert kinds(back, models=("other",)) == ["rewound"]
    assert back.messages[-1].model == "other", "who answered, not who answers now"


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, META, said("user", "q"), *DRIFT)
    assert examples(reading, models=("*",)) == [
        [SYSTEM, "user: q", "assistant*: and more local_shell{'command': ['ls']}"],
        [SYSTEM, "user: What was done", "user: Go on", "assistant*: Yes."],
    ]
    assert {name for name in reading.counts if name.startswith("unknown")} == {
        "unknown: from-the-future",
        "unknown: response_item: hologram",
        "unknown: event_msg: sound_played",
    }


def test_a_rollout_without_envelopes_is_read() -> None:
    assert examples(read(READER, *OLD), models=("*",)) == [["system: Be brief.", "user: hi", "assistant*: hello"]]


def test_items_without_a_type_are_messages() -> None:
    reading = read(READER, *BARE)
    assert examples(reading, models=("*",)) == [["user: q", "assistant*: a"]]
    assert reading.moments[0].session.id == "s7"


def test_what_is_broken_is_said_in_a_line() -> None:
    reading = read(READER, *BROKEN)
    assert [bad.line for bad in reading.bad] == [1, 2, 3, 4, 5, 7, 9, 10, 11]
    assert all("\n" not in bad.reason for bad in reading.bad)
    assert reading.counts == {"unknown: response_item: ": 1}


def test_an_agent_that_another_one_started_is_a_sidechain() -> None:
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": "s1", "depth": 1}}}
    meta = line("session_meta", {"id": "s2", "source": spawned})
    assert examples(read(READER, meta, said("user", "q"), said("assistant", "a"))) == ["a sidechain"]


def test_more_turns_are_rolled_back_than_there_are() -> None:
    talk = [said("user", "q"), said("assistant", "a"), event("thread_rolled_back", num_turns=5)]
    reading = read(READER, *talk, said("user", "r"), said("assistant", "b"))
    assert examples(reading, models=("*",)) == ["taken back by the user (rewound)", ["user: r", "assistant*: b"]]


def test_text_that_was_put_into_the_place_of_an_answer_is_not_learned() -> None:
    put = line(
        "response_item",
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "summary"}]},
        metadata={"compaction_output": True},
    )
    reading = read(READER, said("user", "q"), put)
    assert examples(reading) == []
    assert reading.counts == {"dropped: text that the program put into the place of an answer": 1}


def test_a_refusal_is_evidence() -> None:
    call = item("function_call", name="f", arguments="{}", call_id="c")
    refused = item("function_call_output", call_id="c", output="exec command rejected by user")
    (moment,) = read(READER, said("user", "q"), call, refused, said("assistant", "ok")).moments
    assert kinds(moment, models=("*",)) == ["refused"]


@pytest.mark.parametrize("first", [SESSION[0], OLD[0]])
def test_it_is_recognised_by_its_first_line(first: bytes) -> None:
    assert ReaderTable().recognise("any.jsonl", first).name == "codex"
    assert ReaderTable().recognise("rollout-x.jsonl", b'{"text": "session_meta"}\n').name == "records"


def test_an_answer_goes_on_after_a_compaction_and_is_learned() -> None:
    """What stands in the replacement is context, also where an answer stands last in it."""
    kept = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "kept"}]}]
    log = said("user", "q") + line("compacted", {"message": "", "replacement_history": kept}) + said("assistant", "new")
    assert examples(read(READER, log), models=("*",)) == [["assistant: kept", "assistant*: new"]]
