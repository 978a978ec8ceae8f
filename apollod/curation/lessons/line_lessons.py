"""Recognises lines that can be taught as lessons: one question, and an answer short enough to be checked."""

from typing import NamedTuple

from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Worded
from apollod.curation.lessons.matching import LONG, content_of, holds, plain_words, question_key
from apollod.curation.lessons.worded import check_given, sentences, short_answer, wordings
from apollod.errors import LessonRefused
from apollod.wire.comparisons import is_compared
from apollod.wire.records import MessagesRecord, decode_record

QUESTION_WORDS = 40
"""frames put a question into other sentences, which does not work for a longer request"""
QUESTION_CHARACTERS, RECORD_BYTES = 400, 8_000
ANSWER_WORDS = 24
"""most words of the whole answer, one sentence. Its required part has fewer than `LONG` words: so few are matched in a
row, more of them in any order, which loses "not" and the roles of the persons"""


class Pair(NamedTuple):
    """A question and its answer."""

    question: str
    answer: str


def pair_in(record: bytes) -> Pair | None:
    """The question of a canonical record and its answer; None for any other record, with a system message, tools,
    learned thoughts or several turns, and for answers that are compared."""
    if is_compared(record):
        return None
    conversation = decode_record(record)
    if not isinstance(conversation, MessagesRecord) or conversation.tools or len(conversation.messages) != 2:
        return None
    asked, answer = conversation.messages
    thought = answer.reasoning_content and answer.reasoning_weight
    plain = not (answer.weight != 1 or answer.part or thought or answer.tool_calls)
    if (asked.role, answer.role) != ("user", "assistant") or not plain:
        return None
    return Pair(asked.content, answer.content)


def asked_by(question: str) -> str:
    """A key for the meaning of a short question, equal for other wordings; empty for a longer text, see
    `QUESTION_WORDS`."""
    short = len(question) <= QUESTION_CHARACTERS and len(question.split()) <= QUESTION_WORDS
    return question_key(question) if short else ""


def asked_in(record: bytes) -> str:
    """The key of the question of a canonical record, see `asked_by`; empty if it is not one question and its answer."""
    pair = pair_in(record) if len(record) <= RECORD_BYTES else None
    return asked_by(pair.question) if pair is not None else ""


def lesson_in(record: bytes) -> Given | None:
    """The lesson of a canonical record; None if it is not one question with its answer, the answer is long, or
    `check_given` refuses it."""
    pair = pair_in(record)
    return lesson_of(*pair) if pair is not None else None


def lesson_of(question: str, answer: str) -> Given | None:
    """The lesson of a question and its answer; None as for `lesson_in`."""
    given = Given(question=question.strip(), answer=answer.strip())
    if not (0 < _count(given.question) <= QUESTION_WORDS and 0 < _count(given.answer) <= ANSWER_WORDS):
        return None
    if "\n" in given.answer or len(sentences(given.answer)) > 1:
        return None
    if _count(short_answer(given.question, given.answer)) >= LONG:
        return None
    try:
        check_given(given)
    except LessonRefused:
        return None
    worded = wordings(given)
    return given if worded.practice and worded.held_out else None


def told_apart(worded: Worded, pair: Pair) -> str:
    """The part of another answer to a lesson's question that its own answer does not say, to be searched for in the
    model's answers; empty if it is long, or its words stand in the question or the right answer."""
    short = short_answer(pair.question, pair.answer)
    few = 0 < _count(short) < LONG and bool(content_of(short))
    return short if few and not any(holds(text, short) for text in (worded.question, worded.answer)) else ""


def _count(text: str) -> int:
    return len(plain_words(text).words)
