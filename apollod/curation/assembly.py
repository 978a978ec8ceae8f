"""Assembles the entries of a log into moments that may be learned.

An assembly holds the conversation as the model saw it last: parts of an answer merged, abandoned branches removed,
compacted messages replaced. A turn begins with a prompt. When the next one begins, or the log has not grown for a while
(`settle`), the new answers of the turn come out as a moment, with as much of the conversation before as `CONTEXT_BYTES`
allow. Long turns come out in pieces. Messages that the user took back come out as a moment of their own that says so.

Nothing here reads a clock or decides what is learned: `moments.py` does, by the rules of the source.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from apollod.curation.conversation import (
    BEGINNING,
    Entry,
    Executed,
    Link,
    Marked,
    Moment,
    Opinion,
    Queued,
    Remark,
    Replaced,
    Rewound,
    Said,
    Session,
    Signal,
    Whole,
    added,
    is_asked_again,
    is_learned,
    joined,
)
from apollod.curation.typed_ahead import TypedAhead, has_open_calls, is_mid_run, said_again
from apollod.wire.context_window import size_of
from apollod.wire.records import Form

CONTEXT_BYTES = 256 << 10  # text before a moment; the trainer cuts it further by tokens
PIECE_BYTES = 64 << 10  # new text after which a part of an unfinished turn comes out
LINKS = 512  # records remembered, since later ones may follow or repeat them

Value = TypeVar("Value")
Closed = Moment | Remark


class Assembly:
    """The conversation of one log so far. Copy it before feeding entries that may have to be fed again."""

    def __init__(self, given: int = 0) -> None:
        """`given`: last line already covered by moments, for a log that is fed again from the beginning."""
        self._had = given
        self._session = Session()
        self._told = Session()  # the last session entry; most records repeat it
        self._messages: list[Said] = []
        self._lines: list[int] = []
        self._sizes: list[int] = []
        self._size = 0
        self._fresh = 0  # index of the first message that is in no moment yet
        self._links: dict[str, str] = {}
        self._forgotten: dict[str, None] = {}
        """`part_of` of forgotten messages; logs that repeat everything repeat these, too"""
        self._asked_anew = False  # something was taken back, and the next prompt stands in its place
        self._discarded: tuple[Form, tuple[Form, ...]] | None = None
        """a prompt that was asked again, and the answers to it that were taken back"""
        self._ahead = TypedAhead()
        self._end = 0  # line of the newest part of an answer
        self.given = given
        """last line already covered by moments"""

    @property
    def waits(self) -> bool:
        """True if there is an answer that is in no moment yet."""
        return any(is_learned(said.message) for said in self._messages[self._fresh :])

    def copy(self) -> "Assembly":
        """An independent assembly; its elements are shared, since they are never changed."""
        other = Assembly.__new__(Assembly)
        other.__dict__ = {
            name: value.copy() if isinstance(value, list | dict) else value for name, value in self.__dict__.items()
        }
        return other

    def feed(self, line: int, entries: Iterable[Entry]) -> list[Closed]:
        """Take the entries of one record, in order. Returns the moments that it closes."""
        closed: list[Closed] = []
        for entry in entries:
            if isinstance(entry, Said):
                closed += self._said(line, entry)
            elif isinstance(entry, Link):
                self._link(entry)
            elif isinstance(entry, Session):
                closed += self._begin() if entry.begins else []
                if entry != self._told:
                    self._session, self._told = _merged(self._session, entry), entry
            elif isinstance(entry, Rewound):
                closed += self._rewound(line, entry)
            elif isinstance(entry, Replaced):
                closed += self._replaced(line, entry)
            elif isinstance(entry, Marked):
                closed += self._mark(line, entry.signal)
            elif isinstance(entry, Queued):
                self._ahead = self._ahead.moved(entry)
            elif isinstance(entry, Executed):
                self._let_go(entry.id)
            elif isinstance(entry, Whole):
                closed.append(Moment(line, line, entry.session, entry.messages, entry.fresh, unlearned=entry.unlearned))
        return closed

    def settle(self, then: Said | None = None) -> list[Closed]:
        """Close the waiting turn as if nothing more belonged to it; later additions become another moment. `then`: the
        prompt that comes next."""
        if not self.waits:
            return self._shown()
        line = max(self._lines[-1], self._end)
        moment = Moment(
            line, self._lines[self._fresh], self._session, tuple(self._messages), self._fresh, then=then,
            lines=tuple(self._lines),
        )  # fmt: skip
        self._fresh, self.given = len(self._messages), line
        return [moment]

    def _shown(self) -> list[Closed]:
        """A remark on messages behind an answer that is already in a moment, if they may show something about it:
        results, an interrupt."""
        fresh = self._messages[self._fresh :]
        if not any(said.signals or said.message["role"] == "tool" for said in fresh) or self._last_answer() is None:
            return []
        line = self._lines[-1]
        remark = self._remark(line)
        self._fresh, self.given = len(self._messages), line
        return [remark]

    def skip(self, given: int) -> None:
        """Treat all lines up to this one as covered by moments: for an assembly that is fed its log again from the
        beginning."""
        self.given = given
        self._fresh = next((n for n, line in enumerate(self._lines) if line > given), len(self._lines))

    # --- what is said -------------------------------------------------------------------------------------------------

    def _said(self, line: int, said: Said) -> list[Closed]:
        if not said.model and self._session.model and said.message["role"] == "assistant":
            said = msgspec.structs.replace(said, model=self._session.model)  # the model may change in a session
        unmerged = self._unmerged(line, said)
        if unmerged is None or (said.replaces and said.part_of in self._forgotten):
            return []
        return self._spoken(line, unmerged)

    def _spoken(self, line: int, said: Said) -> list[Closed]:
        """Take a message of its own, with what was typed ahead of it."""
        if said.prompt and self._comes_later(said):
            return []
        held = self._ahead.held
        if not held or said.message["role"] == "tool":
            return self._take(line, said)
        self._ahead = msgspec.structs.replace(self._ahead, held=())
        closed = [one for turn in held if turn.id for one in self._take(line, turn)]
        closed += self._branched(line, said)  # `after` ignores prompts that are only in the queue
        closed += [one for turn in held if not turn.id for one in self._take(line, turn)]
        return closed + self._take(line, msgspec.structs.replace(said, after=None))

    def _comes_later(self, said: Said) -> bool:
        """True if a prompt is held until its next record comes, or is part of the conversation already."""
        if said_again(self._messages, said):
            self._link(Link(said.id, said.after or ""))
            return True
        mid_run = is_mid_run(said)
        if mid_run:
            self._ahead = self._ahead.remember(said)
        else:
            for turn in self._ahead.held:
                if turn.command:
                    self._let_go(turn.id)
            self._ahead = self._ahead.without(said)
        if said.command or (mid_run and has_open_calls(self._messages)):
            self._ahead = self._ahead.hold(said)
            return True
        return False

    def _let_go(self, record: str) -> None:
        """Drop the held command of a record: the model was not asked."""
        for turn in self._ahead.held:
            if turn.id == record and turn.command:
                self._link(Link(turn.id, turn.after or ""))
                self._ahead = self._ahead.executed(record)

    def _take(self, line: int, said: Said) -> list[Closed]:
        """Put a turn where it belongs, behind the record that it follows."""
        closed = self._branched(line, said)
        if said.prompt:
            closed += self.settle(said) if self.waits else [*self._shown(), *self._followed(line, said)]
            self._asked_anew = False
        elif self._is_long(said):
            closed += self.settle()
        return closed + self._append(line, said)

    def _followed(self, line: int, prompt: Said) -> list[Closed]:
        """A remark on the prompt behind an answer that is already in a moment, unless the prompt replaces one that was
        taken back."""
        answered = not self._asked_anew and self._last_answer() is not None
        return [self._remark(line, then=prompt)] if answered else []

    def _last_answer(self) -> int | None:
        """Index of the last answer to the last prompt."""
        for n in range(len(self._messages) - 1, -1, -1):
            if is_learned(self._messages[n].message):
                return n
            if self._messages[n].prompt:
                break
        return None

    def _remark(self, line: int, marked: Signal | None = None, **how: Any) -> Remark:
        moment = Moment(line, line, self._session, tuple(self._messages), self._fresh, **how)
        return Remark(line, moment, marked)

    def _begin(self) -> list[Closed]:
        closed = self.settle()
        self._cut(0)
        self._links.clear()
        self._ahead = TypedAhead()
        self._session = self._told = Session()
        return closed

    def _is_long(self, said: Said) -> bool:
        """True if much is new in this turn and the next answer begins, so that the results of its tools are there."""
        return said.message["role"] == "assistant" and sum(self._sizes[self._fresh :]) > PIECE_BYTES

    def _unmerged(self, line: int, said: Said) -> Said | None:
        """The message if it stands alone, or the part that it adds to an answer already in a moment. None: it was
        merged into a waiting answer."""
        place = self._part(said)
        if place < 0:
            return said
        last = self._messages[place]
        had = place < self._fresh or self._lines[place] <= self._had < line
        if had and not said.replaces and (more := added(last.message, said.message)) is not None:
            return msgspec.structs.replace(said, message=more)
        self._merge(place, said)
        self._end = max(self._end, line)
        return None

    def _merge(self, place: int, said: Said) -> None:
        """Make it a part of the answer at `place`."""
        last = self._messages[place]
        message = said.message if said.replaces else joined(last.message, said.message)
        whole = msgspec.structs.replace(
            said, message=message, id=said.id or last.id, signals=last.signals + said.signals,
            opinion=said.opinion or last.opinion,
        )  # fmt: skip
        if last.id and last.id != whole.id:
            self._links[last.id] = whole.id
        size = size_of(whole.message)
        self._size += size - self._sizes[place]
        self._messages[place], self._sizes[place] = whole, size

    def _part(self, said: Said) -> int:
        """Index of the message that this one is a part of, or -1. Results of an answer's first calls may lie in
        between."""
        if said.continues:
            place = len(self._messages) - 1
            return place if place >= 0 and self._messages[place].continues else -1
        for place in range(len(self._messages) - 1, -1, -1) if said.part_of else ():
            if self._messages[place].part_of == said.part_of:
                return place
            if self._messages[place].message["role"] != "tool" and not said.replaces:
                break
        return -1

    def _branched(self, line: int, said: Said) -> list[Closed]:
        """Cut the messages behind the record that this one follows, unless they are only results, whose order is free.
        An unknown id cuts nothing."""
        if said.after is None:
            return []
        if self._messages and self._messages[-1].id == said.after and said.after not in self._links:
            return []  # the usual case
        place = self._place(said.after)
        behind = {one.message["role"] for one in self._messages[place:]} if place is not None else set()
        if not behind - {"tool"} or said.message["role"] == "tool":
            return []
        return self._take_back(line, place or 0, "branch", said if said.prompt else None)

    def _place(self, record: str) -> int | None:
        """Index behind the message of a record, or of the record that stands for it; None if it is unknown."""
        for _ in range(8):  # a link may lead to an answer that was merged later
            if record not in self._links:
                break
            record = self._links[record]
        if not record:
            return None
        if record == BEGINNING:
            return 0
        return next((n + 1 for n in range(len(self._messages) - 1, -1, -1) if self._messages[n].id == record), None)

    def _first(self, record: str) -> int | None:
        """Index of the first message of a record; None if it is unknown."""
        return next((n for n, said in enumerate(self._messages) if said.id == record), None) if record else None

    def _rewound(self, line: int, entry: Rewound) -> list[Closed]:
        if entry.to or entry.before:
            place = self._place(entry.to) if entry.to else self._first(entry.before)
        else:  # more turns than are known: all of them
            prompts = [n for n, said in enumerate(self._messages) if said.prompt][-entry.turns :]
            place = prompts[0] if prompts and entry.turns > 0 else None
        return [] if place is None else self._take_back(line, place, "rewound")

    def _replaced(self, line: int, entry: Replaced) -> list[Closed]:
        closed = self.settle()
        place = self._first(entry.keep_from)
        kept = [] if place is None else list(zip(self._messages[place:], self._lines[place:], strict=True))
        self._cut(0)
        for said in entry.messages:
            if (part := self._part(said)) >= 0:
                self._merge(part, said)
            else:
                closed += self._append(line, said)
        if self._messages:  # the next message must not be merged into mere context
            self._messages[-1] = msgspec.structs.replace(self._messages[-1], part_of="", continues=False)
        for said, of_line in kept:
            closed += self._append(of_line, said)
        self._fresh, self.given = len(self._messages), max(self.given, line)
        return closed

    def _take_back(self, line: int, place: int, how: str, then: Said | None = None) -> list[Closed]:
        """Cut at `place`. Messages behind it that are in no moment yet come out as one, with how they were taken back;
        for those already in moments a remark says so. New messages before it go on waiting."""
        first, closed = max(self._fresh, place), list[Closed]()
        self._discard(place, then)
        if any(is_learned(said.message) for said in self._messages[first:]):
            lines = self._lines[-1], self._lines[first]
            whole, each = tuple(self._messages), tuple(self._lines)
            closed = [Moment(*lines, self._session, whole, first, taken_back=how, back_to=place, then=then, lines=each)]
        elif any(is_learned(said.message) for said in self._messages[place:first]):
            closed = [self._remark(line, taken_back=how, back_to=place, then=then)]
        self._cut(place)
        self._asked_anew = True
        return closed

    def _discard(self, place: int, again: Said | None) -> None:
        """Remember the answer behind `place`, if it is one text and its prompt is asked again."""
        asked, *answers = self._messages[place:] or (None,)
        if asked is None or again is None or not is_asked_again(asked, again) or len(answers) != 1:
            return
        (answer,) = answers
        if is_learned(answer.message) and not answer.message.get("tool_calls"):
            earlier = answer.opinion.worse if answer.opinion is not None else ()
            kept = tuple(one for one in earlier if not isinstance(one, str))
            self._discarded = again.message, (*kept, answer.message)

    def _preferred(self, said: Said) -> Said:
        """An answer with those to the same prompt that were taken back before."""
        if self._discarded is None or said.opinion is not None or not is_learned(said.message) or not self._messages:
            return said
        (prompt, worse), last = self._discarded, self._messages[-1]
        if not last.prompt or last.message != prompt:
            return said
        self._discarded = None
        return msgspec.structs.replace(said, opinion=Opinion(worse=worse))

    # --- the list -----------------------------------------------------------------------------------------------------

    def _append(self, line: int, said: Said) -> list[Closed]:
        self._messages.append(self._preferred(said))
        self._lines.append(line)
        self._sizes.append(size_of(said.message))
        self._size += self._sizes[-1]
        return self._forget() if self._size > CONTEXT_BYTES else []

    def _cut(self, place: int) -> None:
        self._size -= sum(self._sizes[place:])
        del self._messages[place:], self._lines[place:], self._sizes[place:]
        self._fresh = min(self._fresh, place)

    def _forget(self) -> list[Closed]:
        """Drop messages that are too old to be context. The rest begins with a prompt: the first one left, or the one
        that the running turn answers, however old that is. Depends only on the messages, so that reading a log again
        gives the same context."""
        prompts = [n for n, said in enumerate(self._messages) if said.prompt]
        last = prompts[-1] if prompts else -1
        place, size = 0, self._size - (self._sizes[last] if prompts else 0)
        while place < len(self._messages) - 1 and size > CONTEXT_BYTES // 2:  # half: not for each message
            size -= self._sizes[place] if place != last else 0
            place += 1
        place = next((n for n in prompts if n >= place), place)
        closed = self.settle() if self._fresh < place else []
        asked = last if 0 <= last < place else None
        for n, said in enumerate(self._messages[:place]):
            if said.part_of and n != asked:
                _remember(self._forgotten, said.part_of, None)
        gone = slice(0, place) if asked is None else slice(asked + 1, place)
        for kept in (self._messages, self._lines, self._sizes):
            del kept[gone], kept[: asked or 0]
        self._size = sum(self._sizes)
        self._fresh = max(0, self._fresh - place) + (asked is not None)
        return closed

    def _mark(self, line: int, signal: Signal) -> list[Closed]:
        """Put evidence on the last answer; where a moment already has it, the evidence comes out alone."""
        answers = (n for n, said in enumerate(self._messages) if said.message["role"] == "assistant")
        place = max(answers, default=-1)
        if place >= self._fresh:
            said = self._messages[place]
            self._messages[place] = msgspec.structs.replace(said, signals=(*said.signals, signal))
            return []
        return [self._remark(line, signal)] if self._last_answer() is not None else []

    def _link(self, link: Link) -> None:
        _remember(self._links, link.id, self._links.get(link.after, link.after))


def _remember(known: dict[str, Value], name: str, value: Value) -> None:
    """Store the latest value of a name; the oldest name goes once there are more than `LINKS`."""
    known[name] = value
    if len(known) > LINKS:
        del known[next(iter(known))]


def _merged(known: Session, said: Session) -> Session:
    """The known facts of a session, updated with the nonempty ones of `said`."""
    news = {name: value for name in said.__struct_fields__ if (value := getattr(said, name))}
    return msgspec.structs.replace(known, **news)
