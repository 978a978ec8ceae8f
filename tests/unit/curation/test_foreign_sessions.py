"""Sessions that others had (tests/foreign): each answer is learned, as the files alone say it, with what it shows."""

import json
from pathlib import Path

import pytest
from support.readings import every, evidence, read

from apollod.core.facts.intake.events import speaks_against
from apollod.curation.formats.table import ReaderTable
from apollod.curation.moments import Rules
from apollod.curation.signals.cues import evidence_of

SPOTTER = Path(__file__).parents[2] / "foreign" / "spotter"
FILES = sorted(SPOTTER.glob("*.jsonl"))


def answers_in(path: Path) -> list[str]:
    """Ids of the messages of assistants, in their order, without apollod's readers."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return list(dict.fromkeys(r["message"]["id"] for r in records if r.get("type") == "assistant"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_answer_is_learned_after_what_the_person_asked(path: Path) -> None:
    data = path.read_bytes()
    reader = ReaderTable().recognise(str(path), data)
    reading = read(reader, data)
    assert reader.name == "claude-code" and not reading.bad
    learned = [one for moment in reading.moments for one in every(moment, models=("*",))]
    assert [response for one in learned for response in one.origin.responses] == answers_in(path)
    for one in learned:
        roles = [message["role"] for message in json.loads(one.record.canonical)["messages"]]
        assert roles[-1] == "assistant" and "user" in roles


def test_a_refused_call_and_a_complaint_speak_against_an_answer() -> None:
    """An interruption alone does not: people change their minds. The complaint ("still does not work") is about work of
    before this session, which nothing in the file says; it counts against the answer that it follows."""
    against: dict[str, list[str]] = {}
    for path in FILES:
        data = path.read_bytes()
        for moment in read(ReaderTable().recognise(str(path), data), data).moments:
            found = evidence_of(moment, Rules(models=("*",)))
            assert len(found) == len(evidence(moment, models=("*",)))
            against.setdefault(path.stem, []).extend(
                one.kind for one in found if speaks_against(one.polarity, one.strength)
            )
    assert against == {"begun": [], "short": ["refused"], "tool_heavy": ["correction"]}
