"""The common vocabulary of agents' logs: the entries that a format's reader makes of its records.

Most agents write a session as records that are appended: facts about the session, messages, and marks that earlier
ones were taken back. `assembly.py` puts a conversation together from them, whatever the agent. A log may write one
answer in parts, as several records: `joined` and `added` merge them.
"""

from functools import cached_property
from typing import Any

import msgspec

from apollod.wire.records import Form, turn_json

BEGINNING = "^"
"""Parent of the first record of a tree: `Said.after` and `Link.after` in formats that name it."""


class Signal(msgspec.Struct, frozen=True):
    """Evidence about a message that the log itself holds."""

    kind: str
    """`rating`, `evaluation`, `swiped-away`, `refused`, `interrupted`, `tool-error`, or `mid-run` on a prompt that was
    typed while the agent ran and that it was shown before it had finished; `signals/` interprets it"""
    value: str
    """the words or figure that show it"""


class Opinion(msgspec.Struct, frozen=True):
    """A person's opinion on an answer. `rated`: by a rating of it alone; `good`: it was found good, or preferred
    to others; `worse`: those others, answers to the same prompt, as turns or as texts."""

    good: bool = True
    rated: bool = False
    worse: tuple[Form | str, ...] = ()


class Session(msgspec.Struct, frozen=True):
    """Facts that hold for all later entries; empty ones change nothing."""

    id: str = ""
    agent: str = ""
    """the program that wrote the log"""
    version: str = ""
    """version of that program"""
    model: str = ""
    """author of answers whose messages do not name one"""
    system: str = ""
    """the system prompt"""
    tools: tuple[dict[str, Any], ...] = ()
    """the available tools, as in an OpenAI request"""
    sidechain: bool = False
    """the log of an agent that another one started"""
    begins: bool = False
    """another conversation begins in the same log: drop all earlier messages and facts"""


class Said(msgspec.Struct, frozen=True, dict=True):
    """A message, or a part of one."""

    message: Form
    """canonical form, as `wire.records.message_form` makes it. An answer with weight 0 is context: a model did not
    write it, or not to its end"""
    id: str = ""
    """id of the record"""
    after: str | None = None
    """the record before it where the log is a tree; None: the last one. A record that follows another one than the
    last begins a branch, and the messages behind that other one leave the conversation"""
    part_of: str = ""
    """shared by the parts of one answer, which come one after another, and by repetitions of it"""
    replaces: bool = False
    """true if it repeats all of `part_of`, regardless of records in between; else it is the next part"""
    continues: bool = False
    """true for a part of the answer right before it, if any, in logs whose parts share no id"""
    prompt: bool = False
    """a turn begins here"""
    command: bool = False
    """a command of the user: a prompt if anything follows that belongs to it, else for the program alone"""
    model: str = ""
    """the author (answers)"""
    response: str = ""
    """id of the engine's response (answers)"""
    signals: tuple[Signal, ...] = ()
    opinion: Opinion | None = None
    """on an answer"""

    @cached_property
    def turn(self) -> bytes:
        """`message` as it stands in a record, cached since many examples have it as context. Raises RecordRefused."""
        return turn_json(self.message)


def is_learned(turn: Form) -> bool:
    """True if the turn is an answer that is learned, not context."""
    return turn["role"] == "assistant" and turn.get("weight") != 0


def is_asked_again(asked: Said, again: Said) -> bool:
    """True if `again` is the same prompt as `asked`, up to white space."""
    return asked.prompt and asked.message["content"].split() == again.message["content"].split()


class Link(msgspec.Struct, frozen=True):
    """A record without a message, which others may follow."""

    id: str
    after: str


class Rewound(msgspec.Struct, frozen=True):
    """The user took back messages: all after the record `to`, all from the record `before` on, or the last `turns`
    turns."""

    to: str = ""
    before: str = ""
    turns: int = 0


