"""Makes the lessons of a document by rules, and counts the sentences that give none. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from apollod.core.lessons.wording import Given, Worded, keys_of
from apollod.curation.documents.alone import Reader, topic_of
from apollod.curation.documents.document_sections import Section, sections_of
from apollod.curation.lessons.answer_words import same_words
from apollod.curation.lessons.asked_for import asked_for
from apollod.curation.lessons.english_verbs import FORMS, Verb
from apollod.curation.lessons.lesson_refusals import check_given
from apollod.curation.lessons.matching import LONG
from apollod.curation.lessons.near_copies import content_of, key_of
from apollod.curation.lessons.statement import Clause, clause_in
from apollod.curation.lessons.worded import wordings
from apollod.errors import LessonRefused

FACTS_MAX = 200
"""lessons of one document"""

_REDACTED = "[redacted "
_UNNAMED = re.compile(
    r"(?:I|we|you|they|it|he|she|this|that|these|those|there|here|one|some|such|both|each|his|her|its|their|someone"
    r"|everyone|everything|nothing|nobody|another|others?|what|whoever)\b",
    re.I,
)

_BESIDE = frozenset(
    "when if while after before although because as since once unless until from in at on with without for by to "
    "during under over through please then".split()
)
_VAGUE = frozenset(("en.be", "en.object", "en.prep", "en.object_for"))
_NO_THING = (
    r"(?:\w+(?:ed|ly)|free|made|kept|sold|built|held|run|in|on|at|by|behind|under|next|up|down|out|off|back|away|us|me"
    r"|them|it)\b"
)
"""beginnings of answers that name nothing, for rules that take anything behind the verb"""


class Fact(NamedTuple):
    """A lesson that a document makes, and its wordings."""

    given: Given
    worded: Worded


class Found(NamedTuple):
    """`of`: sentences, list items and rows that were read; `left_out`: how many of them make no lesson, by reason:
    "unclear" (no rule fits, or no short answer), "secret" (holds one, or personal data), "again" (repeats another one),
    "contradicts" (another one answers the same question otherwise), "more" (beyond `FACTS_MAX`)."""

    facts: tuple[Fact, ...]
    of: int
    left_out: dict[str, int]


def facts_of(sections: Sequence[Section], name: str) -> Found:
    """All facts in the sections of a document that can be asked for."""
    reader = Reader(topic_of(sections[0].titles if sections else (), name))
    kept, left_out, count = Kept(), Counter[str](), 0
    for section in sections:
        passage = section.passage
        for sentence, simple in reader.sentences(section):
            count += 1
            if _REDACTED in sentence:
                left_out["secret"] += 1
                continue
            if len(kept.facts) >= FACTS_MAX:
                left_out["more"] += 1
                continue
            made = [one for text in simple if (one := fact_in(Given(text, document=name, section=passage)))]
            whys = [kept.add(one) for one in made] or ["unclear"]
            if all(whys):
                left_out[whys[0]] += 1
    return Found(tuple(kept.facts), count, dict(sorted(left_out.items())))


class Kept:
    """The lessons of a document, one for each question. A wording held out by one lesson is practised by none."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._answers: dict[str, tuple[str, ...]] = {}
        self._practised, self._held_out = set[tuple[str, ...]](), set[tuple[str, ...]]()

    def add(self, fact: Fact) -> str:
        """Add a lesson. Returns the reason why it was left out; empty if it was added."""
        answer = same_words(fact.worded.answer).words
        keys = keys_of(fact.worded)
        if others := [self._answers[key] for key in keys if key in self._answers]:
            return "again" if answer in others else "contradicts"
        parts = fact.worded.practice, fact.worded.held_out
        practised, held_out = ({key_of(one.prompt) for one in part} for part in parts)
        if practised & self._held_out or held_out & self._practised:
            return "again"
        if len(self.facts) >= FACTS_MAX:
            return "more"
        self._practised |= practised
        self._held_out |= held_out
        self._answers |= dict.fromkeys(keys, answer)
        self.facts.append(fact)
        return ""


def fact_in(given: Given) -> Fact | None:
    """The lesson of one sentence; None where no rule fits it, its subject is not named, or its answer is not short."""
    first, clause = asked_for(given.statement)[0], clause_in(given.statement.rstrip("."))
    if clause is not None and (clause.subject.split()[0].lower() in _BESIDE or _is_perfect(clause)):
        return None
    answer = same_words(first.answer).words
    if not first.rule or _UNNAMED.match(given.statement) or not 0 < len(answer) < LONG or _UNNAMED.match(first.answer):
        return None
    if first.rule in _VAGUE and (re.match(_NO_THING, first.answer) or (clause and _is_there(clause))):
        return None
    if not content_of(first.answer) and first.answer not in ("Yes", "No"):
        return None
    return checked(given)


def _is_there(clause: Clause) -> bool:
    """True for "has a garden": naming anything else that it has would be right, too."""
    return clause.base == "have" and clause.rest.split()[:1] in (["a"], ["an"], ["one"])


def _is_perfect(clause: Clause) -> bool:
    """True for "has been", "have seen": no rule asks in this tense."""
    after = (clause.rest.split() or [""])[0]
    return clause.base == "have" and (after == "been" or FORMS.get(after, Verb("", "")).do == "did")


def checked(given: Given) -> Fact | None:
    """The lesson with its wordings; None where it is refused."""
    try:
        check_given(given)
    except LessonRefused:
        return None
    worded = wordings(given)
    return Fact(given, worded) if worded.practice and worded.held_out else None


def section_for(sections: Iterable[Section], question: str, answer: str) -> str:
    """The passage that shares most words with a question and its answer; empty where none has half of them."""
    wanted = content_of(f"{question} {answer}")
    shared = [(len(wanted & content_of(one.passage)), one.passage) for one in sections]
    most, passage = max(shared, key=lambda one: one[0], default=(0, ""))
    return passage if 2 * most >= len(wanted) else ""


__all__ = ["FACTS_MAX", "Fact", "Found", "Kept", "checked", "fact_in", "facts_of", "section_for", "sections_of"]
