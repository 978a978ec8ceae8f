"""Calls for lessons: wordings, answers of the served model, and conversations to learn. Each has one input as its
answer."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from http.client import NOT_IMPLEMENTED

import anyio
import anyio.to_thread
import structlog
from msgspec.structs import replace

from apollod.adapters.journal import blobs
from apollod.adapters.journal.examples import answers_before, lessons_about
from apollod.adapters.llm.client import side_by_side
from apollod.adapters.llm.openai_api import Sampling
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.lessons.events import Said, Worded, Wording
from apollod.core.proof import NUCLEUS
from apollod.core.surroundings import NOTHING
from apollod.curation.lessons.imagined_wordings import (
    ASKED_MAX,
    comparing,
    contradicted_in,
    imagined_in,
    imagining,
    subjects_of,
)
from apollod.curation.lessons.line_lessons import told_apart
from apollod.curation.lessons.matching import matches, tokens_of
from apollod.curation.lessons.worded import told, wordings
from apollod.curation.surrounding_texts import conversation_in
from apollod.errors import JournalError, LlmError, LlmRefused, RecordRefused, ScoreRefused
from apollod.supervisor.captures import pair_of
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import Answered, Dreamer
from apollod.supervisor.executor.context import Context, Failure, Handler, asking, given_line
from apollod.wire.records import record_of
from apollod.wire.teacher import write_teacher

log = structlog.get_logger()

PRACTICE_IMAGINED, HELD_OUT_IMAGINED = 6, 4
"""wordings that an imagination is asked for"""


def _dreamer(context: Context) -> Dreamer:
    assert context.dreamer is not None
    return context.dreamer


async def _word(context: Context, effect: fx.WordLesson) -> inp.LessonWorded:
    """Make wordings by frames, and by the imagination if there is one; its failure is ignored."""
    began, given, model, tokens = time.monotonic(), effect.given, "", 0
    worded, older = await anyio.to_thread.run_sync(wordings, given), tuple[str, ...]()
    if _dreamer(context).has_imagination:
        with suppress(LlmError):
            worded, tokens = await _imagined(context, effect, worded)
            model = _dreamer(context).model
            older, compared = await _outdated(context, effect)
            tokens += compared
    wrong = await anyio.to_thread.run_sync(_contradicted, context.config, effect.lesson, worded)
    return inp.LessonWorded(effect.lesson, told(given), worded, model, tokens, time.monotonic() - began, wrong, older)


async def _outdated(context: Context, effect: fx.WordLesson) -> tuple[tuple[str, ...], int]:
    """Lessons on the same subject that contradict this one, as judged by the imagination, and the tokens used. Raises
    an LlmError."""
    path, subjects = context.config.journal_path, subjects_of(effect.given)
    try:
        older = await anyio.to_thread.run_sync(lessons_about, path, subjects, effect.lesson, ASKED_MAX)
    except JournalError as error:
        log.warning("lesson.contradictions_not_read", lesson=effect.lesson, error=error.line())
        older = []
    if not older:
        return (), 0
    seed = int(effect.lesson[1:]) * 100 + effect.attempt * 10 + 2
    said = await _dreamer(context).imagine_text(comparing(effect.given, [one.says for one in older]), seed)
    return tuple(older[n].lesson for n in contradicted_in(said.text, len(older))), said.tokens


def _contradicted(config: Config, lesson: str, worded: Worded) -> tuple[inp.Contradicted, ...]:
    """Examples with another answer to the lesson's question; none if the journal cannot be read now."""
    try:
        found = answers_before(config.journal_path, worded.key, lesson)
    except JournalError as error:
        log.warning("lesson.contradictions_not_read", lesson=lesson, error=error.line())
        return ()
    pairs = [(one.example, pair_of(config, bytes(one.record))) for one in found]
    return tuple(
        inp.Contradicted(example, told_apart(worded, pair))
        for example, pair in pairs
        if pair is not None and not matches(worded.answer, pair.answer)
    )


async def _imagined(context: Context, effect: fx.WordLesson, framed: Worded) -> tuple[Worded, int]:
    """The wordings with imagined ones in front, and the tokens used. Held-out ones are imagined last, and shown all
    others. Raises an LlmError."""
    given, dropped = effect.given, Counter[str]()
    tokens, found = 0, list[tuple[Wording, ...]]()
    exist = [one.prompt for one in framed.practice]
    for turn, count in enumerate((PRACTICE_IMAGINED, HELD_OUT_IMAGINED)):
        seed = int(effect.lesson[1:]) * 100 + effect.attempt * 10 + turn
        said = await _dreamer(context).imagine_text(imagining(given, exist, count), seed)
        taken, left_out = await anyio.to_thread.run_sync(imagined_in, said.text, given, framed.answer, exist)
        taken, missed, cost = await _answerable(context, told(given), taken[:count])
        dropped.update({**left_out, "told": missed})
        tokens += said.tokens + cost
        found.append(taken)
        exist += [one.prompt for one in (*taken, *framed.held_out)]
    worded = await anyio.to_thread.run_sync(wordings, given, found[0], found[1])
    dropped.update(worded.dropped)
    # the subject does not depend on imagined wordings
    same = {name: getattr(framed, name) for name in ("question", "answer", "key")}
    return replace(worded, **same, dropped=dict(sorted((+dropped).items()))), tokens


