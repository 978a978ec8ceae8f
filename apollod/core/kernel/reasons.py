"""Reasons that events record: why a call had no usable answer, and messages from outside, shortened. Pure."""

from typing import Literal

REASON_MAX = 300
"""characters"""

Cause = Literal[
    "endpoint", "nonsense", "refused", "cut", "repeats", "held-out", "leak", "echo", "seeds", "check", "teacher"
]
"""Reason why a call had no usable answer. endpoint: no answer in time; nonsense: no scenario, no verdict; refused: the
request was rejected; cut: the answer did not end; repeats: a scenario that was dreamt before; held-out: a held-out
scenario; leak: the scenario gives the behaviour away; echo: it is one of its seeds; seeds: they cannot be read; check:
the pattern's check cannot be run; teacher: the told model's distribution is not available."""


def one_line(text: str, most: int = REASON_MAX) -> str:
    """One line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
