"""The words of a text, as texts are compared by them."""

import re

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff"
"""Thai, Lao, Burmese, kana and Han put no spaces between words: a character is a word."""
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")


def words_of(text: str) -> list[str]:
    """Its words in order, without case and punctuation; "don't" is two."""
    return _WORD.findall(text.casefold())
