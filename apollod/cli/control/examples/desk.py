"""The desk of `apollod ctl review`: a held example with all evidence, as a page of pieces of text, each with its role;
requests to journal, daemon and $EDITOR. The screen decides how a role looks; without colour, marks in the text show it
(`with_marks`).

Facts about examples are read as they stand, whoever recorded them. Calls block, and raise the errors of their requests.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from apollod.adapters.journal import journal_reader
from apollod.cli import render
from apollod.cli.control import ctl, rows
from apollod.cli.control.examples import deciding
from apollod.cli.control.examples.example_text import Part, parts
from apollod.cli.control.examples.held_queue import Change, Decided, Done, HeldQueue, Waits, Worth, facts_since, worths
from apollod.cli.render import plain
from apollod.core.facts.review import Choice, Decision
from apollod.errors import ApolloError
from apollod.wire import control_messages as msg

Body = dict[str, Any]
_FILES = "SELECT key, body ->> '$.path' FROM events WHERE kind = 'source.discovered'"
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
    files = rows.tuples(path, f"{_FILES} AND key = {quoted}")
    where = files[-1][1] if files else body["source"]
    facts = facts_of(path, [id_])[id_]
    return Candidate(id_, waits, where, body["line"], body["record"], body.get("removed", []), facts)


def facts_of(path: str, examples: Collection[str]) -> dict[str, Facts]:
    """Facts about each of these examples. Raises JournalError."""
    names = f" AND instr(body, '{next(iter(examples))}')" if len(examples) == 1 else ""  # without a look into the JSON
    found: dict[str, dict[str, list[Body]]] = {id_: defaultdict(list) for id_ in examples}
    sql = f"SELECT seq, kind, body FROM events WHERE kind IN {rows.among(_KINDS)}{names} ORDER BY seq"
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
    files = dict(rows.tuples(path, _FILES))
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


# --- the page of a candidate --------------------------------------------------------------------------------------

Look = Literal["text", "heading", "target", "stripped", "good", "bad", "quiet"]
"""target: learned; stripped: taken out before; quiet: a remark of ours."""
FOLDED_LINES = 5
"""Lines of a long turn of context, unless all is shown."""
FOLDED_TURNS = 2
"""Turns of context before the first target, unless all is shown."""
GOOD, BAD = ("good", "approve", "accept"), ("bad", "correction", "decline", "reject")
QUOTED_MAX = 400


class Piece(NamedTuple):
    """Text in one look; safe for a terminal."""

    text: str
    look: Look = "text"


def page(candidate: Candidate, now_ns: int, whole: bool = False, worth: str = "", labels: str = "") -> list[Piece]:
    """Page of a held example. `whole`: unfold the context; `worth`: reason for its place in the queue; `labels`: labels
    that will be stored with the decision."""
    shown = [*_head(candidate, now_ns, worth, labels), *_evidence(candidate)]
    for part in _folded(parts(candidate.record, candidate.removed), whole):
        shown += _part(part, whole)
    return [*shown, *_others(candidate)]


def with_marks(pieces: Sequence[Piece]) -> str:
    """The page without colour: targets between [[ and ]], stripped text between [- and -]."""
    marks = {"target": ("[[", "]]"), "stripped": ("[-", "-]"), "heading": ("== ", "")}
    marked = []
    for piece in pieces:
        opening, closing = marks.get(piece.look, ("", ""))
        body = piece.text.rstrip("\n")
        marked.append(f"{opening}{body}{closing}{piece.text[len(body) :]}")
    return "".join(marked)


# --- what it is ---------------------------------------------------------------------------------------------------


def _head(c: Candidate, now_ns: int, worth: str, labels: str) -> Iterator[Piece]:
    who = "" if c.waits.waits_for == "person" else f", waits for the {c.waits.waits_for}"
    yield Piece(plain(f"{c.id[:12]}  {c.waits.tier}  {c.path}:{c.line}\n"))
    yield Piece(plain(f"held for {_since(now_ns - c.waits.at_ns)}: {c.waits.reason}{who}\n"), "quiet")
    if worth:
        yield Piece(plain(f"comes here by {worth}\n"), "quiet")
    if labels:
        yield Piece("labels", "heading")
        yield Piece(plain(f" {labels}\n"))


def _since(ns: int) -> str:
    """A span of time, rounded."""
    minutes = max(0, ns) // 60_000_000_000
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"


# --- what speaks for and against it -------------------------------------------------------------------------------


def _evidence(c: Candidate) -> Iterator[Piece]:
    if score := c.facts.score:
        yield Piece("divergence", "heading")
        between = [f"{name} {score[key]:.3g}" for name, key in _SCORES if isinstance(score.get(key), int | float)]
        value = score.get("divergence")
        yield Piece(f" {value:.3g} nats a token" if isinstance(value, int | float) else "")
        yield Piece((f" ({', '.join(between)})" if between else "") + "\n", "quiet")
    for signal in c.facts.signals:
        polarity = str(signal.get("polarity", ""))
        told = [str(signal.get("kind", "")), polarity, *_strength(signal)]
        yield Piece("signal", "heading")
        yield Piece(plain(" " + ", ".join(dict.fromkeys(filter(None, told)))), _look_of(polarity))
        yield from _quote(signal)
    for verdict in c.facts.verdicts:
        said = str(verdict.get("verdict", ""))
        yield Piece("verdict", "heading")
        yield Piece(plain(f" {said}"), _look_of(said))
        by = verdict.get("by", "")
        model = f" {verdict['model']}" if by == "judge" and verdict.get("model") else ""
        yield Piece(plain(f" by {by}{model}" if by else ""), "quiet")
        yield Piece(plain(f": {render.cut(verdict['reason'], QUOTED_MAX)}" if verdict.get("reason") else ""))
        yield from _quote(verdict)


_SCORES = (("with the context", "with_context"), ("without", "without_context"))


def _strength(signal: Body) -> list[str]:
    strength = signal.get("strength")
    if strength in (None, ""):
        return []
    return [f"{strength:.2g}" if isinstance(strength, int | float) else str(strength)]


def _look_of(said: str) -> Look:
    return "good" if said in GOOD else "bad" if said in BAD else "text"


def _quote(body: Body) -> Iterator[Piece]:
    if body.get("quote"):
        yield Piece(plain(f'\n    "{render.cut(body["quote"], QUOTED_MAX)}"'))
    yield Piece("\n")


# --- what it says -------------------------------------------------------------------------------------------------


def _folded(found: list[Part], whole: bool) -> Iterator[Part | int]:
    """The parts that are shown, and at gaps the number of turns left out. The turns before the first target stay, and
    so do all targets and stripped parts."""
    first = next((n for n, part in enumerate(found) if part.target), len(found))
    out = 0
    for n, part in enumerate(found):
        if whole or n >= first - FOLDED_TURNS or part.gone or part.stripped:
            yield from [out] if out else []
            yield part
            out = 0
        else:
            out += 1


def _part(part: Part | int, whole: bool) -> Iterator[Piece]:
    if isinstance(part, int):
        turns = "1 turn" if part == 1 else f"{part} turns"
        yield Piece(f"\n... {turns} of the context; x shows all\n", "quiet")
        return
    yield Piece("\n")
    yield Piece(plain(part.heading), "heading")
    yield Piece("\n")
    for piece in [Piece(part.text, "stripped")] if part.gone else _spans(part):
        lines = piece.text.split("\n")
        if whole or part.target or len(lines) <= FOLDED_LINES + 1:
            yield Piece(plain(piece.text), piece.look)
        else:
            yield Piece(plain("\n".join(lines[:FOLDED_LINES])), piece.look)
            yield Piece(f"\n... {len(lines) - FOLDED_LINES} more lines; x shows all\n", "quiet")
    yield Piece("\n")


def _spans(part: Part) -> Iterator[Piece]:
    at = 0
    look: Look = "target" if part.target else "text"
    for where, text in part.stripped:
        yield Piece(part.text[at:where], look)
        yield Piece(text, "stripped")
        at = where
    yield Piece(part.text[at:], look)


def _others(c: Candidate) -> Iterator[Piece]:
    """Alternative answers, which are not learned."""
    better = [("the judge would answer", one.get("better")) for one in c.facts.verdicts[-1:]]
    for heading, text in [*better, ("without what was stripped the model answers", c.facts.score.get("alternate"))]:
        if text:
            yield Piece("\n")
            yield Piece(heading, "heading")
            yield Piece(plain(f"\n{text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)}\n"))
