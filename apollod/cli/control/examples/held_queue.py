"""The queue of held examples, as the journal has it (`HeldQueue`) and on the screen of a person (`Sitting`).

Only kinds and ids of decided examples are read, so that a queue of thousands is there at once; an example is read when
it is shown (`desk`). Nothing here decides about an example: each step takes a sitting and an event, and gives the next
sitting.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from apollod.adapters.journal import journal_reader
from apollod.cli.control import rows
from apollod.core.example_state import RULES
from apollod.errors import JournalError

_INTO = {rule.kind for rule in RULES if rule.into == "held"}
_OUT = {rule.kind for rule in RULES if "held" in rule.out_of}


class Waits(NamedTuple):
    """An example that is held. `at_ns`: since when, Unix time; `waits_for`: `person` or `judge`; `seq`: the event that
    holds it."""

    tier: str
    reason: str
    waits_for: str
    by: str
    at_ns: int
    seq: int


class Worth(NamedTuple):
    """The value of a decision about an example for learning. `doubt`: votes of an unsure judge; `divergence`: gain of
    the answer's log-probability from stripped text, in nats per token."""

    doubt: tuple[str, ...] = ()
    divergence: float | None = None

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key, ascending: examples that a judge was unsure of first, then those with the largest divergence."""
        return not self.doubt, -(self.divergence or 0.0)

    def told(self) -> str:
        """Reason for an example's place in the queue; empty: it waited longest."""
        if self.doubt:
            return f"the judge's doubt ({', '.join(self.doubt)})"
        return "" if self.divergence is None else "its divergence"


class Change(NamedTuple):
    """A change of an example's state: it is held now, or it was approved, declined, edited or expired. `by`: who did
    it, empty for nobody."""

    example: str
    held: bool
    how: str
    by: str


class Fact(NamedTuple):
    """An event that may hold or release examples. `body`: JSON."""

    seq: int
    at_ns: int
    kind: str
    body: str


class _Body(msgspec.Struct):
    """The fields of these events that are used."""

    example: str = ""
    examples: tuple[str, ...] = ()
    tier: str = "bulk"
    reason: str = ""
    waits_for: str = "person"
    by: str = ""
    apart: bool = False
    """True for a failed step whose examples are learned one by one: none is held."""


_DECODER = msgspec.json.Decoder(_Body)


class HeldQueue:
    """The queue of held examples, the longest wait first. Pure: facts in, changes out."""

    def __init__(self) -> None:
        self.seq = 0
        """The last event that is taken into account."""
        self.held: dict[str, Waits] = {}

    def take(self, facts: Iterable[Fact]) -> list[Change]:
        """Take facts in the order of the journal; returns their changes. Raises JournalError for a damaged one."""
        changes: list[Change] = []
        for seq, at_ns, kind, text in facts:
            self.seq, body = seq, _decoded(seq, text)
            how = kind.partition(".")[2]
            for example in body.examples or (body.example,):
                before = self.held.pop(example, None)  # who is held again waits at the end
                if kind in _INTO and not body.apart:
                    tier = before.tier if before else body.tier
                    self.held[example] = Waits(tier, body.reason, body.waits_for, body.by, at_ns, seq)
                    changes.append(Change(example, True, "held", body.by))
                elif kind in _OUT:
                    changes.append(Change(example, False, how, body.by))
        return changes


def _decoded(seq: int, text: str) -> _Body:
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise JournalError(
            f"event {seq} of the journal is damaged: {error}",
            "`apollod ctl journal verify` names the first event that is; restore a backup",
        ) from error


def facts_since(path: str, seq: int) -> Iterator[Fact]:
    """Read the facts after event `seq`. Raises JournalError."""
    kinds = rows.among(sorted(_INTO | _OUT))
    body, which = "body", f"seq > {seq} AND +kind IN {kinds}"
    if not seq:  # all of them: of what left the queue only the ids are needed
        whole = rows.among(sorted({*_INTO, "example.expired"}))
        body = f"CASE WHEN kind IN {whole} THEN body ELSE json_object('example', key) END"
        which = f"kind IN {kinds}"
    sql = f"SELECT seq, at_ns, kind, {body} FROM events WHERE {which} ORDER BY seq"
    yield from map(Fact._make, journal_reader.stream(path, sql, rows.SECONDS))


def worths(path: str) -> dict[str, Worth]:
    """Read verdicts and scores from the journal, by example. Raises JournalError."""
    sql = """
        SELECT key, body ->> '$.verdict', body -> '$.votes', body ->> '$.divergence' FROM events
        WHERE kind IN ('verdict.given', 'example.scored') ORDER BY seq
    """
    found: dict[str, Worth] = {}
    for example, verdict, votes, divergence in rows.tuples(path, sql):
        known = found.get(example, Worth())
        if verdict is None:
            found[example] = known._replace(divergence=divergence)
        else:
            said = msgspec.json.decode(votes or "[]", type=tuple[str, ...]) or ("unsure",)
            found[example] = known._replace(doubt=said if verdict == "unsure" else ())
    return found


