"""What a pattern has to be. Pure; whether its files are there is looked at where they are read."""

import re

from apollod.core.settings import PatternSettings

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
INSTRUCTION_MAX = 20_000  # characters


def pattern_problem(pattern: PatternSettings) -> str:
    """Why nothing can be learned by it; empty: it can."""
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
    return ""