async def _answerable(context: Context, told: str, taken: tuple[Wording, ...]) -> tuple[tuple[Wording, ...], int, int]:
    """Wordings that the told model answers rightly, the number of others, and the tokens used: a wording that it cannot
    answer even then may ask for something else."""
    said = await side_by_side([partial(_said, context, told, one.prompt, one.answer, None) for one in taken])
    right = [one for one, answer in zip(taken, said, strict=True) if matches(one.answer, answer.text)]
    return tuple(right), len(taken) - len(right), sum(answer.tokens for answer in said)


async def _ask(context: Context, effect: fx.AskLesson) -> inp.LessonAsked:
    began = time.monotonic()
    said = await side_by_side(
        [partial(_said, context, effect.told, one.prompt, one.answer, one.seed) for one in effect.asks]
    )
    passed = await anyio.to_thread.run_sync(_passed, effect, [one.text for one in said])
    versions = [one.weights_version for one in said if one.weights_version is not None]
    return inp.LessonAsked(
        effect.lesson, effect.stage, effect.mode, effect.round, effect.made, passed, min(versions, default=None),
        sum(one.tokens for one in said), time.monotonic() - began,
    )  # fmt: skip


def _passed(effect: fx.AskLesson, texts: Sequence[str]) -> tuple[Said, ...]:
    return tuple(
        Said(one.wording, text, matches(one.answer, text, effect.not_these), one.seed)
        for one, text in zip(effect.asks, texts, strict=True)
    )


async def _said(context: Context, told: str, prompt: str, expected: str, seed: int | None) -> Answered:
    """The served model's answer: the most likely one, or with a seed one sampled at temperature 1 from the nucleus.
    Thoughts may be as long as a dream's answer."""
    greedy, thinking = seed is None, context.config.lessons.thinking
    tokens = tokens_of(expected) + (0 if thinking == "off" else _dreamer(context).answer_tokens)
    sampling = Sampling(
        max_tokens=tokens, temperature=0.0 if greedy else 1.0, top_p=None if greedy else NUCLEUS, seed=seed,
        thinking=thinking,
    )  # fmt: skip
    return await _dreamer(context).say(told, (Turn("user", prompt),), sampling)


async def _prepare(context: Context, effect: fx.PrepareLesson) -> inp.LessonPrepared:
    """Build the conversation to learn. It is bare, since the told text is what the model has to learn. If the model
    thinks, the answer is placed after an untold thought."""
    began = time.monotonic()
    answer, tokens = await _to_learn(context, effect)
    prompt = (Turn("user", effect.wording.prompt),)
    thinks = await _dreamer(context).thought("", prompt, context.config.lessons.thinking)
    tokens += thinks.tokens
    record = record_of({"messages": conversation_in(NOTHING, "", prompt, answer, thinks.thought)})
    line = await given_line(context, record.canonical, f"lesson:{effect.lesson}")
    if line is None:
        raise RecordRefused(f"a wording of lesson {effect.lesson} cannot be learned: {effect.wording.prompt[:80]!r}")
    teacher = "" if effect.practice == "given" else await _teacher(context, effect.told, prompt, answer, thinks.thought)
    return inp.LessonPrepared(effect.lesson, effect.number, line, teacher, tokens, time.monotonic() - began)


async def _to_learn(context: Context, effect: fx.PrepareLesson) -> tuple[str, int]:
    """The answer to learn, and the tokens used: the given one, also if the told model's own one is wrong or does not
    end."""
    wording = effect.wording
    given = wording.says or wording.answer
    if effect.practice != "own":
        return given, 0
    seed = int(effect.lesson[1:]) * 10_000 + effect.number * 100 + effect.attempt
    own = await _said(context, effect.told, wording.prompt, given, seed)
    right = not own.cut and matches(wording.answer, own.text, effect.not_these)
    return own.text if right else given, own.tokens


async def _teacher(context: Context, told: str, prompt: tuple[Turn, ...], answer: str, thought: str) -> str:
    """Digest of the told model's distribution at each token of the answer. Empty if the chat template prevents it or
    the engine gives no log-probabilities: then the tokens are learned."""
    try:
        teacher = await _dreamer(context).teacher(told, prompt, answer, thought=thought)
    except ScoreRefused:
        return ""
    except LlmError as error:
        if error.retryable and not (isinstance(error, LlmRefused) and error.status == NOT_IMPLEMENTED):
            raise
        return ""
    return await anyio.to_thread.run_sync(blobs.keep, context.config.state_dir / blobs.NAME, write_teacher(teacher))


def _failed(effect: fx.WordLesson | fx.AskLesson | fx.PrepareLesson, failure: Failure) -> inp.LessonCallFailed:
    return inp.LessonCallFailed(effect.lesson, effect.stage, effect.attempt, *failure)


_BUG = ("lesson.call_broke", "lesson", "stage")
HANDLERS: Mapping[type, Handler] = {  # one at a time: by the core
    fx.WordLesson: asking(_word, _failed, *_BUG),
    fx.AskLesson: asking(_ask, _failed, *_BUG),
    fx.PrepareLesson: asking(_prepare, _failed, *_BUG),
}
