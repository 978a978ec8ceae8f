"""Lists the examples that wait for a decision, by the journal, and what changed since the last time.

Only kinds and ids are read of what is decided, so that a queue of thousands is there at once; an example itself is read
when it is shown (`candidate`).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from apollod.adapters.journal import journal_reader
from apollod.cli.control.questions import rows
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
    """The fields in use of any of these events."""

    example: str = ""
    examples: tuple[str, ...] = ()
    tier: str = "bulk"
    reason: str = ""
    waits_for: str = "person"
    by: str = ""
    apart: bool = False
    """of a step that failed: its examples are learned one by one, none is held"""


_DECODER = msgspec.json.Decoder(_Body)


class HeldQueue:
    """The queue of held examples, the longest wait first. Pure: facts in, changes out."""

    def __init__(self) -> None:
        self.seq = 0
        """the last event that is taken into account"""
        self.held: dict[str, Waits] = {}

    def take(self, facts: Iterable[Fact]) -> list[Change]:
        """Facts in the order of the journal, and what they change. Raises JournalError for one that is damaged."""
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
    """Those after event `seq`, from the journal. Raises JournalError."""
    kinds = ", ".join(f"'{kind}'" for kind in sorted(_INTO | _OUT))
    body, which = "body", f"seq > {seq} AND +kind IN ({kinds})"
    if not seq:  # all of them: of what left the queue only the ids are needed
        whole = ", ".join(f"'{kind}'" for kind in sorted({*_INTO, "example.expired"}))
        body, which = (
            f"CASE WHEN kind IN ({whole}) THEN body ELSE json_object('example', key) END",
            f"kind IN ({kinds})",
        )
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
