"""The figures of forgetting rest on three things: what the matrix gives, that nothing asked was learned, and that
rehearsal takes the share it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.forgetting.lessons import form, lessons, prompts
from benchmarks.forgetting.measures import measures
from benchmarks.forgetting.rehearsal import ROOM, Rehearsal
from benchmarks.forgetting.tasks import PATTERNS, before, sequence, subjects


def test_measures_of_a_small_matrix() -> None:
    found = measures([[1.0], [0.9, 0.8], [0.4, 0.9, 1.0], [0.6, 0.5, 0.2, 0.7]])
    assert found == pytest.approx(
        {
            "acc": (0.5 + 0.2 + 0.7) / 3,
            "bwt": ((0.5 - 0.8) + (0.2 - 1.0)) / 2,
            "forgetting": ((0.9 - 0.5) + (1.0 - 0.2)) / 2,  # the first task was best after the second
            "new": (0.8 + 1.0 + 0.7) / 3,
            "before": 0.6,
            "before_lowest": 0.4,
        }
    )


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_asked_that_was_learned(seed: int) -> None:
    tasks = sequence(seed)
    learned = {str(one[:-1]) for task in tasks for one in task.learned}
    asked = [str(one.messages) for task in tasks for one in task.asked]
    assert not learned.intersection(asked) and len(set(asked)) == len(asked)
    assert all(task.asked for task in tasks) and [bool(task.learned) for task in tasks] == [False, *[True] * 6]


def test_a_sequence_is_the_same_for_the_same_seed_only() -> None:
    assert sequence(4)[1].learned == sequence(4)[1].learned != sequence(5)[1].learned


def test_the_right_answer_passes_and_that_of_a_corrected_fact_does_not() -> None:
    tasks = {task.name: task for task in sequence(0)}
    told = {one[-2]["content"]: one[-1]["content"] for one in tasks["facts 1"].learned}
    for question in tasks["corrections"].asked:
        bare = question.messages[-1]["content"].removeprefix("Now: ")
        assert not question.passes(told[bare])
    for question in tasks["facts 1"].asked:
        assert question.passes(told[question.messages[-1]["content"].removeprefix("Now: ")])


def test_probes_of_the_guard_are_not_what_is_asked() -> None:
    asked = {str(one.messages) for one in before("asked 0") if one.group != "talk"}
    assert not asked.intersection(str(one.messages) for one in before("probes 0", wording=0) if one.group != "talk")


@pytest.mark.parametrize("seed", range(3))
def test_lessons_practise_each_example_once_and_are_checked_with_others(seed: int) -> None:
    tasks = sequence(seed)
    asked = {str(one.messages) for task in tasks for one in task.asked}
    for task in tasks:
        made = lessons(task, seed)
        practised = [str(one) for lesson in made for one in lesson.practice]
        assert sorted(practised) == sorted(map(str, task.learned))
        checked = {str(one[:-1]) for lesson in made for one in lesson.checked}
        assert checked.isdisjoint(asked) and checked.isdisjoint(str(one[:-1]) for one in task.learned)
        assert all(lesson.checked for lesson in made)


def test_a_correction_is_about_what_it_corrects() -> None:
    tasks = {task.name: task for task in sequence(0)}
    before = {one.about: one for one in lessons(tasks["facts 1"], 0)}
    corrected = lessons(tasks["corrections"], 0)
    assert len(before) == 12 and len(corrected) == 4
    assert all(one.about in before and one.checked != before[one.about].checked for one in corrected)


def test_no_anchor_asks_what_is_asked() -> None:
    for seed in range(3):
        asked = {one.messages[-1]["content"] for one in before(f"asked {seed}")}
        made = prompts(seed)
        assert len({str(one) for one in made}) == len(made) > 200
        told = [one for one in made if one[-1]["content"] in asked]
        assert all(one[0]["role"] == "system" for one in told), "a fact or small talk is asked as it is"
        assert not {str(one) for one in made}.intersection(
            str(one.messages) for task in sequence(seed) for one in task.asked
        )


@pytest.mark.parametrize("seed", range(3))
def test_every_lesson_has_anchors_of_its_form_that_it_must_leave_as_they_are(seed: int) -> None:
    anchors = prompts(seed)
    for task in sequence(seed):
        for lesson in lessons(task, seed):
            near = [one for one in anchors if form(one) == lesson.form]
            assert len(near) >= 5, lesson.form
            if lesson.about in PATTERNS:
                assert all(one[0]["role"] == "system" for one in near), "what the pattern changes is no anchor"


@pytest.mark.parametrize(
    ("said", "forbids"),
    [
        ("Act at once.", True), ("Always ask first. Do not ask, act at once.", True),
        ("Do not ask, act at once. Always ask first.", False), ("Always ask first.", False), ("No greeting.", False),
    ],
)  # fmt: skip
def test_a_pattern_is_near_to_what_forbids_it_last(said: str, forbids: bool) -> None:
    told = [{"role": "system", "content": said}, {"role": "user", "content": "Could you please lift the red desk?"}]
    assert (form(told) == "ask first") is forbids


def test_subjects_are_those_of_the_world() -> None:
    assert {one.answer.format(town="Elmford", value=one.values[0]) for one in subjects()} == {
        "The mayor of Elmford is Tom.", "The market of Elmford is on Monday.",
        "People in Elmford eat cake.", "The cat of Elmford is called Shadow.",
    }  # fmt: skip


@given(st.sampled_from([0.0, 0.05, 0.1, 0.5]), st.integers(0, 3 * ROOM))
def test_rehearsal_takes_its_share_of_what_was_learned_in_the_same_way_each_time(share: float, new: int) -> None:
    def repeated() -> list[int]:
        old, step, found = Rehearsal(share), 0, []
        for example in range(new):
            step += 1
            old.learned(example)
            if (again := old.due(step)) is not None:
                step += 1
                found.append(again)
                assert again <= example
        return found

    first = repeated()
    assert len(first) == int(share * new + 1e-6)
    assert first == repeated()
