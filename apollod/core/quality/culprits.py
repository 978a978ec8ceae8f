"""Which examples of a window made the model worse, found by replays without some of them. Pure.

A replay starts at the last good step, learns the window without the examples that it leaves out, and is measured:
good, bad or unclear. `next_replay` says what to leave out next, or the verdict; `told` takes the outcome. All that is
assumed is that leaving out more does not make a bad outcome of a good one: what follows from what was told is not
asked. Only what was told is kept, so a search that was open when this file changed goes on.

The search is a binary search over how many of the first examples are kept. The one at which good becomes bad is needed
for the damage (the progression of Marques-Silva, Janota and Belov 2013, "Minimal sets over monotone predicates in
boolean formulae", CAV); all before it are good together, and stay in while the rest is searched, so that two that do
harm only together cannot hide in two halves, as they do in plain group testing. In order:

 1. nothing is kept (only a measurement): is it bad, the damage was not done by the window;
 2. all is kept: is it good, the alarm does not repeat;
 3. search for the first culprit, ceil(log2 n) replays at most;
 4. it alone: is it bad, it explains the damage; else whom it needs is searched among those before it, up to TOGETHER;
 5. all but those found: is it good, the verdict; else the next culprit is searched behind the last.

What is unclear is asked again, ASKED_MAX times in all and with REPEATS repeats for each culprit that is looked for.
After that it counts as bad, since only what is clearly harmless is innocent; then each that was found is at last
learned together with the innocent ones, and is innocent itself if that is good.

Replays of a window of 128 with culprits at random places, 20 windows each, and the bound that is said beforehand (of a
search for that many); a test compares this table with what happens:

    culprits   mean  most  most_replays
           1   11.0    11            12
           2   18.6    19            21
           3   25.6    27            30
           4   32.6    35            39
           5   39.2    43            48
           6   45.4    50            57
      a pair   18.5    19            21

A pair: two that do harm only together.
"""

from collections import Counter
from collections.abc import Generator, Iterable
from typing import Literal, cast

import msgspec

Outcome = Literal["good", "bad", "unclear"]
Kind = Literal["named", "elsewhere", "not_repeated", "spread", "unfinished"]
"""named: the culprits, all others are good together. elsewhere: it is bad without any example of the window.
not_repeated: it is good with all of them. spread: more culprits than were looked for, or more that have to come
together; the damage is not one of single examples. unfinished: too many replays were unclear."""

REPEATS = 1
"""of unclear replays, for each culprit that is looked for"""
ASKED_MAX = 3
"""times that the same is asked"""
TOGETHER = 4
"""of examples that do harm only together, the most that are searched for"""
SHARE = 0.1
"""of the damage of the whole window, above which the damage of a replay is bad"""


class Told(msgspec.Struct, frozen=True):
    """A replay and its outcome."""

    left_out: tuple[int, ...]
    outcome: Outcome


class Search(msgspec.Struct, frozen=True):
    """`window`: how many examples, known by their position in the order of learning, from 0; `culprits`: how many are
    looked for at most."""

    window: int
    culprits: int
    told: tuple[Told, ...] = ()


class Replay(msgspec.Struct, frozen=True):
    """Ask this: the positions to leave out, ascending."""

    left_out: tuple[int, ...]


class Verdict(msgspec.Struct, frozen=True):
    """`culprits`: positions, ascending; `together`: of these, those that do harm only together (none or at least two);
    `suspects`: what was neither found nor shown to be innocent. Of `named`, `spread` and `unfinished` all others were
    good together in a replay."""

    kind: Kind
    culprits: tuple[int, ...] = ()
    together: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    replays: int = 0

    @property
    def held(self) -> tuple[int, ...]:
        """Whom to hold: culprits and suspects, ascending."""
        return tuple(sorted({*self.culprits, *self.suspects}))


Kept = frozenset[int]
_Asking = Generator[Kept, bool, Verdict]
_Found = Generator[Kept, bool, int]


def outcome(damage: float, window: float, noise: float = 0.0) -> Outcome:
    """What a replay says whose damage is so much, where that of the whole window is `window` (over 0), each measured
    against the window without any example, in one unit; `noise`: by how much `damage` may be wrong.

    The bound is SHARE of the window's damage and not the margin of the alarm: of several that each did a part, none
    alone would reach the margin. What stays in did SHARE of the damage at most."""
    if damage + noise <= SHARE * window:
        return "good"
    return "bad" if damage - noise > SHARE * window else "unclear"


def search(window: int, culprits: int = 8) -> Search:
    """A search that has not begun. ValueError without examples or culprits."""
    if window < 1 or culprits < 1:
        raise ValueError(f"{culprits} culprits in a window of {window}: at least one of each is needed")
    return Search(window, culprits)


