"""Find the examples of a window that made the model worse, by replays without some of them. Pure.

A replay starts at the last good step, learns the window without the examples that it leaves out, and is measured: good
or bad. `next_replay` says what to leave out next, or the verdict; `told` takes the outcome. All that is assumed is that
leaving out more does not make a bad outcome of a good one: what follows from what was told is not asked. Only what was
told is kept, so a search that was open when this file changed goes on.

The search is a binary search over how many of the last examples are kept. The first of them at which good becomes bad
is needed for the damage (the progression of Marques-Silva, Janota and Belov 2013, "Minimal sets over monotone
predicates in boolean formulae", CAV); all behind it are good together, and stay in while the rest is searched, so that
two that do harm only together cannot hide in two halves, as they do in plain group testing. The last examples and not
the first: what a step does is not over with it, since the optimizer's moments outlast it, so that a culprit shows only
with what was learned after it. In order:

 1. nothing is kept (only a measurement): is it bad, the damage was not done by the window;
 2. all is kept: is it good, the alarm does not repeat;
 3. search for the last culprit, ceil(log2 n) replays at most;
 4. all but those found: is it good, the verdict; else, once, whether each of `culprits` + 1 equal parts of the window
    is bad alone, up to the first that is not; then the next culprit is searched before the last one.

Parts that are all bad have a culprit each, more than are looked for: then, as after a search that found its `culprits`
and is not at its end, all examples are learned at each of LOWER in turn. Is it good, the rate did it: none is named.
Harm that falls with the rate, but not faster, is none of the rate: at the lower ones more of it is left than OF_RATE
allows. A window of no more examples than are looked for is always searched to its end.

Of several that do harm only together the first one in the window is named: without it the others do none.

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
"""named: the culprits, all others are good together. elsewhere: it is bad without any example of the window.
not_repeated: it is good with all of them. spread: more culprits than were looked for; the damage is not one of single
examples. rate: the same, and at a lower learning rate all of them together do none. unfinished: the search was given
up. ranked: the same, and of those that may have done it some stand first (`ranking.py`), which alone are suspects."""

SHARE = 0.05
"""of the damage of the whole window, above which the damage of a replay is bad"""

LOWER = (1 / 4, 1 / 16, 1 / 64, 1 / 256)
"""of the learning rate, tried in this order"""

OF_RATE = 0.8
"""of what would be left of the damage at a lower rate if it fell as the rate does, above which it is bad there, too"""


class Told(msgspec.Struct, frozen=True):
    """A replay and its outcome. `lr_scale`: of the learning rate of each step, the share that it was run at."""

    left_out: tuple[int, ...]
    bad: bool
    lr_scale: float = 1.0


class Search(msgspec.Struct, frozen=True):
    """A search before its first replay. `window`: how many examples, known by their position in the order of learning,
    from 0; `culprits`: how many are looked for at most."""

    window: int
    culprits: int
    told: tuple[Told, ...] = ()


class Replay(msgspec.Struct, frozen=True):
    """The next replay to ask for: the positions to leave out, ascending; `lr_scale` as in `Told`."""

    left_out: tuple[int, ...]
    lr_scale: float = 1.0


class Verdict(msgspec.Struct, frozen=True):
    """The end of a search. `culprits`: positions, ascending; `suspects`: what was neither found nor shown to be
    innocent. Of `named`, `spread` and `unfinished` all others were good together in a replay; of `rate`, all at this
    share of the learning rate (`lr_scale`)."""

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
"""Is a replay bad that keeps these; or that keeps all, at this share of the learning rate?"""
_Asking = Generator[_Question, bool, Verdict]


def is_bad(damage: float, window: float, lr_scale: float = 1.0) -> bool:
    """True if a replay with this damage is bad, where that of the whole window is `window` (over 0), each measured
    against the window without any example, in one unit. `lr_scale` as in `Told`.

    The bound is SHARE of the window's damage and not the margin of the alarm: of several that each did a part, none
    alone would reach the margin. What stays in did SHARE of the damage at most. At rates so low that harm in proportion
    to them would be less, the bound falls with the rate."""
    return damage > min(SHARE, OF_RATE * lr_scale) * window


def search(window: int, culprits: int = 8) -> Search:
    """A search that has not begun. ValueError without examples or culprits."""
    if window < 1 or culprits < 1:
        raise ValueError(f"{culprits} culprits in a window of {window}: at least one of each is needed")
    return Search(window, culprits)


def most_replays(window: int, culprits: int) -> int:
    """A search in which so many culprits are found takes at most so many replays:

    2 (nothing, all) + culprits * (ceil(log2 window) (search) + 1 (all others))
    + culprits + 1 (parts up to the first that is good), of several"""
    parts = culprits + 1 if 1 < culprits < window else 0
    return 2 + culprits * ((window - 1).bit_length() + 1) + parts


def longest(window: int, culprits: int) -> int:
    """A search for so many culprits takes at most so many replays, however it ends."""
    beyond = culprits + 1 + len(LOWER) if culprits < window else 0
    return 2 + culprits * ((window - 1).bit_length() + 1) + beyond


def told(before: Search, left_out: Iterable[int], bad: bool, lr_scale: float = 1.0) -> Search:
    """The search after the replay without these."""
    return msgspec.structs.replace(before, told=(*before.told, Told(tuple(sorted(left_out)), bad, lr_scale)))


def next_replay(state: Search) -> Replay | Verdict:
    """The replay to ask for next, or the verdict."""
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
    """The verdict where nothing else can be asked: innocent is what was good together."""
    return msgspec.structs.replace(_Known(state).stopped("unfinished"), replays=len(state.told))


class _Known:
    """The conclusions from the replays so far."""

    def __init__(self, state: Search) -> None:
        self._window = frozenset(range(state.window))
        full = [one for one in state.told if one.lr_scale == 1.0]
        self._good = [self._window.difference(one.left_out) for one in full if not one.bad]
        self._bad = [self._window.difference(one.left_out) for one in full if one.bad]
        self._lower = {one.lr_scale: one.bad for one in state.told if one.lr_scale != 1.0}

    def bad(self, kept: _Question) -> bool | None:
        """True if a replay that keeps these is bad; None: it has to be made. The outcome of one that was made stands,
        whatever else would follow. Nothing follows from other rates."""
        if isinstance(kept, float):
            return self._lower.get(kept)
        if kept in self._bad:
            return True
        if any(kept <= good for good in self._good):
            return False
        return True if any(kept >= bad for bad in self._bad) else None

    def stopped(self, kind: Kind, culprits: Iterable[int] = ()) -> Verdict:
        """The verdict where not all was searched: innocent is the largest set that was good."""
        innocent = max(self._good, key=len, default=frozenset())
        named = set(culprits) - innocent
        return Verdict(kind, tuple(sorted(named)), tuple(sorted(self._window - innocent - named)))


def _search(window: int, most: int, known: _Known) -> _Asking:
    """Search by a generator: it yields sets to keep, and is sent whether each is bad."""
    if (yield frozenset()):
        return Verdict("elsewhere")
    if not (yield frozenset(range(window))):
        return Verdict("not_repeated")
    cleared = frozenset[int]()  # behind the culprit that was found last, good together
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
        if len(found) == 1 and (yield from _all_bad(window, most + 1)) and (verdict := (yield from _of_the_rate())):
            return verdict


def _all_bad(window: int, parts: int) -> Generator[_Question, bool, bool]:
    """True if each of so many equal parts of the window is bad alone."""
    if window < parts:
        return False
    for part in range(parts):
        if not (yield frozenset(range(window * part // parts, window * (part + 1) // parts))):
            return False
    return True


def _of_the_rate() -> Generator[_Question, bool, Verdict | None]:
    """The verdict that the rate did it; None: harm is done at lower ones, too."""
    for lr_scale in LOWER:
        if not (yield lr_scale):
            return Verdict("rate", lr_scale=lr_scale)
    return None
