"""Checks by code of answers, where a pattern has one."""

import json
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest

from apollod.core.facts.dreams.events import Mode
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.intake.events import Evidence
from apollod.core.inputs import Batch, Line
from apollod.core.settings import Check
from apollod.core.surroundings import NOTHING, Surrounding
from apollod.errors import DreamCheckFailed
from apollod.supervisor.dreaming import tested_answers
from apollod.supervisor.dreaming.tested_answers import AT_ONCE, NOT_SHOWN, answers_of, checked


@pytest.mark.parametrize(
    ("mode", "answer", "verdict"),
    [
        ("bare", "Shall I?", "good"),
        ("bare", "Done.", "bad"),
        ("contrast", "Done.", "good"),
        ("contrast", "Shall I?", "bad"),
        ("contrast", "done done " * 30, "bad"),
        ("contrast", "?!", "bad"),
        ("contrast", " ", "bad"),
        ("situation", "Done.", "good"),
        ("situation", "Shall I?", "bad"),
        ("situation", "?!", "bad"),
    ],
)
def test_in_contrast_an_answer_without_the_behaviour_is_good_unless_it_is_none(
    mode: Mode, answer: str, verdict: str
) -> None:
    tester = tested_answers.Tester(cast(Any, None), None)
    found = anyio.run(tester.tested, Check(regex="Shall I"), mode, "Ask.", (Turn("user", "Delete it."),), answer)
    assert found.verdict == verdict and bool(found.reason) == (verdict == "bad")


@pytest.mark.parametrize(
    ("mode", "answer", "verdict"),
    [
        ("bare", "Shall I? I would begin with", "good"),
        ("bare", "Well, I would begin with", "bad"),
        ("contrast", "Well, I would begin with", "good"),
        ("contrast", "Shall I? I would begin with", "bad"),
        ("bare", "Shall I? " * 30, "bad"),
    ],
)
def test_of_an_answer_that_is_cut_off_what_is_there_counts_unless_it_would_never_end(
    mode: Mode, answer: str, verdict: str
) -> None:
    tester = tested_answers.Tester(cast(Any, None), None)
    asked = (Turn("user", "Delete it."),)
    found = anyio.run(tester.tested, Check(regex="Shall I"), mode, "Ask.", asked, answer, NOTHING, True)
    assert found.verdict == verdict


class Heard(tested_answers.Tester):
    """Says good to everything, and by what it was judged."""

    async def judged(
        self, expected: str, scenario: tuple[Turn, ...], answer: str, around: Surrounding = NOTHING
    ) -> tested_answers.Found:
        return tested_answers.Found("good", "judge", expected)


@pytest.mark.parametrize(
    ("mode", "judged_by"), [("bare", "Ask.\n\nIn capitals."), ("told", "Ask."), ("contrast", "Ask.")]
)
def test_only_bare_answers_are_judged_by_the_rubric(mode: Mode, judged_by: str) -> None:
    """The model was told nothing of it: one that follows its instruction can be told."""
    tester = Heard(cast(Any, None), None)
    check = Check(rubric="In capitals.")
    found = anyio.run(tester.tested, check, mode, "Ask.", (Turn("user", "Delete it."),), "Shall I?")
    assert found.reason == judged_by


# --- answers of logs, with real checks in processes of their own ----------------------------------------------------


def said(*turns: tuple[str, str], **last: object) -> bytes:
    messages: list[dict[str, object]] = [{"role": role, "content": text} for role, text in turns]
    messages[-1] |= last
    return json.dumps({"messages": messages}).encode()


def batch(*records: bytes) -> Batch:
    lines = tuple(Line(number=n, example=f"e{n}", record=one) for n, one in enumerate(records, 1))
    return Batch("s", "/s", 10, len(lines), lines, counts={"unknown: x": 1})


def kept(found: Batch | None) -> list[str]:
    assert found is not None
    return [line.example for line in found.lines]


