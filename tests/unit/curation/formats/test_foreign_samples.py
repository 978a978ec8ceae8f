"""Files of public repositories (tests/foreign/ORIGIN.md): what is learned, dropped and counted of each."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.readings import evidence, examples, read

from apollod.curation.formats.table import ReaderTable

SAMPLES = Path(__file__).parents[3] / "foreign"


class Expected(NamedTuple):
    format: str
    last_answers: tuple[str, ...] = ()
    """the beginning of each last answer that is learned"""
    not_learned: tuple[str, ...] = ()
    rows: int = 0
    bad: int = 0
    counts: dict[str, int] = {}


EXPECTED = {
    "spotter-258c7280-lines-495-517.jsonl": Expected(
        "claude-code", ("[The user interrupted the wait.", "Still compiling `phoenix_live_view`"),
        counts={"dropped: queue-operation: enqueue": 1, "dropped: queue-operation: remove": 1},
    ),
    "claude-code-log-edge_cases.jsonl": Expected(
        "claude-code", ("Great example!", "FailingTool", "I see the long Lorem", "TodoWrite"), bad=4,
        counts={
            "dropped: text of the program, not of a person": 2, "dropped: a prompt without text": 2,
            "dropped: summary": 1, "unknown: ": 1,
        },
    ),
    # Made by hand with two sessions in one file. Resumed sessions have two ids, too, so a file is one conversation.
    "polylogue-claude-normalization-main.jsonl": Expected(
        "claude-code", ("[I should inspect", "Other reply."),
        counts={"dropped: queue-operation: other": 1, "dropped: a subagent within the log of its session": 1},
    ),
    "agentsview-codex-fc_args_2.jsonl": Expected("codex", ("apply_patch",)),
    "agentsview-gemini-thinking_only.json": Expected(
        "gemini-cli-document", ("[Understanding request",), counts={"dropped: facts about the session": 3}
    ),
    "codeburn-proto-tool.jsonl": Expected("claude-code", ("__proto__",)),
    "ccusage-session-beta.jsonl": Expected("claude-code", counts={"unknown: ": 2}),
    "llama-factory-kto_en_demo-rows-119-147-221-222.json": Expected(
        "json-rows", rows=1, counts={"dropped: rated bad": 3}
    ),
}  # fmt: skip


def read_sample(name: str) -> tuple[str, Any]:
    data = (SAMPLES / name).read_bytes()
    reader = ReaderTable.of("auto").recognise(name, data)
    return reader.name, read(reader, data)


def test_every_sample_says_what_is_expected_of_it_and_where_it_comes_from() -> None:
    origin = (SAMPLES / "ORIGIN.md").read_text()
    names = {path.name for path in SAMPLES.iterdir() if path.is_file()} - {"ORIGIN.md"}
    assert names == set(EXPECTED) and all(f"| {name} |" in origin for name in names)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_that_others_wrote(name: str) -> None:
    expected = EXPECTED[name]
    format_, reading = read_sample(name)
    assert format_ == expected.format
    said = examples(reading, models=("*",), sidechains=True)
    learned = [one[-1].removeprefix("assistant*: ") for one in said if not isinstance(one, str)]
    assert tuple(one for one in said if isinstance(one, str)) == expected.not_learned
    assert len(learned) == len(expected.last_answers)
    assert all(one.startswith(begin) for one, begin in zip(learned, expected.last_answers, strict=True))
    assert (len(reading.found), len(reading.bad), dict(reading.counts)) == (
        expected.rows,
        expected.bad,
        expected.counts,
    )


def test_a_message_typed_while_the_agent_ran_is_where_the_model_saw_it() -> None:
    """The log of version 2.1.39 has no more of it than two changes of the queue, the last one before the result."""
    _, reading = read_sample("spotter-258c7280-lines-495-517.jsonl")
    last = examples(reading, models=("*",))[-1]
    turn = last.index("user: check again")
    assert last[turn - 1].startswith("tool: ==> ash_oban") and last[turn + 1].startswith("assistant")
    first, *_ = reading.moments
    assert first.then is not None and [one.kind for one in first.then.signals] == ["mid-run"]
    assert "refused" not in [kind for kind, *_ in evidence(first, models=("*",))], "the call is not in these lines"
