"""Questions of the form of a lesson about something else: what is learned of one subject must not be said of others."""

import re

NAMES = ("Belmora", "Tarrin", "Oskelby", "Vendrath")
"""invented; the same for every lesson, so that lessons of one form share their neighbours"""
_WORD = r"(?!I\b)[A-Z][\w'-]*"
_NAME = re.compile(rf"(?<!^)(?<![.!?:] )\b{_WORD}(?: {_WORD})*")
_LANGUAGES = frozenset(("en", "fr", "es"))
"""in which only names begin with a capital inside of a sentence"""


def neighbours_of(question: str, lang: str) -> tuple[str, ...]:
    """The question with each of `NAMES` in place of the first name in it, such as "Who owns Belmora?" for "Who owns
    Thornwick Books?"; empty where no name is found."""
    found = _NAME.search(question) if lang in _LANGUAGES else None
    if found is None:
        return ()
    name = re.compile(rf"\b{re.escape(found[0])}\b")
    return tuple(name.sub(one, question) for one in NAMES if one != found[0])
