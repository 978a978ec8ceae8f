"""Requests to teach and forget documents: groups of lessons, with which later editions are compared.

Lessons are made from the user's own questions, by an imagination if there is one, or by rules.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import anyio.to_thread
import structlog

from apollod.adapters.llm.openai_api import Sampling
from apollod.adapters.system import clock
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import keys_of
from apollod.core.facts.lessons.state import OUT, Lesson, LessonsState
from apollod.core.rules.lessons.standing import rivals
from apollod.curation.documents.document_facts import (
    Fact,
    Found,
    Kept,
    asking,
    checked,
    facts_of,
    imagined_facts,
    section_for,
)
from apollod.curation.documents.document_sections import Section, document_text, sections_of
from apollod.curation.lessons.matching import matches, tokens_of
from apollod.curation.lessons.worded import check_given, told_section, wordings
from apollod.errors import LessonRefused, LlmError
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.lesson_view import lesson_row
from apollod.supervisor.requests.asked import USAGE, Daemon, reply
from apollod.supervisor.requests.lesson_requests import teaching
from apollod.wire import messages as msg

log = structlog.get_logger()

SEED = 1_000_000
"""seed for the first section; lessons and dreams use other seeds"""


async def teach_document(daemon: Daemon, request: msg.TeachDocumentRequest) -> msg.Answer:
    """Teach a document; answered when all its lessons are recorded. Facts that a lesson already teaches are skipped, so
    that a later edition only adds its new facts. `removed`: lessons of earlier editions that are missing in this
    one."""
    own = daemon.loop.state.lessons
    try:
        found = await _found(daemon, request)
        if not found.facts:
            raise LessonRefused(
                f"{request.name} says nothing that can be asked for ({found.of} sentences)",
                "write it in sentences that each say one thing of something named, or give --questions QA.jsonl",
            )
    except LessonRefused as refused:
        return msg.Failure(str(refused), refused.hint, code=USAGE)
    before = [one for one in own.lessons.values() if one.given.document == request.name and one.state not in OUT]
    keys = await anyio.to_thread.run_sync(_keys, before)
    given, already, changed = list[str](), list[str](), list[str]()
    for fact in found.facts:
        if (older := teaching(own, fact.given, fact.worded)) is not None:
            already.append(older.id)
            continue
        changed += _answered_otherwise(own, fact, keys, already)
        given.append(await _given(daemon, fact.given, request.by))
    said = {key for fact in found.facts for key in keys_of(fact.worded)}
    removed = [one for one in before if said.isdisjoint(keys[one.id]) and one.id not in already]
    forgotten = await _forgotten(daemon, removed if request.forget_removed else (), request.by)
    rows = [_row(daemon, own.lessons[id_]) for id_ in dict.fromkeys([*already, *given])]
    return reply(
        document=request.name, facts=len(rows), given=given, already=already, changed=changed,
        removed=[_row(daemon, one) for one in removed], forgotten=forgotten, sentences=found.of,
        left_out=found.left_out, lessons=rows,
    )  # fmt: skip


async def _found(daemon: Daemon, request: msg.TeachDocumentRequest) -> Found:
    """Facts of the document. Raises LessonRefused."""
    text = await anyio.to_thread.run_sync(document_text, request.name, request.data)
    sections = await anyio.to_thread.run_sync(sections_of, text)
    if request.questions:
        return await anyio.to_thread.run_sync(own_facts, sections, request.name, request.questions)
    if daemon.dreamer is None or not daemon.dreamer.has_imagination:
        return await anyio.to_thread.run_sync(facts_of, sections, request.name)
    before = defaultdict[str, list[Given]](list)
    for one in daemon.loop.state.lessons.lessons.values():
        if one.given.document == request.name and one.state != "replaced":
            before[one.given.section].append(one.given)
    return await imagined_of(daemon.dreamer, sections, request.name, before)


def _keys(lessons: Iterable[Lesson]) -> dict[str, frozenset[str]]:
    """Keys of the lessons' questions, by lesson id; blocking."""
    return {one.id: frozenset(keys_of(one.worded or wordings(one.given))) for one in lessons}


def _answered_otherwise(
    own: LessonsState, fact: Fact, keys: Mapping[str, frozenset[str]], already: Sequence[str]
) -> list[str]:
    """Lessons with another answer to the question of a new one, which replaces them once it is worded."""
    waiting = [id_ for id_, its in keys.items() if id_ not in already and not its.isdisjoint(keys_of(fact.worded))]
    return list(dict.fromkeys([*(one.id for one in rivals(own, "", fact.worded)), *waiting]))


