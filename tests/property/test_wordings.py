"""Whatever is taught: wordings never leak their answer, held-out ones are new, the same input gives the same, and
nothing raises."""

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.effort import draws

from apollod.core.facts.intake.events import Given
from apollod.curation.lessons.imagined_wordings import imagined_in, imagining
from apollod.curation.lessons.matching import holds, key_of, matches
from apollod.curation.lessons.worded import check_given, told, wordings
from apollod.errors import LessonRefused

WORDS = (
    "the a of is was are not never by in on at port owned located founded has does listens did 7341 80 1932 12 9am "
    "Quillon Ada Penn Graz red who where what its and but because , . ? ! : 's der die ist liegt est la es está 是 的"
).split()
ANY = st.text(max_size=80)
SPOKEN = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)
TEXT = st.one_of(SPOKEN, ANY, st.builds(str.__add__, SPOKEN, ANY))
ACCENTS = str.maketrans({"a": "á", "o": "ö", "n": "ñ"})


@draws(40, 80)
@given(TEXT, TEXT, TEXT)
@example("", "\ud800", "\ud800")
@example("²³ is ①.", "", "")
@example("İ is ǆ", "", "")
@example("", "㐀", "的")
def test_wordings_of_anything(statement: str, question: str, answer: str) -> None:
    for taught in (Given(statement), Given("", question, answer), Given(statement, question, answer)):
        try:
            check_given(taught)
        except LessonRefused as refused:
            assert refused.hint
            continue
        worded = wordings(taught)
        assert worded == wordings(taught) and told(taught)
        assert worded.practice and worded.held_out and worded.answer.strip() and worded.key.strip()
        if taught.question:
            # fewer only where frames say the answer themselves, such as a Chinese particle
            usual = wordings(Given(taught.statement, taught.question, "Quillon 7341"))
            left = [
                [one for one in part if not holds(one.prompt, worded.answer)]
                for part in (usual.practice, usual.held_out)
            ]
            assert len(worded.practice) >= min(6, len(left[0])) and len(worded.held_out) >= min(4, len(left[1]))
        practised = [one.prompt for one in worded.practice]
        for one in (*worded.practice, *worded.held_out):
            assert one.answer.strip().casefold() in ("yes", "no") or not holds(one.prompt, one.answer)
        assert not {key_of(one.prompt) for one in worded.held_out} & {key_of(one) for one in practised}
        assert len({one.prompt for one in worded.held_out}) == len(worded.held_out)


@settings(max_examples=150, deadline=None)
@given(TEXT, TEXT, st.lists(TEXT, max_size=2))
def test_matching_of_anything(expected: str, said: str, not_these: list[str]) -> None:
    matches(expected, said, not_these)
    if matches(expected, said, not_these):
        assert matches(expected, said), "what must not be said only takes away"
        assert matches(expected, said.upper().lower(), not_these) or not said.isascii()
        assert not matches("No", said) or not matches("Yes", said)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("Graz Ada Penn Quillon mill lion tower harbour".split()), min_size=1, max_size=4),
       SPOKEN.filter(lambda text: not any(one in text.split() for one in ("not", "never", "by"))))  # fmt: skip
def test_an_answer_is_found_however_it_is_written(words: list[str], around: str) -> None:
    answer = " ".join(words)
    for written in (
        answer,
        answer.upper(),
        f"**{answer}**",
        f"The {answer}.",
        answer.translate(ACCENTS),
        f"«{answer}»",
    ):
        assert matches(answer, f"Yes: {written}")
        assert not matches(answer, f"It is not {written}")
        assert holds(f"{around} {written} {around}", answer)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_a_number_is_the_same_however_it_is_written(number: int) -> None:
    for written in (f"{number}", f"{number:,}", f"{number:,}".replace(",", " "), f"{number:,}".replace(",", "\u202f")):
        assert matches(str(number), f"It is {written}.") and matches(written, f"It is {number}.")
        assert not matches(str(number), f"It is {number}1.") and not matches(str(number), f"It is not {written}.")


@settings(max_examples=100, deadline=None)
@given(TEXT, st.one_of(ANY, st.lists(TEXT, max_size=4).map(json.dumps)), TEXT)
def test_imagination_of_anything(statement: str, said: str, exists: str) -> None:
    taught = Given(statement)
    imagining(taught, [exists])
    found, dropped = imagined_in(said, taught, "Graz", [exists])
    assert all(dropped.values())
    for one in found:
        assert not holds(one.prompt, one.answer) and key_of(one.prompt) != key_of(exists)
