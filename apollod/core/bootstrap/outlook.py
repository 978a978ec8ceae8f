"""Estimates the remaining time of a bootstrap. Shown to people; no decision depends on it."""

from collections.abc import Iterable, Sequence
from itertools import islice

from apollod.core.intake.state import Waiting
from apollod.core.training.pace import Pace, expected_s

LOOKED_AT = 64
"""number of queued examples whose lengths are averaged"""


def typical_tokens(recent: Sequence[Pace], queue: Iterable[Waiting]) -> int:
    """Mean tokens of an example: of waiting ones or, if none is tokenised, of the last steps; 0: not known."""
    lengths = [one.tokens for one in islice(queue, LOOKED_AT) if one.tokens] or [pace.tokens for pace in recent]
    return round(sum(lengths) / len(lengths)) if lengths else 0


def to_come(accepted: int, share: float | None) -> int | None:
    """Expected examples from the rest of a source, in proportion to the `share` that was read (None: not known). None
    if it cannot be estimated."""
    if share is None or (not share and not accepted):
        return None
    return round(accepted * (1 / share - 1)) if share else None


def left_s(recent: Sequence[Pace], tokens: int, waiting: int, accepted: int, share: float | None) -> float | None:
    """Seconds of steps for waiting examples and those expected from the rest of the source, in proportion to the
    `share` that was read (None: not known). None if it cannot be estimated, or no step was timed yet."""
    each = expected_s(recent, tokens)
    if each is None or share is None or (not share and not waiting):
        return None
    to_come = accepted * (1 / share - 1) if share else 0.0
    return each * (waiting + to_come)
