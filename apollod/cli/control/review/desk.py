"""Connects a sitting to the journal, the daemon and $EDITOR. Blocking; raises what those raise."""

from collections.abc import Collection

from apollod.cli.control import ctl
from apollod.cli.control.review import deciding
from apollod.cli.control.review.candidate import Candidate, candidate, found_by
from apollod.cli.control.review.deciding import Choice
from apollod.cli.control.review.held_queue import Change, HeldQueue, Worth, facts_since, worths
from apollod.cli.control.review.sitting import Decided, Done
from apollod.errors import ApolloError
from apollod.wire import control_messages as msg

ANSWER_S = 5.0
"""a person waits"""
TAKEN_BACK = "taken back"
_HOW: dict[Choice, Done] = {"approve": "approved", "decline": "declined"}


class Desk:
    """The desk of one sitting. `judged`: also what waits for the judge is laid before the person."""

    def __init__(self, journal: str, socket: str, judged: bool = False) -> None:
        self._journal, self._socket, self._judged = journal, socket, judged
        self._queue = HeldQueue()
        self._queue.take(facts_since(journal, 0))
        self._worths = worths(journal)
        self._drafts: dict[tuple[str, bool], bytes] = {}
        """what somebody wrote that was not taken, so that it is not lost"""

    @property
    def for_the_judge(self) -> int:
        """The number of examples that are not laid before the person."""
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
        """What happened since the last look."""
        found = self._queue.take(facts_since(self._journal, self._queue.seq))
        waiting = frozenset(self.waiting()) if found else frozenset[str]()
        return [one for one in found if not one.held or one.example in waiting]

    def candidate(self, id_: str) -> Candidate:
        """One example in full. Raises ApolloError where it does not wait any more."""
        if (waits := self._queue.held.get(id_)) is None:
            raise ApolloError(f"{id_[:12]} does not wait any more")
        return candidate(self._journal, id_, waits)

    def found_by(self, text: str, examples: Collection[str]) -> frozenset[str]:
        """Those that have this in them."""
        return found_by(self._journal, text, examples)

    def decide(self, id_: str, choice: Choice, labels: str = "") -> Decided:
        """Decide about an example that is still held. `labels`: words stored with the decision."""
        self._ask(msg.DecisionWanted(id_, choice, labels, only_in="held"))
        return Decided(id_, _HOW[choice])

    def write(self, shown: Candidate, whole: bool) -> bytes:
        """Open the answer, or the `whole` record, in $EDITOR and return the edited bytes; starts from an earlier edit
        that was rejected."""
        text = deciding.as_record(shown.record) if whole else deciding.as_answer(shown.record)
        return deciding.edited(self._drafts.get((shown.id, whole)) or text, deciding.suffix(whole))

    def edit(self, shown: Candidate, written: bytes, whole: bool) -> Decided:
        """`written` is learned instead, if the example is held still."""
        self._drafts[shown.id, whole] = written
        try:
            line = deciding.line_of(written) if whole else deciding.with_answer(shown.record, written)
            into = ctl.ask(self._socket, msg.EditRequest(shown.id, line, deciding.by(), "held"), ANSWER_S)["into"]
        except ApolloError as error:
            error.hint = f"{error.hint}; {'E' if whole else 'e'} goes on with what you wrote"
            raise
        del self._drafts[shown.id, whole]
        return Decided(shown.id, "edited", into)

    def undo(self, last: Decided) -> bool:
        """What was decided is held again, if that is still how it stands, and what was written instead is declined:
        where it is being learned already, nothing changes."""
        stands = "pending" if last.how == "approved" else last.how
        wanted = [msg.DecisionWanted(last.example, "hold", TAKEN_BACK, stands)]
        if last.how == "edited":
            wanted.append(msg.DecisionWanted(last.into, "decline", TAKEN_BACK, "pending"))
        self._ask(*wanted)
        return True

    def _ask(self, *wanted: msg.DecisionWanted) -> None:
        """All of it is done, or none; then ApolloError says why."""
        answer = ctl.ask(self._socket, msg.DecideRequest(list(wanted), deciding.by(), together=True), ANSWER_S)
        if refused := answer["refused"]:
            seen = {one.example: one.only_in for one in wanted}
            cause = next((one for one in refused if one["state"] != seen[one["example"]]), refused[-1])  # or it runs
            raise ApolloError(f"{cause['example'][:12]} was left as it is: {cause['why']}")
