"""Validates pattern definitions. Pure; files that they name are checked by their readers."""

import re
from collections.abc import Mapping
from itertools import count

from msgspec.structs import replace

from apollod.core.settings import PatternSettings

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
INSTRUCTION_MAX = 20_000  # characters
NAME_WORDS, NAME_CHARACTERS = 5, 40
"""most words and characters of an instruction that make a name"""


def pattern_problem(pattern: PatternSettings) -> str:
    """Error in a pattern definition; empty: none."""
    check, (passes, of) = pattern.check, pattern.settle
    if not NAME.fullmatch(pattern.name):
        return "a name is of small letters, digits, - and _, at most 64"
    if not pattern.instruction.strip():
        return "instruction is empty"
    if len(pattern.instruction) > INSTRUCTION_MAX:
        return f"instruction has {len(pattern.instruction)} characters, more than {INSTRUCTION_MAX}"
    if passes > of:
        return f"settle = [{passes}, {of}] can never be reached"
    if sum(map(bool, (check.regex, check.schema, check.command, check.rubric))) > 1:
        return "check is one of regex, schema, command and rubric"
    if not all(text.strip() for text in pattern.contrast):
        return "contrast holds an empty text; without one the instruction is taken back"
    if len(set(pattern.contrast)) < len(pattern.contrast):
        return "contrast holds a text twice"
    if len(set(pattern.surroundings)) < len(pattern.surroundings):
        return "surroundings names a kind twice"
    return ""


def named(pattern: PatternSettings, taken: Mapping[str, PatternSettings]) -> PatternSettings:
    """The pattern with a name, if it has none: the name of an equal existing pattern, else the first words of its
    instruction, with a number if that name is taken."""
    if pattern.name:
        return pattern
    if same := next((one for one in taken.values() if replace(one, name="") == pattern), None):
        return same
    words = re.findall(r"[a-z0-9]+", pattern.instruction.casefold())[:NAME_WORDS]
    name = "-".join(words)[:NAME_CHARACTERS].strip("-") or "behaviour"
    numbers = (f"{name}-{number}" for number in count(2))
    return replace(pattern, name=name if name not in taken else next(one for one in numbers if one not in taken))