Done = Literal["approved", "declined", "edited"]


class Decided(msgspec.Struct, frozen=True):
    """A decision made in this sitting. `into`: the example that was written instead."""

    example: str
    how: Done
    into: str = ""


class Sitting(msgspec.Struct, frozen=True):
    """The state of the screen, without a terminal, a socket or a journal."""

    waiting: tuple[str, ...] = ()
    """Ids, in the order in which they are shown."""
    current: str = ""
    """Id of the example that is shown; empty: none is."""
    decided: tuple[Decided, ...] = ()
    """Decisions of this person, the newest last; each can be taken back."""
    filter: str = ""
    found: frozenset[str] | None = None
    """Ids that the filter lets through; None: all."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids that the filter lets through."""
        return self.waiting if self.found is None else tuple(one for one in self.waiting if one in self.found)

    @property
    def place(self) -> int:
        """Place of the current one among those, from 1; 0: none is shown."""
        return self.shown.index(self.current) + 1 if self.current else 0

    @property
    def last(self) -> Decided | None:
        """The decision that is taken back next; None: there is none."""
        return self.decided[-1] if self.decided else None

    def count(self, how: Done) -> int:
        """Number of examples that this person decided so."""
        return sum(one.how == how for one in self.decided)

    # --- moving ---------------------------------------------------------------------------------------------------

    def moved(self, by: int) -> "Sitting":
        """Move to another one; after the last comes the first."""
        shown = self.shown
        return self._at(shown[(shown.index(self.current) + by) % len(shown)]) if self.current else self

    def filtered(self, text: str, found: frozenset[str] | None) -> "Sitting":
        """Show only these."""
        return msgspec.structs.replace(self, filter=text, found=found)._settled()

    # --- what became of examples ----------------------------------------------------------------------------------

    def arrived(self, examples: Iterable[str]) -> "Sitting":
        """Add examples that wait now."""
        known = frozenset(self.waiting)
        more = tuple(one for one in dict.fromkeys(examples) if one not in known)
        return msgspec.structs.replace(self, waiting=(*self.waiting, *more))._settled() if more else self

    def decides(self, decided: Decided) -> "Sitting":
        """Take a decision of this person; the next example is shown."""
        return msgspec.structs.replace(self._without({decided.example}), decided=(*self.decided, decided))

    def takes_back(self) -> "Sitting":
        """Take the last decision back; its example is shown again."""
        again = self.decided[-1].example
        at = self.waiting.index(self.current) if self.current else len(self.waiting)
        rest = tuple(one for one in self.waiting if one != again)
        waiting = (*rest[:at], again, *rest[at:])
        found = self.found if self.found is None else self.found | {again}
        return msgspec.structs.replace(self, waiting=waiting, decided=self.decided[:-1], found=found)._at(again)

    def hears(self, changes: Iterable[Change]) -> tuple["Sitting", list[Change]]:
        """Take changes of the journal; returns also those to tell this person: another one decided about the example
        on the screen, or otherwise about one that they decided. Their own decisions are not news."""
        last = {one.example: one for one in changes}
        waiting, own = frozenset(self.waiting), {one.example: one.how for one in self.decided}
        overtaken = {id_ for id_, one in last.items() if id_ in own and one.how != own[id_]}
        gone = {id_ for id_, one in last.items() if not one.held and id_ in waiting}
        news = [one for id_, one in last.items() if id_ in overtaken or (id_ in gone and id_ == self.current)]
        decided = tuple(one for one in self.decided if one.example not in overtaken)
        sitting = msgspec.structs.replace(self, decided=decided)._without(gone)
        return sitting.arrived(id_ for id_, one in last.items() if one.held), news

    def _without(self, gone: Container[str]) -> "Sitting":
        """Remove examples; if the current one goes, the next one that stays is shown."""
        shown, current = self.shown, self.current
        at = shown.index(current) if current else 0
        stays = next((one for one in (*shown[at:], *shown[:at]) if one not in gone), "")
        rest = tuple(one for one in self.waiting if one not in gone)
        return msgspec.structs.replace(self, waiting=rest, current=stays)

    def _at(self, example: str) -> "Sitting":
        return msgspec.structs.replace(self, current=example)

    def _settled(self) -> "Sitting":
        """Make an example current that is shown, if there is one."""
        shown = self.shown
        return self if self.current in shown else self._at(shown[0] if shown else "")
