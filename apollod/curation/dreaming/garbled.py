"""Detects answers that are not language, in which a check by code may find nothing wrong. Pure."""

from apollod.curation.probes.figures import repetition

UNITS_MIN = 24
"""least words, or characters of a very long word, to judge; shorter rows repeat themselves by chance"""
REPEATED = 0.5
"""share of repeated runs of four, from which on a text is garbled"""
LONG = 60
"""characters without a space, from which on they are compared one by one: text of a language without spaces"""


def garbled(answer: str) -> str:
    """The reason why an answer cannot come from a working model; empty if it can. Repetition is measured on runs of
    four words, and of four characters in words of at least `LONG` characters (`curation.probes.figures`)."""
    if not any(character.isalnum() for character in answer):
        return "it has neither letters nor digits"
    if "\N{REPLACEMENT CHARACTER}" in answer:
        return "it holds bytes that are no text"
    words = answer.split()
    rows = [words, *(list(word) for word in words if len(word) >= LONG)]
    if any(len(row) >= UNITS_MIN and repetition(row) >= REPEATED for row in rows):
        return "it repeats itself"
    return ""
