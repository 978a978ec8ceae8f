"""Refuses lessons that cannot be taught, with what to do."""

import re
from collections.abc import Iterable

from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Wording
from apollod.curation.lessons.asked_for import asked_for
from apollod.curation.lessons.english import Clause, clause_in
from apollod.curation.lessons.matching import content_of, holds, leaks, question_key, same_words
from apollod.curation.lessons.worded import short_answer, wordings
from apollod.curation.redaction import redact_text
from apollod.errors import LessonRefused

_PIECE = re.compile(r"(?<=[.!?])\s+|[;\n]|,? (?:and|but) ")
STATEMENT_MAX, QUESTION_MAX, ANSWER_MAX = 2_000, 2_000, 2_000
"""characters"""


def check_given(given: Given) -> None:
    """Raises LessonRefused for a lesson that is empty, incomplete, too long or holds a secret, and for a question that
    holds its answer."""
    if not (given.statement.strip() or given.question.strip() or given.answer.strip()):
        raise LessonRefused("the lesson is empty", "give a statement, or a question and its answer")
    if bool(given.question.strip()) != bool(given.answer.strip()):
        there, missing = ("question", "answer") if given.question.strip() else ("answer", "question")
        raise LessonRefused(f"the lesson has no {missing} to its {there}", "give both, or one statement instead")
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
    if given.answer and _spelled_out(given.answer) and not content_of(given.answer):
        raise LessonRefused(f"the answer {given.answer.strip()!r} stands in nearly every text", "say it in more words")
    if given.question and leaks(Wording(given.question, given.answer, "given")):
        raise LessonRefused("the question holds its answer", "ask without saying the answer")
    if given.statement:
        _check_statement(given)


def _check_statement(given: Given) -> None:
    statement = given.statement.strip()
    found = wordings(given)
    if len(same_words(statement).words) < 2 or not same_words(found.answer).words:
        raise LessonRefused(
            f"the statement {statement!r} says nothing that can be asked for", "say of what, and what is true of it"
        )
    if given.answer and _spelled_out(given.answer) and not holds(statement, short_answer(given.question, given.answer)):
        raise LessonRefused("the statement does not say the answer", "give one of them, or make them agree")
    if not found.practice or not found.held_out:
        raise LessonRefused(
            f"every question for {found.answer!r} that the statement gives holds it", "give a question and its answer"
        )
    if opposite := _opposite(statement):
        raise LessonRefused(f"the statement contradicts itself: {opposite}", "keep what is true")


def _opposite(statement: str) -> str:
    """The contradiction within a statement: it states and denies the same, or gives two answers to one question. Empty:
    none."""
    said = dict[tuple[str, str], bool]()
    for piece in _PIECE.split(statement):
        if (clause := clause_in(piece.strip(" .!?"))) is not None:
            what, denied = _denied(clause)
            if said.setdefault(what, denied) != denied:
                return f"{' '.join(what)!r}, and not"
    answers = dict[str, str]()
    for asked in asked_for(statement):
        key = question_key(asked.practice[0]) if asked.practice and not asked.many else ""
        other = answers.setdefault(key, asked.answer)
        if key and same_words(other).words != same_words(asked.answer).words:
            return f"{other!r} and {asked.answer!r} to {asked.practice[0]!r}"
    return ""


def _denied(clause: Clause) -> tuple[tuple[str, str], bool]:
    """((subject, predicate), true if it is negated): "does not listen" denies "listens"."""
    denied, rest = clause.rest.startswith("not "), clause.rest.removeprefix("not ")
    if clause.base == "do":
        return (clause.subject, rest.lower()), denied
    return (clause.subject, (rest if clause.base == "be" else f"{clause.base} {rest}").lower()), denied


def _parts(given: Given) -> Iterable[tuple[str, str, int]]:
    yield "statement", given.statement, STATEMENT_MAX
    yield "question", given.question, QUESTION_MAX
    yield "answer", given.answer, ANSWER_MAX


def _spelled_out(answer: str) -> bool:
    return not re.fullmatch(r"\W*(yes|no)\W*", answer, re.IGNORECASE)
