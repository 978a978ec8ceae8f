"""Splits texts into words and sentences for comparisons."""

import re

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff"
"""Thai, Lao, Burmese, kana and Han put no spaces between words: a character is a word."""
SENTENCE = re.compile(r"[.!?;:]+(?:\s|$)|[。！？；：]|\n+")
"""end of a sentence"""
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_FUNCTION_WORDS = frozenset(
    "a about after again all also always am an and any are as at be been before being but by can could did do does don "
    "doing either else ever every few for from had has have having he her here hers him his how i if in into is "
    "it its itself just let ll may me might more most must my neither never no nor not now of off on once one only or "
    "other our out over own please re s same shall she should so some such t than that the their them then there these "
    "they this those through to too under until up upon us ve very was we were what when where whether which while who "
    "whom whose why will with without would you your yours yourself".split()
)


def words_of(text: str) -> list[str]:
    """The words of a text in order, without case and punctuation; "don't" is two."""
    return _WORD.findall(text.casefold())


def says_something(word: str) -> bool:
    """True for a content word."""
    return word not in _FUNCTION_WORDS and (len(word) > 2 or not word.isascii())


def stem(word: str) -> str:
    """The word without a common inflection: the same for "greet", "greets" and "greeting"."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word.removesuffix(ending)
    return word


def shown(sentence: str) -> str:
    """A sentence for a message: quoted, and cut if it is long."""
    text = " ".join(sentence.split())
    return repr(text if len(text) <= 60 else f"{text[:60]}...")
