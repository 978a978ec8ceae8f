"""Orders the queue: direct examples first; of the others those whose answer owes most to text that was stripped, then
in the order in which they came; no source, session or topic takes more than its share while others wait.

Pure, and told from the state alone. What was chosen is in `step.started`, and whoever reads the journal takes that. A
choice looks at no more than LOOKAHEAD examples, however many wait.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from apollod.core.intake.state import IntakeState, Kin, Waiting
from apollod.core.schedules import DAY_NS

LOOKAHEAD = 256
"""examples at the head of the queue among which the next one is chosen"""
OLD_NS = DAY_NS
"""an example that came so long before the newest one within reach is learned before it, whatever their scores"""
SPAN = 256
"""consecutive examples of a window in which the share is kept; a longer window is made of such spans"""


class Pick(NamedTuple):
    """An example that is next. `place`: how many were before it in the queue when it was chosen; `over`: what of those
    had more than its share, as (kind, name), for the first of them; `all_over`: everything within reach had."""

    waiting: Waiting
    place: int = 0
    over: tuple[tuple[str, str], ...] = ()
    all_over: bool = False


def first(intake: IntakeState, share_max: float) -> Waiting | None:
    """The example that is next; None if nothing waits."""
    pick = next(upcoming(intake, share_max), None)
    return pick.waiting if pick else None


def upcoming(intake: IntakeState, share_max: float) -> Iterator[Pick]:
    """The examples that are learned next if nothing else comes, in order, as far as one can tell: where shares count,
    what is not tokenised yet comes after all that is, and only as many are told as can be reached. Without those that
    wait for a first look."""
    yield from (Pick(one) for one in intake.direct.waiting if one.example not in intake.first_looks)
    in_order = share_max >= 1.0 and not intake.scores
    yield from (Pick(one) for one in intake.bulk.waiting) if in_order else _shared(intake, share_max)


def _shared(intake: IntakeState, share_max: float) -> Iterator[Pick]:
    queue = intake.bulk
    ready = len(queue.waiting) - len(queue.untokenised)
    coming = islice(queue.waiting, ready)
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
    """Places in the order in which they are looked at. What was not scored, or owes nothing, keeps its order."""
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
    """The first one in this order that leaves all shares kept; where there is none, the one of which least was taken.
    What a failed step wants to be learned alone was chosen before."""
    if reach[0].alone:
        return 0, Pick(reach[0])
    most = max(1, math.ceil(share_max * (taken + 1) - 1e-9))  # of a tenth of 30 it is 3, however that is rounded
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
    """The groups of an example, as far as they are known."""
    named = (("source", kin.source), ("session", kin.session), ("topic", kin.topic))
    return tuple(group for group in named if group[1])
