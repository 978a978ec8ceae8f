"""Requests to teach and forget documents: groups of lessons, with which later editions are compared."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import anyio.to_thread

from apollod.adapters.system import clock
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.lessons.standing import rivals
from apollod.core.lessons.state import OUT, Lesson, LessonsState
from apollod.core.lessons.wording import Given, keys_of
from apollod.curation.documents.document_facts import Fact, Found, facts_of
from apollod.curation.documents.document_sections import document_text, sections_of
from apollod.curation.lessons.worded import wordings
from apollod.errors import LessonRefused
from apollod.supervisor.lessons.document_reading import imagined_of, own_facts
from apollod.supervisor.lessons.lesson_view import lesson_row
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.requests.lesson_request import USAGE, teaching
from apollod.wire import messages as msg


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
    before = _standing_of(own, request.name)
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
    return msg.Reply({
        "schema_version": 1, "document": request.name, "facts": len(rows), "given": given, "already": already,
        "changed": changed, "removed": [_row(daemon, one) for one in removed], "forgotten": forgotten,
        "sentences": found.of, "left_out": found.left_out, "lessons": rows,
    })  # fmt: skip


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


def _standing_of(own: LessonsState, document: str) -> list[Lesson]:
    """The lessons of a document that are taught or known."""
    return [one for one in own.lessons.values() if one.given.document == document and one.state not in OUT]


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
    return msg.Reply({
        "schema_version": 1, "document": request.document, "lessons": [one.id for one in every],
        "forgotten": forgotten,
    })  # fmt: skip


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
