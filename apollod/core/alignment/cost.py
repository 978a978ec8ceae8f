"""Limits how long a comparison may delay the step that waits for it. Pure.

A step of N tokens costs at least three forward passes over them (one forward, and a backward that is two), besides
costs that do not depend on N. A forward pass over n tokens is therefore at most n / 3N of it.
"""

TOKENS = 256
"""tokens of the built-in text if no step waits: enough for a steady mean; one short prefill for the engine"""
FEWEST = 8
"""tokens: fewer would show next to nothing. A step of less than 54 tokens waits for longer than SHARE of its cost"""
FORWARDS = 3
"""least cost of a step, in forward passes over its tokens"""
SHARE = 0.05
"""share of the next step's cost that a comparison may take: half for the trainer's pass, the rest for the engine's
answer"""


def tokens_before(step: int) -> int:
    """Number of tokens to compare before a step of `step` tokens begins."""
    return min(TOKENS, max(FEWEST, int(SHARE / 2 * FORWARDS * step)))


def patience_s(step: int, probe: int, seconds: float) -> float:
    """The seconds that a step of `step` tokens waits for the engine, after the trainer took `seconds` for `probe`
    tokens."""
    return max(0.0, SHARE * FORWARDS * step / max(1, probe) - 1.0) * seconds
