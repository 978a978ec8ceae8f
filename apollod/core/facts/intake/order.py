"""Orders the queue: direct examples first; then those whose answer depends most on stripped text, then in the order of
arrival; no source, session or topic takes more than its share while others wait.

Pure, a function of the state alone. The choice is in `step.started`, which readers of the journal use. A choice looks
at no more than LOOKAHEAD examples, however many wait.
"""

import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from apollod.core.facts.intake.state import IntakeState, Kin, Waiting
from apollod.core.schedules import DAY_NS

LOOKAHEAD = 256
"""examples at the head of the queue among which the next one is chosen"""
OLD_NS = DAY_NS
"""age relative to the newest example within reach from which an example is learned first, regardless of scores"""
SPAN = 256
"""consecutive examples of a window over which the share is kept; a longer window consists of such spans"""


class Pick(NamedTuple):
    """The chosen example. `place`: number of examples before it in the queue; `over`: groups beyond their share, as
    (kind, name), of the first one passed over; `all_over`: every example within reach was beyond a share."""

    waiting: Waiting
    place: int = 0
    over: tuple[tuple[str, str], ...] = ()
    all_over: bool = False


def first(intake: IntakeState, share_max: float) -> Waiting | None:
    """The next example; None if nothing waits."""
    pick = next(upcoming(intake, share_max), None)
    return pick.waiting if pick else None


def upcoming(intake: IntakeState, share_max: float) -> Iterator[Pick]:
    """The examples that are learned next if nothing else comes, in order. With shares, untokenised ones come after all
    tokenised ones, which is an approximation. Examples that wait for a first look or for more ratings are left out."""
    looks, gathered = intake.first_looks, intake.gathered
    yield from (Pick(one) for one in intake.direct.waiting if one.example not in looks and one.example not in gathered)
    if share_max >= 1.0 and not intake.scores:
        yield from (Pick(one) for one in intake.bulk.waiting if one.example not in gathered)
    else:
        yield from _shared(intake, share_max, gathered)


def _shared(intake: IntakeState, share_max: float, gathered: Container[str]) -> Iterator[Pick]:
    queue = intake.bulk
    ready = len(queue.waiting) - len(queue.untokenised)
    coming = (one for one in islice(queue.waiting, ready) if one.example not in gathered)
    reach = list(islice(coming, LOOKAHEAD))
    taken = [_groups(kin) for kin in intake.recent]
    counts = Counter(group for groups in taken for group in groups)
    while reach:
        at, pick = _choice(reach, _ranked(reach, intake.scores), counts, len(taken), share_max)
        yield pick
        del reach[at]
        reach += islice(coming, 1)
        taken.append(_groups(pick.waiting.kin))
        counts.update(taken[-1])
        if len(taken) >= SPAN:
            counts.subtract(taken.pop(0))
    yield from (Pick(one) for one in queue.untokenised)


def _ranked(reach: list[Waiting], scores: Mapping[str, float]) -> Sequence[int]:
    """Places in the order in which they are considered. Examples without a positive score keep their order."""
    if not scores:
        return range(len(reach))
    newest = max(one.since_ns for one in reach)

    def rank(place: int) -> tuple[bool, float]:
        one = reach[place]
        old = newest - one.since_ns > OLD_NS
        return not old, 0.0 if old else -max(0.0, scores.get(one.example, 0.0))

    return sorted(range(len(reach)), key=rank)


def _choice(
    reach: list[Waiting], ranked: Sequence[int], counts: "Counter[tuple[str, str]]", taken: int, share_max: float
) -> tuple[int, Pick]:
    """The first one in this order that keeps all shares; if there is none, the one whose groups have the fewest. An
    example to be learned alone after a failed step was chosen before."""
    if reach[0].alone:
        return 0, Pick(reach[0])
    most = max(1, math.ceil(share_max * (taken + 1) - 1e-9))  # a tenth of 30 is 3 in spite of rounding
    over: tuple[tuple[str, str], ...] = ()
    least, of_least = 0, -1
    for place in ranked:
        one = reach[place]
        groups = _groups(one.kin)
        had = max((counts[group] for group in groups), default=0)
        if had < most:
            return place, Pick(one, place, over)
        over = over or tuple(group for group in groups if counts[group] >= most)
        if of_least < 0 or had < of_least:
            least, of_least = place, had
    return least, Pick(reach[least], least, over, all_over=True)


def _groups(kin: Kin) -> tuple[tuple[str, str], ...]:
    """The known groups of an example."""
    named = (("source", kin.source), ("session", kin.session), ("topic", kin.topic))
    return tuple(group for group in named if group[1])
