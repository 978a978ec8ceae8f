"""Shortens an answer that is a sentence to the few words that answer its question."""

import re

from apollod.curation.lessons.english_verbs import BE, FORMS, MODALS
from apollod.curation.lessons.matching import ARTICLES, holds
from apollod.curation.lessons.near_copies import content_of

SPAN = 8
"""most new words in a sentence to shorten it to them"""
_EDGES = ARTICLES | frozenset(
    "is are was were be been being has have had does do did of in on at by to for from with as and or that which it "
    "its this there he she they i you we called named known can should must will would located about used now "
    "currently ist sind war liegt steht heißt lautet in im am an auf von bei mit es gehört est était sont se trouve "
    "à au en dans de du des es son está era se encuentra del y et und".split()
)
_VERBS = BE | MODALS | frozenset("ist sind war liegt gehört est sont était es son está era".split())
_SENTENCE = re.compile(r"(?<=[^\s.][.!?])\s+(?=[A-Z0-9])")
_ASKS_YES = re.compile(
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|must|may|might)\b", re.I
)
_YES = re.compile(r"\W*(yes|no)\b", re.I)


def short_answer(question: str, answer: str) -> str:
    """The part of an answer that a right one has to contain: of a sentence, the words that its question does not have.
    "Who owns the mill?", "The mill is owned by Ada Penn.": "Ada Penn". Other answers only lose their final punctuation.
    """
    if (yes := _YES.match(answer)) and _ASKS_YES.match(question.strip()):
        return yes[1].capitalize()
    whole = answer.strip().rstrip(".!。！").rstrip() or answer.strip()
    first = sentences(whole)[0].rstrip(".!。！")
    words = first.split()
    if "\n" in whole or not any(word in _VERBS or (word in FORMS and word.islower()) for word in words[1:]):
        return whole  # not a sentence
    known = content_of(question)
    new = [at for at, word in enumerate(words) if _bare(word) not in _EDGES and not content_of(word) <= known]
    if len(new) > 1 and _asks_for_a_thing(question) and words[new[0]] in FORMS and _bare(words[new[0] + 1]) in ARTICLES:
        del new[0]  # "shows a heron": the question asks for the heron
    if not new or new[-1] - new[0] >= SPAN:
        return whole
    short = " ".join(words[new[0] : new[-1] + 1]).strip(" ,;:\"“”'")
    return whole if holds(question, short) else short


def _asks_for_a_thing(question: str) -> bool:
    """True for "What animal ..." and "Which tool ...", not for "What does ..."."""
    words = question.casefold().split()
    return words[:1] in (["what"], ["which"]) and len(words) > 1 and words[1] not in _VERBS | _EDGES


def sentences(text: str) -> list[str]:
    """The sentences of a text: each begins with a capital or a number."""
    return _SENTENCE.split(text)


def _bare(word: str) -> str:
    return word.lower().strip(",;:.\"“”'")
