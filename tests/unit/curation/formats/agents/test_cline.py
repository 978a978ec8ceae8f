"""From tasks of Cline and Roo Code to what is learned of them."""

import json

import pytest
from support.log_samples.cline import CLI, DOCUMENT, DRIFT, ROO
from support.readings import evidence, examples, kinds, learned, read

from apollod.curation.formats.agents.cline import READER
from apollod.curation.formats.table import ReaderTable

ASKED = 'user: Fix <it>\n\nFiles attached by the user:\n\n<file_content path="a.py">\nx = 1\n</file_content>'
TURNS = (
    [
        ASKED,
        "assistant*: [hm] I look. read_file{}",
        "tool: 1 | x = 1",
        "assistant*: execute_command{'command': 'pytest'}",
        "tool: Command failed with exit code 1.\nOutput:\n1 failed",
        "assistant*: write_to_file{}",
    ],
    [
        "tool: The user denied this operation and provided the following feedback:",
        "user: No, in b.py",
        "assistant*: attempt_completion{'result': 'Done'}",
    ],
    ["user: Now test it", "assistant: I would."],
    ["user: Go on", "assistant*: ask_followup_question{'question': 'Sure?'}"],
    [
        "user: Yes",
        "assistant*: Just words.",
        "user: [ERROR] You did not use a tool in your previous response! Please retry with a tool use.",
        "assistant*: All is well.",
    ],
)
"""What the person asked without the extension's reminders, and an answer that was cut off only as context"""


def test_a_task_becomes_examples() -> None:
    def after(*turns: int) -> list[str]:
        context = [text.replace("*:", ":") for turn in turns[:-1] for text in TURNS[turn]]
        return [*context, *TURNS[turns[-1]]]

    reading = read(READER, DOCUMENT)
    assert examples(reading) == [after(0), after(0, 1), after(0, 1, 2, 3), after(0, 1, 2, 3, 4)]
    assert (reading.bad, reading.counts) == ([], {})


def test_what_shows_its_worth() -> None:
    reading = read(READER, DOCUMENT)
    assert [kinds(moment) for moment in reading.moments] == [
        ["refused", "correction", "check"], [], ["interrupted"], [],
    ]  # fmt: skip
    refusal = next(one for one in evidence(reading.moments[0]) if one[0] == "refused")
    assert refusal[2].startswith("The user denied this operation")


def test_roo_code_names_its_model_beside_the_prompt() -> None:
    reading = read(READER, ROO)
    first, second, third = examples(reading)
    xml = "assistant*: <read_file>\n<path>a.py</path>\n</read_file>"
    assert first == [
        "user: Fix it", xml, "user: [read_file for 'a.py'] Result:\n\n<task> x = 1",
        "assistant*: I run. execute_command{'command': 'rm a'}",
    ]  # fmt: skip
    assert second[-3:] == ['tool: {"status":"denied","feedback":"Leave it"}', "user: Leave it", "assistant*: Left."]
    assert third == ["user: ## Summary: all is well", "user: And now?", "assistant*: Nothing."]
    assert "refused" in kinds(reading.moments[0])
    assert learned(reading.moments[0]).origin.model == "apollo"
    other = read(READER, ROO.replace(b"<model>apollo", b"<model>gpt"))
    assert examples(other) == ["another model's answers"] * 3


def test_the_command_line_s_document() -> None:
    reading = read(READER, CLI)
    assert examples(reading) == [["user: Say hello", "assistant*: [so] Hello!"]]
    origin = learned(reading.moments[0]).origin
    assert (origin.session, origin.agent, origin.model, origin.records) == ("s1", "cline", "apollo", ("a1",))


def test_a_file_that_does_not_name_the_model_is_not_learned() -> None:
    task = [{"role": "user", "content": "<task>\nhi\n</task>"}, {"role": "assistant", "content": "hello"}]
    reading = read(READER, json.dumps(task).encode())
    assert examples(reading) == ["another model's answers"]
    assert examples(reading, models=("*",)) == [["user: hi", "assistant*: hello"]]


def test_drift_is_counted_and_the_rest_is_read() -> None:
    reading = read(READER, json.dumps(DRIFT).encode())
    assert examples(reading) == [["user: hi", "assistant*: hello"]]
    assert reading.counts == {
        "unknown: block: hologram": 1,
        "unknown: role: narrator": 1,
        "dropped: text of the program, not of a person": 1,
        "dropped: a note that messages were left out": 1,
    }


def test_what_is_broken_is_said_in_a_line() -> None:
    broken = (
        b'[{"role": "assistant", "content": [{"type": "tool_use"}]}, {"role": 7}, {"role": "user", "content": "q"}]'
    )
    reading = read(READER, broken)
    assert [bad.line for bad in reading.bad] == [1, 2]
    assert all("\n" not in bad.reason and "this reader fails" not in bad.reason for bad in reading.bad)


@pytest.mark.parametrize("log", [DOCUMENT, ROO, CLI])
def test_it_is_recognised_whatever_it_is_called(log: bytes) -> None:
    assert ReaderTable().recognise("x.json", log).name == "cline"
    assert ReaderTable().knows("x.json", log[:400])


def test_other_arrays_are_not_taken_for_it() -> None:
    rows = b'[{"role": "user", "content": "no tags here"}, {"role": "assistant", "content": "so"}]'
    assert not READER.recognise("rows.json", rows)
    assert READER.recognise("tasks/1/api_conversation_history.json", rows)
    assert not READER.recognise("tasks/1/ui_messages.json", b'[{"ts": 1, "type": "say", "say": "text"}]')
