"""Limits the tokens of one step, examples and anchors together, for which memory is planned. Pure.

The limit concerns tokens that go through the model at once: a batch of examples and the batch of anchors, each with the
longest length times the count, since shorter ones are padded.
"""

from apollod.core.holding.choice import HELD_MAX, SHORT

HELD_ROOM = HELD_MAX * SHORT
"""tokens of anchors beside an example of `max_tokens`; a shorter one leaves more"""


def bounds(max_tokens: int, holds: bool) -> tuple[int, ...]:
    """Limits for which memory may be planned, the preferred one first: room for several anchors beside the longest
    examples, for one, for none, or for none beside examples of half that length. One example alone may always have
    `max_tokens`."""
    if not holds:
        return (max_tokens, max_tokens // 2)
    return (max_tokens + HELD_ROOM, max_tokens + SHORT, max_tokens, max_tokens // 2)


def tokens_bound(max_tokens: int, holds: bool, planned: int = 0) -> int:
    """The limit in force. `planned`: the limit for which memory was planned; 0: not known."""
    wished = bounds(max_tokens, holds)[0]
    return min(wished, planned) if planned else wished


def practice_bound(max_tokens: int, bound: int, held: int) -> int:
    """Most tokens of the practices of one step beside `held` tokens of anchors: the rest of the bound, but at least
    half of it."""
    return min(max_tokens, max(bound // 2, bound - held))
