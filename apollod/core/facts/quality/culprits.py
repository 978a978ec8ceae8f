"""Finds the examples of a window that made the model worse, by replays without some of them. Pure.

A replay starts at the last good step, learns the window without the examples that it leaves out, and is measured: good
or bad. `next_replay` returns the examples to leave out next, or the verdict; `told` takes the outcome. The only
assumption is that leaving out more never turns a good outcome into a bad one: outcomes that follow from earlier ones
are not asked. Only the outcomes are kept, so a search that was open when this file changed goes on.

The search is a binary search over the number of last examples that are kept. The first example at which good becomes
bad is needed for the damage (the progression of Marques-Silva, Janota and Belov 2013, "Minimal sets over monotone
predicates in boolean formulae", CAV); all after it are good together, and are kept while the rest is searched, so that
two that do harm only together cannot hide in two halves, as in plain group testing. The last examples are kept, not the
first: a step has lasting effects through the optimizer's moments, so that a culprit shows only together with later
examples. In order:

 1. nothing is kept (only a measurement): if bad, the window did not do the damage;
 2. all is kept: if good, the alarm does not repeat;
 3. search for the last culprit, ceil(log2 n) replays at most;
 4. all but those found: if good, the verdict; else, once, test whether each of `culprits` + 1 equal parts of the window
    is bad alone, up to the first that is not; then the next culprit is searched before the last one.

Parts that are all bad have a culprit each, more than are searched for: then, as after an incomplete search that found
its `culprits`, all examples are learned at each of LOWER in turn. If one is good, the rate is the cause: none is named.
Harm that falls with the rate, but not faster, is not caused by the rate: at the lower rates more of it is left than
OF_RATE allows. A window of no more examples than are searched for is always searched to its end.

If several do harm only together, the first one in the window is named: without it the others do none.

Replays of a window of 128 with culprits at random places, 20 windows each, and the bound that is said beforehand (of a
search for that many); a test compares this table with what happens:

    culprits   mean  most  most_replays
           1   10.0    10            10
           2   18.2    19            21
           3   25.5    27            30
           4   32.1    35            39
           5   38.4    41            48
           6   45.8    51            57
"""

from collections.abc import Generator, Iterable
from typing import Literal, cast

import msgspec

Kind = Literal["named", "elsewhere", "not_repeated", "spread", "rate", "unfinished", "ranked"]
"""named: culprits found, all others are good together. elsewhere: bad without any example of the window. not_repeated:
good with all of them. spread: more culprits than were searched for; the damage is not that of single examples. rate:
the same, and all of them together do no damage at a lower learning rate. unfinished: the search was given up. ranked:
the same, and only the first ones of a ranking (`ranking.py`) are suspects."""

SHARE = 0.15
"""share of the whole window's damage above which a replay is bad"""

SHARE_OF_PART = 0.05
"""the same for one of the `culprits` + 1 parts alone, each of which does about a ninth if all examples harm alike"""

LOWER = (1 / 4, 1 / 16, 1 / 64, 1 / 256)
"""shares of the learning rate, tried in this order"""

OF_RATE = 0.8
"""share of the damage expected at a lower rate, if it fell with the rate, above which a replay at that rate is bad"""


class Told(msgspec.Struct, frozen=True):
    """A replay and its outcome. `lr_scale`: share of the learning rate at which each step was run."""

    left_out: tuple[int, ...]
    bad: bool
    lr_scale: float = 1.0


class Search(msgspec.Struct, frozen=True):
    """A search before its first replay. `window`: number of examples, identified by their position in the order of
    learning, from 0; `culprits`: most culprits to find."""

    window: int
    culprits: int
    told: tuple[Told, ...] = ()


class Replay(msgspec.Struct, frozen=True):
    """The next replay to ask for: the positions to leave out, ascending; `lr_scale` as in `Told`."""

    left_out: tuple[int, ...]
    lr_scale: float = 1.0


class Verdict(msgspec.Struct, frozen=True):
    """The end of a search. `culprits`: positions, ascending; `suspects`: positions neither found guilty nor shown to be
    innocent. For `named`, `spread` and `unfinished` all others were good together in a replay; for `rate`, all were at
    this share of the learning rate (`lr_scale`)."""

    kind: Kind
    culprits: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    replays: int = 0
    lr_scale: float = 1.0

    @property
    def held(self) -> tuple[int, ...]:
        """The positions to hold: culprits and suspects, ascending."""
        return tuple(sorted({*self.culprits, *self.suspects}))


Kept = frozenset[int]
_Question = Kept | float
"""A replay that keeps these positions, or that keeps all at this share of the learning rate: is it bad?"""
_Asking = Generator[_Question, bool, Verdict]


def is_bad(damage: float, window: float, lr_scale: float = 1.0, part: bool = False) -> bool:
    """True if a replay with this damage is bad, given the damage `window` (over 0) of the whole window, both relative
    to the window without any example, in the same unit. `lr_scale` as in `Told`; `part`: it keeps one of `parts`.

    The bound is SHARE of the window's damage and not the margin of the alarm: several examples that each did a part
    would not reach the margin alone. The kept examples did at most SHARE of the damage. At rates so low that
    proportional harm would be below SHARE, the bound falls with the rate."""
    return damage > min(SHARE_OF_PART if part else SHARE, OF_RATE * lr_scale) * window


