"""The desk of `apollod ctl review`: a held example with all evidence; requests to journal, daemon and $EDITOR.

Facts about examples are read as they stand, whoever recorded them. Calls block, and raise the errors of their requests.
"""

import json
from collections import defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

from apollod.adapters.journal import journal_reader
from apollod.cli.control import ctl, rows
from apollod.cli.control.examples import deciding
from apollod.cli.control.examples.held_queue import Change, Decided, Done, HeldQueue, Waits, Worth, facts_since, worths
from apollod.core.facts.review import Choice, Decision
from apollod.errors import ApolloError
from apollod.wire import control_messages as msg

Body = dict[str, Any]
_KINDS = {"signal.flagged": "signals", "verdict.given": "verdicts", "example.scored": "scores"}


class Facts(NamedTuple):
    """Bodies of the events about an example, the oldest first."""

    signals: tuple[Body, ...] = ()
    verdicts: tuple[Body, ...] = ()
    scores: tuple[Body, ...] = ()

    @property
    def score(self) -> Body:
        """The newest divergence; empty if nobody measured it."""
        return self.scores[-1] if self.scores else {}


class Candidate(NamedTuple):
    """A held example. `path`: its file, or the person who gave it; `removed`: stripped text (`Removed`)."""

    id: str
    waits: Waits
    path: str
    line: int
    record: Body
    removed: list[Body]
    facts: Facts


def candidate(path: str, id_: str, waits: Waits) -> Candidate:
    """Read a candidate from the journal. Raises JournalError, and ApolloError if the journal does not have it."""
    accepted = f"SELECT seq, body FROM events WHERE kind = 'example.accepted' AND key = '{id_}' AND seq"
    found = rows.tuples(path, f"{accepted} = {waits.seq - 1}")  # where it was held as it came, which is quick to ask
    found = found or rows.tuples(path, f"{accepted} IN (SELECT seq FROM known_examples WHERE id = '{id_}')")
    if not found:
        raise ApolloError(f"the journal does not say what the example {id_} is", "`apollod ctl why` tells more")
    body: Body = journal_reader.decode_body(path, *found[0])
    quoted = journal_reader.literal(body["source"])
    files = rows.tuples(
        path, f"SELECT body ->> '$.path' FROM events WHERE kind = 'source.discovered' AND key = {quoted}"
    )
    where = files[-1][0] if files else body["source"]
    facts = facts_of(path, [id_])[id_]
    return Candidate(id_, waits, where, body["line"], body["record"], body.get("removed", []), facts)


def facts_of(path: str, examples: Collection[str]) -> dict[str, Facts]:
    """Facts about each of these examples. Raises JournalError."""
    kinds = ", ".join(f"'{kind}'" for kind in _KINDS)
    names = f" AND instr(body, '{next(iter(examples))}')" if len(examples) == 1 else ""  # without a look into the JSON
    found: dict[str, dict[str, list[Body]]] = {id_: defaultdict(list) for id_ in examples}
    sql = f"SELECT seq, kind, body FROM events WHERE kind IN ({kinds}){names} ORDER BY seq"
    for seq, kind, text in rows.tuples(path, sql):
        body = journal_reader.decode_body(path, seq, text)
        if body.get("example") in found:
            found[body["example"]][_KINDS[kind]].append(body)
    return {id_: Facts(**{name: tuple(bodies) for name, bodies in of_it.items()}) for id_, of_it in found.items()}


def found_by(path: str, text: str, examples: Collection[str]) -> frozenset[str]:
    """The examples whose text, id or source contains a text, ignoring case. Reads all of them: seconds for very many.
    Raises JournalError."""
    wanted, among = text.casefold(), json.dumps(list(examples))
    sql = f"""
        SELECT id, body -> '$.record', body ->> '$.source' FROM known_examples JOIN events USING (seq)
        WHERE kind = 'example.accepted' AND id IN (SELECT value FROM json_each('{among}'))
    """
    files = dict(rows.tuples(path, "SELECT key, body ->> '$.path' FROM events WHERE kind = 'source.discovered'"))
    return frozenset(
        id_
        for id_, record, source in rows.tuples(path, sql)
        if wanted in id_ or wanted in files.get(source, source).casefold() or _says(json.loads(record), wanted)
    )


def _says(value: Any, wanted: str) -> bool:
    """True if a text anywhere in a JSON value contains this."""
    if isinstance(value, str):
        return wanted in value.casefold()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_says(one, wanted) for one in inner)


ANSWER_S = 5.0
"""Timeout of requests, for which a person waits."""
TAKEN_BACK = "taken back"
_HOW: dict[Choice, Done] = {"approve": "approved", "decline": "declined"}