SHOWN, NOT = (
    said(("user", "Delete it."), ("assistant", "Shall I?")),
    said(("user", "Delete it."), ("assistant", "Done.")),
)


def test_of_a_conversation_what_is_learned_is_checked_with_what_was_said_before() -> None:
    record = said(
        ("system", "s"), ("user", "u1"), ("assistant", "a1"), ("tool", "t"), ("user", "u2"), ("assistant", "a2")
    )
    first, second = answers_of(record)
    assert first == ((Turn("user", "u1"),), "a1")
    assert second == ((Turn("user", "u1"), Turn("assistant", "a1"), Turn("user", "u2")), "a2")
    assert answers_of(said(("user", "u"), ("assistant", "not this"), weight=0)) == []


@pytest.mark.parametrize("kind", ["regex", "schema", "command"])
def test_what_the_check_does_not_pass_is_dropped_and_counted(tmp_path: Path, kind: str) -> None:
    (tmp_path / "schema.json").write_text('{"type": "string", "pattern": "Shall I"}')
    records = [SHOWN, NOT, said(("user", "x"), ("assistant", "Shall I? Shall I?"))]
    if kind == "schema":
        records = [said(("user", "x"), ("assistant", json.dumps(text))) for text in ("Shall I?", "Done.", "Shall I")]
    command = ("sh", "-c", "grep -q 'answer.*Shall I' && exit 0; exit 1")
    check = {
        "regex": Check(regex="Shall I"), "schema": Check(schema=str(tmp_path / "schema.json")),
        "command": Check(command=command),
    }[kind]  # fmt: skip
    found = anyio.run(checked, batch(*records), check)
    assert kept(found) == ["e1", "e3"] and found is not None
    assert found.counts == {"unknown: x": 1, f"dropped: {NOT_SHOWN}": 1} and found.unlearned == 1
    assert (found.offset, found.line) == (10, 3), "the position is that of all that was read"


def test_all_answers_of_a_record_have_to_pass_and_there_has_to_be_one() -> None:
    both = said(("user", "a"), ("assistant", "Shall I?"), ("user", "b"), ("assistant", "Done."))
    calls = said(("user", "a"), ("assistant", ""))
    assert kept(anyio.run(checked, batch(both, calls, SHOWN), Check(regex="Shall I"))) == ["e3"]


def test_what_a_dropped_line_shows_about_answers_stays() -> None:
    one = batch(NOT)
    signal = Evidence("correction", "negative", 1.0, "no", "key")
    shows = msgspec.structs.replace(one.lines[0], evidence=(signal,))
    found = anyio.run(checked, msgspec.structs.replace(one, lines=(shows,)), Check(regex="Shall I"))
    assert found is not None and [(line.example, line.evidence) for line in found.lines] == [("", (signal,))]


def test_bad_lines_are_left_alone() -> None:
    bad = msgspec.structs.replace(batch(), lines=(Line(number=1, reason="no record"),))
    assert anyio.run(checked, bad, Check(regex="Shall I")) == bad


def test_a_check_that_cannot_be_made_drops_nothing() -> None:
    with pytest.raises(DreamCheckFailed, match="neither 0 nor 1"):
        anyio.run(checked, batch(SHOWN), Check(command=("sh", "-c", "exit 2")))
    with pytest.raises(DreamCheckFailed, match="cannot be read"):
        anyio.run(checked, batch(SHOWN), Check(schema="/nowhere/schema.json"))


def test_a_batch_that_is_not_wanted_any_more_is_not_checked_to_its_end(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    command = ("sh", "-c", f"echo >> {asked}; exit 0")
    answers = iter([True, False])
    records = [SHOWN] * (AT_ONCE + 1)
    assert anyio.run(lambda: checked(batch(*records), Check(command=command), lambda: next(answers))) is None
    assert len(asked.read_text()) == AT_ONCE
