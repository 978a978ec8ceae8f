"""Checks by code of answers, where a pattern has one."""

from typing import Any, cast

import anyio
import pytest

from apollod.core.dreams.events import Mode
from apollod.core.dreams.scenario import Turn
from apollod.core.settings import Check
from apollod.core.surroundings import NOTHING, Surrounding
from apollod.supervisor.dreaming import tested_answers


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