class Desk:
    """The desk of one sitting. `judged`: show the person also the examples that wait for the judge."""

    def __init__(self, journal: str, socket: str, judged: bool = False) -> None:
        self._journal, self._socket, self._judged = journal, socket, judged
        self._queue = HeldQueue()
        self._queue.take(facts_since(journal, 0))
        self._worths = worths(journal)
        self._drafts: dict[tuple[str, bool], bytes] = {}
        """Edits that were rejected, so that they are not lost."""

    @property
    def for_the_judge(self) -> int:
        """Number of examples that are not shown to the person."""
        return 0 if self._judged else sum(one.waits_for != "person" for one in self._queue.held.values())

    def waiting(self) -> list[str]:
        """Ids of examples held for this person: direct corrections first, then the most informative (`Worth`), then
        the longest held."""
        held, nothing = self._queue.held, Worth()
        mine = [id_ for id_, waits in held.items() if self._judged or waits.waits_for == "person"]
        return sorted(mine, key=lambda id_: (held[id_].tier != "direct", self._worths.get(id_, nothing).rank))

    def worth(self, id_: str) -> str:
        """Reason for an example's place in the queue; empty: it waited longest."""
        return self._worths.get(id_, Worth()).told()

    def causes(self) -> list[str]:
        """The daemon's explanation of an empty queue. Raises ApolloError."""
        status = ctl.status(self._socket)
        judge, queue = status.judge, status.queue
        found = [f"{queue.pending} wait to be learned and {queue.trained} were: nobody has to decide about these"]
        if judge.mode == "off":
            found.append("[judge] mode is off: what a signal speaks against waits for you as soon as it comes")
        elif judge.waiting:
            found.append(f"{judge.waiting} wait for the judge ({judge.reason or 'being asked'}); --judged shows them")
        else:
            trusted = "decides by itself" if judge.trusted else f"is not trusted ({judge.reason})"
            found.append(f"the judge {judge.model} {trusted}; `apollod ctl judge show` tells more")
        return found

    def changes(self) -> list[Change]:
        """Changes since the last call."""
        found = self._queue.take(facts_since(self._journal, self._queue.seq))
        waiting = frozenset(self.waiting()) if found else frozenset[str]()
        return [one for one in found if not one.held or one.example in waiting]

    def candidate(self, id_: str) -> Candidate:
        """One example in full. Raises ApolloError if it does not wait any more."""
        if (waits := self._queue.held.get(id_)) is None:
            raise ApolloError(f"{id_[:12]} does not wait any more")
        return candidate(self._journal, id_, waits)

    def found_by(self, text: str, examples: Collection[str]) -> frozenset[str]:
        """The examples that contain a text; see `found_by`."""
        return found_by(self._journal, text, examples)

    def decide(self, id_: str, choice: Choice, labels: str = "") -> Decided:
        """Decide about an example that is still held. `labels`: words stored with the decision."""
        self._ask(Decision(id_, choice, labels, only_in="held"))
        return Decided(id_, _HOW[choice])

    def write(self, shown: Candidate, whole: bool) -> bytes:
        """Open the answer, or the `whole` record, in $EDITOR and return the edited bytes; starts from an earlier edit
        that was rejected."""
        text = deciding.as_record(shown.record) if whole else deciding.as_answer(shown.record)
        return deciding.edited(self._drafts.get((shown.id, whole)) or text, deciding.suffix(whole))

    def edit(self, shown: Candidate, written: bytes, whole: bool) -> Decided:
        """Learn `written` instead, if the example is still held."""
        self._drafts[shown.id, whole] = written
        try:
            line = deciding.line_of(written) if whole else deciding.with_answer(shown.record, written)
            into = ctl.ask(self._socket, msg.EditRequest(shown.id, line, ctl.by(), "held"), ANSWER_S)["into"]
        except ApolloError as error:
            error.hint = f"{error.hint}; {'E' if whole else 'e'} goes on with what you wrote"
            raise
        del self._drafts[shown.id, whole]
        return Decided(shown.id, "edited", into)

    def undo(self, last: Decided) -> bool:
        """Hold the example again, if the decision still stands, and decline an edited text; if it is being learned
        already, nothing changes."""
        stands = "pending" if last.how == "approved" else last.how
        wanted = [Decision(last.example, "hold", TAKEN_BACK, stands)]
        if last.how == "edited":
            wanted.append(Decision(last.into, "decline", TAKEN_BACK, "pending"))
        self._ask(*wanted)
        return True

    def _ask(self, *wanted: Decision) -> None:
        """Have all of it done, or none. Raises ApolloError with the reason for none."""
        answer = ctl.ask(self._socket, msg.DecideRequest(wanted, ctl.by(), together=True), ANSWER_S)
        if refused := answer["refused"]:
            seen = {one.example: one.only_in for one in wanted}
            cause = next((one for one in refused if one["state"] != seen[one["example"]]), refused[-1])  # or it runs
            raise ApolloError(f"{cause['example'][:12]} was left as it is: {cause['why']}")
