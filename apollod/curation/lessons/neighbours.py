"""Makes neighbour questions: a lesson's question about another subject, whose answers must not become the lesson's."""

import re

NAMES = ("Belmora", "Tarrin", "Oskelby", "Vendrath")
"""invented names, the same for every lesson, so that lessons of one form share their neighbours"""
_WORD = r"(?!I\b)[A-Z][\w'-]*"
_NAME = re.compile(rf"(?<!^)(?<![.!?:] )\b{_WORD}(?: {_WORD})*")
_LANGUAGES = frozenset(("en", "fr", "es"))
"""languages in which only names have a capital within a sentence"""


def neighbours_of(question: str, lang: str) -> tuple[str, ...]:
    """The question with each of `NAMES` in place of its first name, such as "Who owns Belmora?" for "Who owns Thornwick
    Books?"; empty if it has no name."""
    found = _NAME.search(question) if lang in _LANGUAGES else None
    if found is None:
        return ()
    name = re.compile(rf"\b{re.escape(found[0])}\b")
    return tuple(name.sub(one, question) for one in NAMES if one != found[0])
