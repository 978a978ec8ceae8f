"""Makes lessons of a document: from the user's own questions, by an imagination if there is one, or by rules."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import anyio.to_thread
import structlog

from apollod.adapters.llm.openai_api import Sampling
from apollod.core.dreams.scenario import Turn
from apollod.core.lessons.wording import Given
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
from apollod.curation.documents.document_sections import Section
from apollod.curation.lessons.lesson_refusals import check_given
from apollod.curation.lessons.matching import matches, tokens_of
from apollod.curation.lessons.worded import told_section
from apollod.errors import LessonRefused, LlmError
from apollod.supervisor.dreaming.dreamer import Dreamer

log = structlog.get_logger()

SEED = 1_000_000
"""seed for the first section; lessons and dreams use other seeds"""


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
