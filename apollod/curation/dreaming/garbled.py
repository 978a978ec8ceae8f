"""Detects answers that are not language, in which a check by code may find nothing wrong. Pure."""

from apollod.curation.probes.figures import repetition

UNITS_MIN = 24
"""words, or characters of one that is very long; fewer repeat themselves by chance"""
REPEATED = 0.5
"""share of the runs of four that were there before"""
LONG = 60
"""characters without a space, which are looked at one by one: no word is so long, text of some languages is"""


def garbled(answer: str) -> str:
    """The reason why an answer is nothing that a working model says; empty: it may be. Repetition is by runs of four
    words, and of four characters where a row of them has no space (`curation.probes.figures`)."""
    if not any(character.isalnum() for character in answer):
        return "it has neither letters nor digits"
    if "\N{REPLACEMENT CHARACTER}" in answer:
        return "it holds bytes that are no text"
    words = answer.split()
    rows = [words, *(list(word) for word in words if len(word) >= LONG)]
    if any(len(row) >= UNITS_MIN and repetition(row) >= REPEATED for row in rows):
        return "it repeats itself"
    return ""
