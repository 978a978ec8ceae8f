"""Finds the examples of a window that made the model worse, by replays without some of them. Pure.

A replay starts at the last good step, learns the window without the examples that it leaves out, and is measured: the
drop of all metrics, in margins. `next_replay` returns the examples to leave out next, or the verdict; `told` takes the
drop. Only the drops are kept, so a search that was open when this file changed goes on with those that it has.

The damage of a replay is its drop, less that of the replay that learns nothing, as a share of the whole window's. What
leaving examples out takes off the damage is their part in it, beside all that the replay keeps. In order:

 1. nothing is kept: if the larger part of the drop is there, the window did not do it;
 2. all is kept: if the drop is small, the alarm does not repeat;
 3. the window is halved, and each half left out, beside the rest. The interval whose part is largest is halved
    next, down to single examples. An interval whose part is below OWN is not searched: no example in it can have a part
    of OWN. If neither half has a part in the damage of both, each does it without the other, as two examples that teach
    the same falsehood do. Then the last half is searched with the first one left out, and afterwards the first one
    without the culprits of the last;
 4. after each culprit: if at most SHARE of the damage is left without those found, the search is over;
 5. each culprit is put back by itself, and its part is measured beside all others, beside every second one of them, and
    beside the rest of them. One whose part is below OWN on average is innocent, and so is one whose part may be chance:
    another example less is another path, on which the damage may be more, and parts below 0 tell how far parts vary
    (SURE). The culprits are named if at most STAYS of the damage is left without them, of all others and of each half
    of them. What is left is of no single example. Where neither half of the others does damage with them, it takes the
    whole window, and none is named;
 6. else, and if more than SHARE is left of a search that ended early, since as many were found as are searched for, all
    examples are learned at each of LOWER in turn. If one of them is good, the rate is the cause, and none is named.
    Harm that falls with the rate, but not faster, is not caused by the rate: at the lower rates more of it is left than
    OF_RATE allows;
 7. if culprits are named and more than SHARE is left, the others are learned at each of LOWER in turn, up to the first
    that is good: they are learned again at that rate. If none is, the largest set of them that was good is innocent,
    and the others are suspects.

If neither half of the window is needed for the damage, each of `culprits` + 1 equal parts is learned alone, up to the
first that is good; if all are bad, the rate is asked about at once.

Examples are left out of the whole window, where the issue allows it, and not learned alone: the first steps of a fresh
optimizer do harm that later ones repair, whichever lines they learn, and a step shows its effect in later ones, through
the optimizer's moments (docs/decisions/0041). If two do harm only together, one of them is named: without it the other
does none.

Replays of a window of 128 with culprits at random places, 20 windows each, where each does a part of the damage, and
where each does all of it; a test compares this table with what happens:

    culprits   parts: mean  most   all: mean  most
           1          16.4    18        16.4    18
           2          30.1    36        31.4    37
           3          42.8    47        43.1    48
           4          51.8    57        53.3    59
           6          72.5    79        74.4    83
           8          89.2    95        91.2    97
"""

import math
from collections.abc import Generator, Iterable, Sequence
from typing import Literal, TypeVar, cast

import msgspec

Kind = Literal["named", "elsewhere", "not_repeated", "spread", "rate", "unfinished", "ranked"]
"""named: culprits found, no other does harm by itself. elsewhere: bad without any example of the window.
not_repeated: good with all of them. spread: more culprits than were searched for, or none that has a part of its own.
rate: the same, and all of them together do no damage at a lower learning rate. unfinished: the search was given up.
ranked: the same, and only the first ones of a ranking (`incidents.py`) are suspects."""

REPEATED = 0.5
"""least drop of the whole window, in margins, for a repeated alarm"""

OWN = 0.1
"""least part of the damage by which an example is named: a little less than each of 8 equal ones has"""

SHARE = OWN
"""share of the damage above which a replay is bad: below it no example is left that has a part of OWN"""

SHARE_OF_PART = 0.05
"""the same for one of the `culprits` + 1 parts alone, each of which does about a ninth if all examples harm alike"""

SURE = 2.5
"""standard deviations of a measured part, by which the average of an example's three parts has to be above 0"""

STAYS = 0.5
"""most damage that may be left when culprits are named. The examples that do it are learned again more slowly"""

LOWER = (1 / 4, 1 / 16, 1 / 64, 1 / 256)
"""shares of the learning rate, tried in this order"""

OF_RATE = 0.8
"""share of the damage expected at a lower rate, if it fell with the rate, above which a replay at that rate is bad"""