async def _given(daemon: Daemon, given: Given, by: str) -> str:
    recorded = await daemon.loop.submit(inp.LessonWanted(given, by or "ctl"))
    return next(one.event.lesson for one in recorded if isinstance(one.event, ev.LessonGiven))


async def forget_document(daemon: Daemon, request: msg.DocumentForgetRequest) -> msg.Answer:
    """Forget a document; answered when it is recorded. `lessons`: those given up; `forgotten`: examples to be taken out
    of the weights."""
    own = daemon.loop.state.lessons
    every = [one for one in own.lessons.values() if one.given.document == request.document]
    if not every:
        there = sorted({one.given.document for one in own.lessons.values()} - {""})
        hint = f"there are: {', '.join(there[:10])}" if there else "`apollod ctl teach --file NOTES.md` teaches one"
        return msg.Failure(f"there is no document {request.document[:80]!r}", hint, missing=True)
    forgotten = await _forgotten(daemon, every, request.by)
    return reply(document=request.document, lessons=[one.id for one in every], forgotten=forgotten)


async def _forgotten(daemon: Daemon, lessons: Sequence[Lesson], by: str) -> list[str]:
    """Give up these lessons; return their examples to be taken out of the weights."""
    examples = list[str]()
    for lesson in reversed(lessons):  # the one under way last: no other begins meanwhile
        recorded = await daemon.loop.submit(inp.LessonUnwanted(lesson.id, by or "ctl"))
        wishes = (one.event for one in recorded if isinstance(one.event, ev.ForgetRequested))
        examples += [example for wish in wishes for example in wish.examples]
    return examples


def _row(daemon: Daemon, lesson: Lesson) -> dict[str, Any]:
    return lesson_row(daemon.loop.state, lesson, clock.now_ns())


def own_facts(sections: Sequence[Section], name: str, questions: Iterable[tuple[str, str]]) -> Found:
    """The user's own questions, each with the section that fits it best. Raises LessonRefused for the first one that
    cannot be taught, with its number."""
    kept, left_out, count = Kept(), Counter[str](), 0
    for count, (question, answer) in enumerate(questions, 1):
        asked = Given(question=question.strip(), answer=answer.strip(), document=name)
        given = Given(asked.statement, asked.question, asked.answer, name, section_for(sections, question, answer))
        try:
            check_given(given)
        except LessonRefused as refused:
            raise LessonRefused(f"question {count}: {refused}", refused.hint) from refused
        fact = checked(given)
        if why := kept.add(fact) if fact is not None else "unclear":
            left_out[why] += 1
    return Found(tuple(kept.facts), count, dict(left_out))


async def imagined_of(
    dreamer: Dreamer, sections: Sequence[Section], name: str, before: Mapping[str, Sequence[Given]]
) -> Found:
    """Questions of an imagination about each section, if the served model answers them with the section in view. A
    section of an earlier edition keeps its questions (`before`, by its text); one without an answer of the imagination
    is read by rules."""
    kept, left_out, count = Kept(), Counter[str](), 0
    for number, section in enumerate(sections):
        passage = section.passage
        by_rule = await anyio.to_thread.run_sync(facts_of, [section], name)
        count += by_rule.of
        if same := before.get(passage):
            facts = [one for given in same if (one := await anyio.to_thread.run_sync(checked, given))]
        else:
            facts, dropped = await _imagined(dreamer, passage, name, SEED + number)
            left_out.update(dropped)
        if not facts:
            facts, dropped = list(by_rule.facts), by_rule.left_out
            left_out.update(dropped)
        left_out.update(why for fact in facts if (why := kept.add(fact)))
    return Found(tuple(kept.facts), count, dict(sorted(left_out.items())))


async def _imagined(dreamer: Dreamer, passage: str, name: str, seed: int) -> tuple[list[Fact], dict[str, int]]:
    """Questions about a section that the served model answers rightly with it in view; none if the imagination gives no
    answer."""
    try:
        said = await dreamer.imagine_text(asking(passage), seed)
        found, left_out = await anyio.to_thread.run_sync(imagined_facts, said.text, passage, name)
        right = [one for one in found if await _answers(dreamer, one)]
    except LlmError as error:
        log.warning("document.section_not_imagined", document=name, error=error.line())
        return [], {}
    missed = len(found) - len(right)
    return right, {**left_out, "told": missed} if missed else left_out


async def _answers(dreamer: Dreamer, fact: Fact) -> bool:
    """True if the served model gives the answer with only the section in view."""
    sampling = Sampling(max_tokens=tokens_of(fact.worded.answer), temperature=0.0, thinking="off")
    turn = Turn("user", fact.worded.question)
    said = await dreamer.say(told_section(fact.given.section), (turn,), sampling)
    return matches(fact.worded.answer, said.text)