def parts(window: int, culprits: int) -> list[frozenset[int]]:
    """The positions in `culprits` + 1 equal parts of the window; none if it is shorter."""
    count = culprits + 1
    if window < count:
        return []
    return [frozenset(range(window * one // count, window * (one + 1) // count)) for one in range(count)]


def search(window: int, culprits: int = 8) -> Search:
    """A new search. ValueError without examples or culprits."""
    if window < 1 or culprits < 1:
        raise ValueError(f"{culprits} culprits in a window of {window}: at least one of each is needed")
    return Search(window, culprits)


def most_replays(window: int, culprits: int) -> int:
    """Largest number of replays of a search that finds this many culprits:

    2 (nothing, all) + culprits * (ceil(log2 window) (search) + 1 (all others))
    + culprits + 1 (parts up to the first that is good), of several"""
    alone = culprits + 1 if 1 < culprits < window else 0
    return 2 + culprits * ((window - 1).bit_length() + 1) + alone


def longest(window: int, culprits: int) -> int:
    """Largest number of replays of a search for this many culprits, however it ends."""
    beyond = culprits + 1 + len(LOWER) if culprits < window else 0
    return 2 + culprits * ((window - 1).bit_length() + 1) + beyond


def told(before: Search, left_out: Iterable[int], bad: bool, lr_scale: float = 1.0) -> Search:
    """The search after the replay without these positions."""
    return msgspec.structs.replace(before, told=(*before.told, Told(tuple(sorted(left_out)), bad, lr_scale)))


def next_replay(state: Search) -> Replay | Verdict:
    """The next replay, or the verdict."""
    known = _Known(state)
    searching = _search(state.window, state.culprits, known)
    try:
        question = next(searching)
        while (bad := known.bad(question)) is not None:
            question = searching.send(bad)
    except StopIteration as over:
        return msgspec.structs.replace(cast(Verdict, over.value), replays=len(state.told))
    if isinstance(question, float):
        return Replay((), question)
    return Replay(tuple(one for one in range(state.window) if one not in question))


def given_up(state: Search) -> Verdict:
    """The verdict if no further replay can be run: innocent are those that were good together."""
    return msgspec.structs.replace(_Known(state).stopped("unfinished"), replays=len(state.told))


class _Known:
    """Conclusions from the replays so far."""

    def __init__(self, state: Search) -> None:
        self._window = frozenset(range(state.window))
        full = [one for one in state.told if one.lr_scale == 1.0]
        self._good = [self._window.difference(one.left_out) for one in full if not one.bad]
        self._bad = [self._window.difference(one.left_out) for one in full if one.bad]
        self._lower = {one.lr_scale: one.bad for one in state.told if one.lr_scale != 1.0}

    def bad(self, kept: _Question) -> bool | None:
        """True if a replay that keeps these is bad; None: it has to be run. The outcome of a replay takes precedence
        over conclusions. Other rates allow none."""
        if isinstance(kept, float):
            return self._lower.get(kept)
        if kept in self._bad:
            return True
        if any(kept <= good for good in self._good):
            return False
        return True if any(kept >= bad for bad in self._bad) else None

    def stopped(self, kind: Kind, culprits: Iterable[int] = ()) -> Verdict:
        """The verdict of an incomplete search: innocent is the largest set that was good."""
        innocent = max(self._good, key=len, default=frozenset())
        named = set(culprits) - innocent
        return Verdict(kind, tuple(sorted(named)), tuple(sorted(self._window - innocent - named)))


def _search(window: int, most: int, known: _Known) -> _Asking:
    """Generate the questions of a search; each is answered with True if bad."""
    if (yield frozenset()):
        return Verdict("elsewhere")
    if not (yield frozenset(range(window))):
        return Verdict("not_repeated")
    cleared = frozenset[int]()  # after the culprit found last; good together
    rest, found = window, list[int]()
    while True:
        if len(found) == most:
            return (yield from _of_the_rate()) or known.stopped("spread", found)
        # All from `low` on are bad with what was cleared, all from `high` on are good.
        low, high = 0, rest
        while high - low > 1:
            middle = (low + high) // 2
            if (yield cleared | frozenset(range(middle, rest))):
                low = middle
            else:
                high = middle
        found.append(low)
        cleared |= frozenset(range(low + 1, rest))
        rest = low
        if not (yield cleared | frozenset(range(rest))):
            return Verdict("named", tuple(sorted(found)))
        if len(found) == 1 and (yield from _all_bad(parts(window, most))) and (verdict := (yield from _of_the_rate())):
            return verdict


def _all_bad(alone: list[frozenset[int]]) -> Generator[_Question, bool, bool]:
    """True if there are parts, and each is bad alone."""
    for part in alone:
        if not (yield part):
            return False
    return bool(alone)


def _of_the_rate() -> Generator[_Question, bool, Verdict | None]:
    """The verdict that the learning rate is the cause; None: lower rates do harm, too."""
    for lr_scale in LOWER:
        if not (yield lr_scale):
            return Verdict("rate", lr_scale=lr_scale)
    return None
