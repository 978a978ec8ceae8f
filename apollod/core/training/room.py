"""Limits the tokens of one step, examples and anchors together: the figure for which memory is planned. Pure.

What counts is what goes through the model at once: of examples that are one batch, and of the anchors, which are
another, the longest of them times how many there are, since shorter ones are filled up.
"""

from apollod.core.holding.choice import HELD_MAX, SHORT

HELD_ROOM = HELD_MAX * SHORT
"""tokens of anchors beside an example of `max_tokens`; a shorter one leaves more"""


def bounds(max_tokens: int, holds: bool) -> tuple[int, ...]:
    """Figures that memory may be planned for, the one that is wished for first: room for several anchors beside the
    longest examples, for one, for none, or for none beside examples of half that length. One example alone may always
    have `max_tokens`."""
    if not holds:
        return (max_tokens, max_tokens // 2)
    return (max_tokens + HELD_ROOM, max_tokens + SHORT, max_tokens, max_tokens // 2)


def tokens_bound(max_tokens: int, holds: bool, planned: int = 0) -> int:
    """The figure in force. `planned`: what memory was planned for; 0: it is not known."""
    wished = bounds(max_tokens, holds)[0]
    return min(wished, planned) if planned else wished


def practice_bound(max_tokens: int, bound: int, held: int) -> int:
    """Tokens of the practices of one step, where the anchors have so many: both as they are if they fit, else at
    least half of the bound."""
    return min(max_tokens, max(bound // 2, bound - held))