def most_replays(window: int, culprits: int) -> int:
    """A search in which so many culprits are found takes at most so many replays while outcomes are clear, with REPEATS
    for those that are not. A search for at most so many stops there, whatever is told.

    3 (nothing, all, the first culprit alone) + culprits * (log + 1 (search, all others) + REPEATS), with
    log = ceil(log2 window). One that does harm only together counts as one: it takes a search, and what was found so
    far alone instead of all others."""
    return 3 + culprits * (_halvings(window) + 1 + REPEATS)


def told(before: Search, left_out: Iterable[int], outcome: Outcome) -> Search:
    """After the replay without these."""
    return msgspec.structs.replace(before, told=(*before.told, Told(tuple(sorted(left_out)), outcome)))


def next_replay(state: Search) -> Replay | Verdict:
    """What to ask next, or what came out."""
    known = _Known(state)
    searching = _search(state.window, state.culprits, known)
    try:
        kept = next(searching)
        while (bad := known.bad(kept)) is not None:
            kept = searching.send(bad)
    except StopIteration as over:
        return msgspec.structs.replace(cast(Verdict, over.value), replays=len(state.told))
    if len(state.told) >= most_replays(state.window, state.culprits):
        return known.stopped("unfinished", known.found)
    return Replay(tuple(one for one in range(state.window) if one not in kept))


def given_up(state: Search) -> Verdict:
    """The verdict where nothing else can be asked: innocent is what was good together."""
    return _Known(state).stopped("unfinished")


class _Known:
    """What follows from what was told; and of an open search, who is found and who is innocent."""

    def __init__(self, state: Search) -> None:
        everything = range(state.window)
        self.replays = len(state.told)
        self._window = frozenset(everything)
        asked = [(frozenset(everything).difference(one.left_out), one.outcome) for one in state.told]
        self._said = {kept: said == "bad" for kept, said in asked if said != "unclear"}
        self._good = [kept for kept, bad in self._said.items() if not bad]
        self._bad = [kept for kept, bad in self._said.items() if bad]
        unclear = [kept for kept, said in asked if said == "unclear"]
        self._unclear = Counter(unclear)
        self._repeats_max = REPEATS * state.culprits
        self._repeats = len(asked) - len({kept for kept, _ in asked})
        self.found: list[int] = []

    def bad(self, kept: Kept) -> bool | None:
        """None: it has to be asked."""
        if (said := self._said.get(kept)) is not None:
            return said
        if any(kept <= good for good in self._good):
            return False
        if any(kept >= bad for bad in self._bad):
            return True
        times = self._unclear[kept]
        if times == ASKED_MAX or (times and self._repeats >= self._repeats_max):
            return True
        return None

    def stopped(self, kind: Kind, culprits: Iterable[int] = (), together: tuple[int, ...] = ()) -> Verdict:
        """The verdict where not all was searched: innocent is the largest set that was good."""
        innocent = max(self._good, key=len, default=frozenset())
        named = set(culprits) - innocent
        suspects = self._window - innocent - named
        return Verdict(kind, tuple(sorted(named)), together, tuple(sorted(suspects)), self.replays)


def _search(window: int, most: int, known: _Known) -> _Asking:
    """Yields sets to keep, is sent whether they are bad."""
    everything = tuple(range(window))
    if (yield frozenset()):
        return Verdict("elsewhere")
    if not (yield frozenset(everything)):
        return Verdict("not_repeated")
    cleared: list[int] = []
    rest = list(everything)
    found, together = known.found, tuple[int, ...]()
    while True:
        if len(found) >= most:
            return known.stopped("spread", found, together)
        place = yield from _first(frozenset(cleared), rest)
        cleared += rest[:place]
        first, rest = rest[place], rest[place + 1 :]
        found.append(first)
        if len(found) == 1 and not (yield frozenset(found)):
            while not (yield frozenset(found)):
                if len(found) == TOGETHER:
                    return known.stopped("spread")
                place = yield from _first(frozenset(found), cleared)
                found.append(cleared.pop(place))
            together = tuple(sorted(found))
        if not (yield frozenset(cleared + rest)):
            break
    return (yield from _acquitted(frozenset(cleared + rest), together, known))


def _first(base: Kept, rest: list[int]) -> _Found:
    """The first place in `rest` up to which all, with `base`, is bad, where all of `rest` is and none of it is not."""
    low, high = 0, len(rest)  # the first `low` are good, the first `high` are bad
    while high - low > 1:
        middle = (low + high) // 2
        if (yield base | frozenset(rest[:middle])):
            high = middle
        else:
            low = middle
    return low


def _acquitted(innocent: Kept, together: tuple[int, ...], known: _Known) -> _Asking:
    """The verdict. Who was found only because a replay was unclear is learned once more with the innocent ones; of all
    others it is known that this is bad."""
    singles = [frozenset((one,)) for one in known.found if one not in together]
    named: Kept = frozenset()
    for group in [frozenset(together), *singles] if together else singles:
        if not (yield innocent | group):
            innocent |= group
        else:
            named |= group
    return Verdict("named", tuple(sorted(named)), together if named.issuperset(together) else ())


def _halvings(length: int) -> int:
    """ceil(log2 length)."""
    return (length - 1).bit_length()
