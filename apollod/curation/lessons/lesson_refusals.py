"""What cannot be taught, and what to do about it."""

import re
from collections.abc import Iterable

from apollod.core.lessons.wording import Given
from apollod.curation.lessons.answer_words import same_words
from apollod.curation.lessons.matching import holds
from apollod.curation.redaction import redact_text
from apollod.errors import LessonRefused

STATEMENT_MAX, QUESTION_MAX, ANSWER_MAX = 2_000, 2_000, 2_000
"""characters"""


def check_given(given: Given) -> None:
    """Raises LessonRefused for what is empty, half, too long or holds a secret, and for a question that holds its
    answer."""
    if not (given.statement.strip() or given.question.strip() or given.answer.strip()):
        raise LessonRefused("the lesson is empty", "give a statement, or a question and its answer")
    if bool(given.question.strip()) != bool(given.answer.strip()):
        there, missing = ("question", "answer") if given.question.strip() else ("answer", "question")
        raise LessonRefused(f"the lesson has {a_(there)} and no {missing}", "give both, or one statement instead")
    for name, text, most in _parts(given):
        if len(text) > most:
            raise LessonRefused(
                f"the {name} is {len(text)} characters long, more than {most}",
                "teach one fact at a time; give longer texts to the inbox",
            )
        if text and not same_words(text).words:
            raise LessonRefused(f"the {name} has no words: {text.strip()[:40]!r}", "write it in words or numbers")
        if redact_text(text) != text.encode("utf-8", "replace").decode():
            raise LessonRefused(
                f"the {name} holds a secret or personal data", "take it out: what is taught can be asked for by anyone"
            )
    if given.question and _spelled_out(given.answer) and holds(given.question, given.answer):
        raise LessonRefused("the question holds its answer", "ask without saying the answer")


def a_(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def check_new(given: Given, known: Iterable[tuple[str, Given]]) -> None:
    """Raises LessonRefused for what a lesson that is known by an id teaches already."""
    said = _said(given)
    for id_, other in known:
        if _said(other) == said:
            raise LessonRefused(f"lesson {id_} teaches this already", f"see `apollod ctl lesson show {id_}`")


def _parts(given: Given) -> Iterable[tuple[str, str, int]]:
    yield "statement", given.statement, STATEMENT_MAX
    yield "question", given.question, QUESTION_MAX
    yield "answer", given.answer, ANSWER_MAX


def _said(given: Given) -> tuple[tuple[str, ...], ...]:
    return tuple(same_words(part).words for part in (given.statement, given.question, given.answer))


def _spelled_out(answer: str) -> bool:
    return not re.fullmatch(r"\W*(yes|no)\W*", answer, re.IGNORECASE)
