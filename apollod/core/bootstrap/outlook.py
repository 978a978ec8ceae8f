"""Estimates how long a bootstrap still takes. Shown to people; no decision depends on it."""

from collections.abc import Iterable, Sequence
from itertools import islice

from apollod.core.intake.state import Waiting
from apollod.core.training.pace import Pace, expected_s

LOOKED_AT = 64
"""examples in the queue whose length stands for that of the others"""


def typical_tokens(recent: Sequence[Pace], queue: Iterable[Waiting]) -> int:
    """Of an example, by those that wait and, where none of them is tokenised, by the last steps; 0: nothing is
    known."""
    lengths = [one.tokens for one in islice(queue, LOOKED_AT) if one.tokens] or [pace.tokens for pace in recent]
    return round(sum(lengths) / len(lengths)) if lengths else 0


def to_come(accepted: int, share: float | None) -> int | None:
    """Examples that the rest of a source will probably give, if it gives as much as the `share` that was read (None:
    nothing is known of it). None where that says nothing."""
    if share is None or (not share and not accepted):
        return None
    return round(accepted * (1 / share - 1)) if share else None


def left_s(recent: Sequence[Pace], tokens: int, waiting: int, accepted: int, share: float | None) -> float | None:
    """Seconds of steps for what waits and for what the rest of the source will probably give, if it gives as much as
    the `share` that was read (None: nothing is known of it). None where no step tells how long one takes."""
    each = expected_s(recent, tokens)
    if each is None or share is None or (not share and not waiting):
        return None
    to_come = accepted * (1 / share - 1) if share else 0.0
    return each * (waiting + to_come)
