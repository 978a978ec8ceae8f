"""The state of `apollod ctl review`: what is on screen and what was decided so far, without a terminal, a socket or a
journal.

Law: nothing here decides about an example. Each step takes a sitting and what happened, and gives the next sitting.
"""

from collections.abc import Container, Iterable
from typing import Literal

import msgspec

from apollod.cli.control.review.held_queue import Change

Done = Literal["approved", "declined", "edited"]


class Decided(msgspec.Struct, frozen=True):
    """A decision made in this sitting. `into`: the example that they wrote instead."""

    example: str
    how: Done
    into: str = ""


class Sitting(msgspec.Struct, frozen=True):
    """The queue as it stands on the screen."""

    waiting: tuple[str, ...] = ()
    """ids, in the order in which they are shown"""
    current: str = ""
    """the one that is shown; empty: none is"""
    decided: tuple[Decided, ...] = ()
    """by this person, the newest last; each can be taken back"""
    filter: str = ""
    found: frozenset[str] | None = None
    """what the filter lets through; None: everything"""

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids among which one moves."""
        return self.waiting if self.found is None else tuple(one for one in self.waiting if one in self.found)

    @property
    def place(self) -> int:
        """Of the current one among those, from 1; 0: none is shown."""
        return self.shown.index(self.current) + 1 if self.current else 0

    @property
    def last(self) -> Decided | None:
        """The decision that is taken back next."""
        return self.decided[-1] if self.decided else None

    def count(self, how: Done) -> int:
        """The number of examples that this person decided so."""
        return sum(one.how == how for one in self.decided)

    # --- moving ---------------------------------------------------------------------------------------------------

    def moved(self, by: int) -> "Sitting":
        """To another one; after the last comes the first."""
        shown = self.shown
        return self._at(shown[(shown.index(self.current) + by) % len(shown)]) if self.current else self

    def filtered(self, text: str, found: frozenset[str] | None) -> "Sitting":
        """Only these are shown."""
        return msgspec.structs.replace(self, filter=text, found=found)._settled()

    # --- what became of examples ----------------------------------------------------------------------------------

    def arrived(self, examples: Iterable[str]) -> "Sitting":
        """They wait, too."""
        known = frozenset(self.waiting)
        more = tuple(one for one in dict.fromkeys(examples) if one not in known)
        return msgspec.structs.replace(self, waiting=(*self.waiting, *more))._settled() if more else self

    def decides(self, decided: Decided) -> "Sitting":
        """This person decided; the next one is shown."""
        return msgspec.structs.replace(self._without({decided.example}), decided=(*self.decided, decided))

    def takes_back(self) -> "Sitting":
        """The last decision was taken back; what it was about is shown again."""
        again = self.decided[-1].example
        at = self.waiting.index(self.current) if self.current else len(self.waiting)
        rest = tuple(one for one in self.waiting if one != again)
        waiting = (*rest[:at], again, *rest[at:])
        found = self.found if self.found is None else self.found | {again}
        return msgspec.structs.replace(self, waiting=waiting, decided=self.decided[:-1], found=found)._at(again)

    def hears(self, changes: Iterable[Change]) -> tuple["Sitting", list[Change]]:
        """What the journal says happened since, and those changes that this person should know of: somebody else
        decided about what is before them, or otherwise about what they decided. Their own decisions are no news."""
        last = {one.example: one for one in changes}
        waiting, own = frozenset(self.waiting), {one.example: one.how for one in self.decided}
        overtaken = {id_ for id_, one in last.items() if id_ in own and one.how != own[id_]}
        gone = {id_ for id_, one in last.items() if not one.held and id_ in waiting}
        news = [one for id_, one in last.items() if id_ in overtaken or (id_ in gone and id_ == self.current)]
        decided = tuple(one for one in self.decided if one.example not in overtaken)
        sitting = msgspec.structs.replace(self, decided=decided)._without(gone)
        return sitting.arrived(id_ for id_, one in last.items() if one.held), news

    def _without(self, gone: Container[str]) -> "Sitting":
        """Where the current one goes, the next one that stays is shown."""
        shown, current = self.shown, self.current
        at = shown.index(current) if current else 0
        stays = next((one for one in (*shown[at:], *shown[:at]) if one not in gone), "")
        rest = tuple(one for one in self.waiting if one not in gone)
        return msgspec.structs.replace(self, waiting=rest, current=stays)

    def _at(self, example: str) -> "Sitting":
        return msgspec.structs.replace(self, current=example)

    def _settled(self) -> "Sitting":
        """One that is shown is current, if there is one."""
        shown = self.shown
        return self if self.current in shown else self._at(shown[0] if shown else "")