class Told(msgspec.Struct, frozen=True):
    """A replay and its drop, in margins. `lr_scale`: share of the learning rate at which each step was run."""

    left_out: tuple[int, ...]
    drop: float
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
    innocent. All others together did at most SHARE of the damage at this share of the learning rate (`lr_scale`)."""

    kind: Kind
    culprits: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    replays: int = 0
    lr_scale: float = 1.0

    @property
    def held(self) -> tuple[int, ...]:
        """The positions to hold: culprits and suspects, ascending."""
        return tuple(sorted({*self.culprits, *self.suspects}))


_Places = frozenset[int]
_T = TypeVar("_T")
_Asking = Generator[Replay, float, _T]
"""Yields replays, is sent the drop of each, and returns a `_T`."""


def search(window: int, culprits: int = 8) -> Search:
    """A new search. ValueError without examples or culprits."""
    if window < 1 or culprits < 1:
        raise ValueError(f"{culprits} culprits in a window of {window}: at least one of each is needed")
    return Search(window, culprits)


def longest(window: int, culprits: int) -> int:
    """Largest number of replays of a search for this many culprits, however it ends: nothing and all, two for each
    halving on the way to each culprit, two more for each, the parts, and what follows."""
    return 2 + culprits * (2 * (window - 1).bit_length() + 2) + culprits + 1 + _afterwards(culprits)


def _afterwards(culprits: int) -> int:
    """Largest number of replays after the search: those of the interval that is at hand, each culprit in three places,
    which are measured with and without all of them, and the lower rates, for all and for those not named."""
    return 4 + 3 * culprits + 5 + 2 * len(LOWER)


def _parts(window: int, culprits: int) -> list[_Places]:
    """The positions in `culprits` + 1 equal parts of the window; none if it is shorter."""
    count = culprits + 1
    if window < count:
        return []
    return [frozenset(range(window * one // count, window * (one + 1) // count)) for one in range(count)]


def told(before: Search, left_out: Iterable[int], drop: float, lr_scale: float = 1.0) -> Search:
    """The search after the replay without these positions, of this drop in margins."""
    return msgspec.structs.replace(before, told=(*before.told, Told(tuple(sorted(left_out)), drop, lr_scale)))


def next_replay(state: Search) -> Replay | Verdict:
    """The next replay, or the verdict."""
    known = {Replay(one.left_out, one.lr_scale): one.drop for one in reversed(state.told)}
    searching = _Searching(state.window, state.culprits).verdict()
    try:
        question = next(searching)
        while (drop := known.get(question)) is not None:
            question = searching.send(drop)
    except StopIteration as over:
        found = cast(Verdict, over.value)
        if found.suspects:
            found = _held(state, found.kind, found.culprits)
        return msgspec.structs.replace(found, replays=len(state.told))
    return question


def given_up(state: Search) -> Verdict:
    """The verdict if no further replay can be run: innocent are those that were good together."""
    return msgspec.structs.replace(_held(state, "unfinished"), replays=len(state.told))


def are_bad(state: Search) -> list[bool]:
    """The outcome of each replay so far, True if bad: more than SHARE of the damage is done, at rates so low that
    proportional harm is below SHARE more than OF_RATE of that; without any example, if the larger part of the drop is
    not of the window; with all, if the alarm repeats. Until both are known, only the latter says anything."""
    bad = list[bool]()
    nothing = whole = 0.0
    for number, one in enumerate(state.told):
        if number == 0:
            nothing = one.drop
            bad.append(len(state.told) > 1 and _is_elsewhere(nothing, state.told[1].drop - nothing))
        elif number == 1:
            whole = one.drop - nothing
            bad.append(whole > REPEATED)
        else:
            bad.append(one.drop - nothing > _bound(one.lr_scale) * whole)
    return bad


def _is_elsewhere(nothing: float, whole: float) -> bool:
    """True if the larger part of the drop, in margins, is there without any example of the window."""
    return nothing >= max(1.0, whole)


def _bound(lr_scale: float) -> float:
    """Share of the damage above which a replay at this share of the learning rate is bad."""
    return min(SHARE, OF_RATE * lr_scale)


def _held(state: Search, kind: Kind, culprits: Sequence[int] = ()) -> Verdict:
    """The verdict of an incomplete search: innocent is the largest set of examples that was good."""
    window = frozenset(range(state.window))
    outcomes = zip(state.told, are_bad(state), strict=True)
    good = [window.difference(one.left_out) for one, bad in outcomes if not bad and one.lr_scale == 1.0]
    innocent = max(good, key=len, default=frozenset[int]())
    named = set(culprits) - innocent
    return Verdict(kind, tuple(sorted(named)), tuple(sorted(window - innocent - named)))


class _Searching:
    """A search from its beginning. What it finds depends on the drops that it is sent alone."""

    def __init__(self, window: int, culprits: int) -> None:
        self._window, self._most = frozenset(range(window)), culprits
        self._limit = longest(window, culprits) - _afterwards(culprits)
        self._drops = dict[tuple[_Places, float], float]()
        self._nothing = self._whole = 0.0  # drop without any example; damage of all, in margins
        self._found = frozenset[int]()
        self._below = list[float]()  # parts below 0
        self._is_cut = False  # an interval with a part of OWN was not searched

    def verdict(self) -> _Asking[Verdict]:
        """The whole search."""
        self._nothing = yield from self._drop(self._window)
        self._whole = (yield from self._drop(frozenset())) - self._nothing
        if _is_elsewhere(self._nothing, self._whole):
            return Verdict("elsewhere")
        if self._whole <= REPEATED:
            return Verdict("not_repeated")
        yield from self._search(frozenset(), tuple(sorted(self._window)))
        named = bool(self._found) and (yield from self._is_shown())
        rest_harms = not named or (yield from self._damage(self._found)) > SHARE
        if (not named or (self._is_cut and rest_harms)) and (lower := (yield from self._good_rate(frozenset()))):
            return Verdict("rate", lr_scale=lower)
        found = tuple(sorted(self._found))
        if named and rest_harms and (lower := (yield from self._good_rate(self._found))):
            return Verdict("named", found, lr_scale=lower)
        rest = tuple(sorted(self._window - self._found)) if rest_harms else ()
        return Verdict("named" if named else "spread", found, rest)

    def _good_rate(self, left_out: _Places) -> _Asking[float]:
        """The highest of LOWER at which the examples do no damage without these; 0 if at none."""
        for lr_scale in LOWER:
            if (yield from self._damage(left_out, lr_scale)) <= _bound(lr_scale):
                return lr_scale
        return 0.0

    def _search(self, out: _Places, inside: tuple[int, ...]) -> _Asking[None]:
        """Find the culprits `inside` this interval, while those of `out` are left out, too. The interval that had the
        largest part when its other half was measured comes first."""
        waiting = [(1.0, inside)]
        while waiting and (yield from self._damage(out | self._found)) > SHARE:
            waiting.sort()
            _, inside = waiting.pop()
            if len(self._drops) >= self._limit:
                self._is_cut = True
                return
            if (own := (yield from self._part(out, inside))) < OWN:
                continue
            if len(self._found) == self._most:
                self._is_cut = True
                return
            if len(inside) == 1:
                self._found |= {*inside}
                continue
            first, last = inside[: len(inside) // 2], inside[len(inside) // 2 :]
            of_first = yield from self._part(out, first)
            of_last = own - of_first if of_first > own - OWN else (yield from self._part(out, last))
            if max(of_first, of_last) >= own / 3:
                waiting += [(of_first, first), (of_last, last)]
                continue
            # each does the damage without the other
            if not out and not self._found and (yield from self._all_bad()):
                return  # every part of the window does it: the rate is asked about
            yield from self._search(out.union(first), last)
            waiting.append((own, first))

    def _is_shown(self) -> _Asking[bool]:
        """Drop those found that have no part of their own; True if the others explain the damage.

        A replay without a few examples may do less damage by chance. So the part of each is measured beside all other
        examples, and beside either every second one of them, and the average counts, against what parts vary by in
        this search. Of every second one, too, those
        found have to do the larger part of the damage. One half of the others may do none with them, as where two do
        harm together, but not both: then it takes the whole window."""
        others = sorted(self._window - self._found)
        halves = (frozenset(others[::2]), frozenset(others[1::2]))
        for one in sorted(self._found):
            own = 0.0
            for out in (frozenset[int](), *halves):
                without = self._found | out
                own += self._kept((yield from self._damage(without - {one})) - (yield from self._damage(without)))
            if own / 3 < max(OWN, SURE * self._spread() / math.sqrt(3)):
                self._found -= {one}
        if not self._found or (yield from self._damage(self._found)) > STAYS:
            return False
        shown = False
        for half in halves:
            beside, left = (yield from self._damage(half)), (yield from self._damage(half | self._found))
            if beside > SHARE and left > STAYS * beside:
                return False
            shown |= beside > SHARE
        return shown

    def _all_bad(self) -> _Asking[bool]:
        """True if there are parts, and each is bad alone."""
        alone = _parts(len(self._window), self._most)
        for part in alone:
            if (yield from self._damage(self._window - part)) <= SHARE_OF_PART:
                return False
        return bool(alone)

    def _part(self, out: _Places, inside: Sequence[int]) -> _Asking[float]:
        """The damage that leaving these out takes off, beside `out` and the culprits."""
        without = out | self._found
        return self._kept((yield from self._damage(without)) - (yield from self._damage(without.union(inside))))

    def _kept(self, part: float) -> float:
        if part < 0:
            self._below.append(part)
        return part

    def _spread(self) -> float:
        """Standard deviation of what a part would be measured as if it were 0, from those below 0."""
        return math.sqrt(math.fsum(one * one for one in self._below) / max(1, len(self._below)))

    def _damage(self, left_out: _Places, lr_scale: float = 1.0) -> _Asking[float]:
        """The damage of a replay, as a share of the whole window's."""
        return ((yield from self._drop(left_out, lr_scale)) - self._nothing) / self._whole

    def _drop(self, left_out: _Places, lr_scale: float = 1.0) -> _Asking[float]:
        """The drop of a replay, in margins. It is asked for once."""
        if (left_out, lr_scale) not in self._drops:
            self._drops[left_out, lr_scale] = yield Replay(tuple(sorted(left_out)), lr_scale)
        return self._drops[left_out, lr_scale]