class Replaced(msgspec.Struct, frozen=True):
    """The conversation so far was replaced by these messages: it was compacted, which says nothing about its worth."""

    messages: tuple[Said, ...]
    keep_from: str = ""
    """the first record that stays behind these messages; "": none does"""


class Marked(msgspec.Struct, frozen=True):
    """Evidence about the last answer."""

    signal: Signal


class Whole(msgspec.Struct, frozen=True):
    """A conversation that one record holds, whatever else the log says."""

    session: Session
    messages: tuple[Said, ...]
    fresh: int
    """index of the first message that may be learned"""
    unlearned: str = ""
    """reason why nothing of it is learned, for one that is only evidence"""


class Queued(msgspec.Struct, frozen=True):
    """A change of the queue that holds messages typed while the agent runs."""

    operation: str
    """`enqueue`; `dequeue`: the first one becomes a prompt, which has a record of its own; `remove`: the model is shown
    it at once; `popAll`: back to the user, who may edit it"""
    text: str = ""
    """the message, where the log has it"""


class Executed(msgspec.Struct, frozen=True):
    """The program carried out the command of the record `id` itself: the model was not asked."""

    id: str


class Dropped(msgspec.Struct, frozen=True):
    """A known record that the model did not write or was not shown, and the reason why it is left out."""

    reason: str


class Unknown(msgspec.Struct, frozen=True):
    """A record of a type that this reader does not know; it is counted."""

    type: str


Entry = Session | Said | Link | Rewound | Replaced | Marked | Whole | Queued | Executed | Dropped | Unknown


class Moment(msgspec.Struct, frozen=True):
    """A piece of a conversation from which something may be learned: what one prompt led to, with what came before."""

    line: int
    """line of the source in which it ends"""
    first_line: int
    """line in which its learnable part begins"""
    session: Session
    messages: tuple[Said, ...]
    fresh: int
    """index of the first message that may be learned; those before are context"""
    taken_back: str = ""
    """how the user took back the fresh messages: `branch` or `rewound`; empty: not taken back"""
    back_to: int = 0
    """index of the first message that was taken back, if any; it may be in an earlier moment"""
    then: Said | None = None
    """the prompt that ended it, or that replaces the one that was taken back"""
    unlearned: str = ""
    """reason why nothing of it is learned, see `Whole`"""
    lines: tuple[int, ...] = ()
    """line of the source in which each message begins; empty if one record holds all"""


class Remark(msgspec.Struct, frozen=True):
    """Evidence about answers in earlier moments: the next prompt, an interrupt or a rewind that came after them."""

    line: int
    """line of the source with the evidence"""
    about: Moment
    """the conversation up to there; its fresh messages hold no answer"""
    marked: Signal | None = None
    """on the last answer"""


def joined(first: Form, second: Form) -> Form:
    """One answer made of two parts: texts concatenated, calls in order. A part that repeats the other, extended or not,
    counts once. Keys stay in canonical order."""
    whole = {**first, **second}
    for key in ("content", "reasoning_content"):
        if key in first and key in second:
            whole[key] = second[key] if second[key].startswith(first[key]) else first[key] + second[key]
    if "tool_calls" in first and "tool_calls" in second:
        known = [call.get("id") for call in first["tool_calls"]]
        new = [call for call in second["tool_calls"] if call.get("id") is None or call.get("id") not in known]
        whole["tool_calls"] = [*first["tool_calls"], *new]
    return {key: whole[key] for key in sorted(whole)}


def added(first: Form, second: Form) -> Form | None:
    """The learnable content that the second part of an answer adds to the first; None if there is none."""
    whole = joined(first, second)
    more = dict(second)
    for key in ("content", "reasoning_content"):
        if key in first and key in second:
            more[key] = whole[key][len(first[key]) :]
    if "tool_calls" in first and "tool_calls" in second:
        more["tool_calls"] = whole["tool_calls"][len(first["tool_calls"]) :]
        if not more["tool_calls"]:
            del more["tool_calls"]
    return more if more["content"].strip() or "tool_calls" in more else None
