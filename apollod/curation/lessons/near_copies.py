"""Detects worthless wordings: near copies of a practised one, and those that contain their answer."""

from collections.abc import Iterable

from apollod.core.lessons.wording import Wording
from apollod.curation.lessons.answer_words import same_words
from apollod.curation.lessons.matching import ARTICLES, holds

FILLER = ARTICLES | frozenset(
    "please kindly hi hello hey thanks thank you ok okay well so um just now then bitte danke hallo merci bonjour "
    "gracias hola 请 請".split()
)


def key_of(prompt: str) -> tuple[str, ...]:
    """The words of a wording without fillers: case, punctuation, greetings, thanks, articles. Numbers, names and
    negations count, and so does the order. Wordings with the same key are near copies."""
    words = same_words(prompt).words
    return tuple(word for word in words if word not in FILLER) or words


def leaks(wording: Wording) -> bool:
    """True if the prompt contains the answer, other than "yes" or "no"."""
    return wording.answer.strip().casefold() not in ("yes", "no") and holds(wording.prompt, wording.answer)


def question_key(question: str) -> str:
    """A key for the meaning of a question: its content words in any order and without endings, and its kind: person,
    place, time, reason, measure or thing."""
    words = same_words(question).words
    asked = next((_ASKS[word] for word in words if word in _ASKS), "")
    return " ".join([asked, *sorted(_content(words) or key_of(question))]).strip()


def content_of(text: str) -> set[str]:
    """The content words of a text, without endings."""
    return _content(same_words(text).words)


def _content(words: Iterable[str]) -> set[str]:
    return {_stem(word) for word in words if word not in _EMPTY}


_ASKS = {"who": "who", "whom": "who", "whose": "who", "when": "when", "where": "where", "why": "why", "how": "how"}
_EMPTY = FILLER | frozenset(
    "what which who whom whose when where why how is are was were be do does did has have had of in on at by to for "
    "from it that this me tell i you".split()
)


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word.removesuffix(ending)
    return word
