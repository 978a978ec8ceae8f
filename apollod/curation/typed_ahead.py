"""Turns of the user whose place in the conversation only shows later: messages typed while the agent ran, and commands.

A message typed while the agent ran waits in a queue. The agent sees it behind the results of the open calls, but logs
may have it before them. A command is a prompt only if it led to something; many are carried out by the program alone.
Such turns are held here until the next records come.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from apollod.curation.conversation import Queued, Said, Signal
from apollod.wire.records import Form

MID_RUN = "mid-run"
SHOWN = 16  # remembered texts of messages with a record, to ignore their repetition by the queue
_OF_PROGRAM = re.compile(r"\s*(?:/[\w:.-]+(?:\s|$)|<task-notification>|<local-command)")
"""Queue entries of the program: commands that it carries out, and its own messages"""


class TypedAhead(msgspec.Struct, frozen=True):
    """Messages waiting in the queue, and the turns held back."""

    waiting: tuple[str, ...] = ()
    held: tuple[Said, ...] = ()
    shown: tuple[str, ...] = ()

    def moved(self, change: Queued) -> "TypedAhead":
        """The state after a change of the queue. A change without a text applies to the first message."""
        text = change.text.strip()
        if change.operation == "enqueue":
            return msgspec.structs.replace(self, waiting=(*self.waiting, text)) if text else self
        text = text or (self.waiting[0] if self.waiting else "")
        if change.operation == "popAll" and not change.text:
            return msgspec.structs.replace(self, waiting=())
        after = msgspec.structs.replace(self, waiting=_without(self.waiting, text))
        if change.operation != "remove" or not text or _OF_PROGRAM.match(text):
            return after
        if text in self.shown:
            return msgspec.structs.replace(after, shown=_without(self.shown, text))
        return msgspec.structs.replace(after, held=(*self.held, typed(text)))

    def hold(self, said: Said) -> "TypedAhead":
        """The state with one more held turn."""
        return msgspec.structs.replace(self, held=(*self.held, said))

    def without(self, said: Said) -> "TypedAhead":
        """The state after a prompt with a record came: drops the held copy that only the queue had."""
        held = tuple(one for one in self.held if one.id or _text(one) != _text(said))
        return self if len(held) == len(self.held) else msgspec.structs.replace(self, held=held)

    def executed(self, record: str) -> "TypedAhead":
        """The state without the held command of this record."""
        return msgspec.structs.replace(self, held=tuple(one for one in self.held if one.id != record))

    def remember(self, said: Said) -> "TypedAhead":
        """Note that a message has a record of its own: the queue may have had it before, or may repeat it."""
        known = self.without(said)
        return known if known is not self else msgspec.structs.replace(self, shown=(*self.shown, _text(said))[-SHOWN:])


def typed(text: str, record: str = "", after: str | None = None) -> Said:
    """A prompt that came while the agent ran."""
    message: Form = {"content": text, "role": "user"}
    return Said(message, id=record, after=after, prompt=True, signals=(Signal(MID_RUN, text[:200]),))


def is_mid_run(said: Said) -> bool:
    """True if the message was typed while the agent ran."""
    return any(signal.kind == MID_RUN for signal in said.signals)


def has_open_calls(messages: Sequence[Said]) -> bool:
    """True if calls of the last answer have no results yet."""
    done: set[object] = set()
    for said in reversed(messages):
        message = said.message
        if message["role"] == "tool":
            done.add(message.get("tool_call_id"))
        elif message["role"] == "assistant":
            return any(call.get("id") is not None and call["id"] not in done for call in message.get("tool_calls", ()))
        else:
            return False
    return False


def said_again(messages: Sequence[Said], said: Said) -> bool:
    """True if the prompt already stands after the last answer, once marked as typed during the run and once not."""
    for one in reversed(messages):
        if one.message["role"] == "assistant":
            return False
        if one.prompt and _text(one) == _text(said) and is_mid_run(one) != is_mid_run(said):
            return True
    return False


def _text(said: Said) -> str:
    return str(said.message["content"]).strip()


def _without(texts: Iterable[str], text: str) -> tuple[str, ...]:
    """The texts without the first occurrence of this one."""
    left = list(texts)
    if text in left:
        left.remove(text)
    return tuple(left)
