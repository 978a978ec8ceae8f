"""Turns of the user whose place in the conversation only shows later: messages typed while the agent ran, and commands.

A message that was typed while the agent ran waits in a queue. The agent is shown it behind the results of the calls
that are open, but logs may say so before them. A command is a prompt only if it led to something; many are carried out
by the program alone. Such turns are held here until what follows them comes.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from apollod.curation.conversation import Queued, Said, Signal
from apollod.wire.records import Form

MID_RUN = "mid-run"
SHOWN = 16  # texts remembered of messages that stand in the log, so that the queue does not say them again
_OF_PROGRAM = re.compile(r"\s*(?:/[\w:.-]+(?:\s|$)|<task-notification>|<local-command)")
"""In the queue: commands, which the program carries out, and what it says to itself"""


class TypedAhead(msgspec.Struct, frozen=True):
    """Messages waiting in the queue, and the turns held back."""

    waiting: tuple[str, ...] = ()
    held: tuple[Said, ...] = ()
    shown: tuple[str, ...] = ()

    def moved(self, change: Queued) -> "TypedAhead":
        """After a change of the queue. The first message is meant where none is named."""
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
        """With one more turn."""
        return msgspec.structs.replace(self, held=(*self.held, said))

    def without(self, said: Said) -> "TypedAhead":
        """A prompt came that has a record: what only the queue said of it goes."""
        held = tuple(one for one in self.held if one.id or _text(one) != _text(said))
        return self if len(held) == len(self.held) else msgspec.structs.replace(self, held=held)

    def executed(self, record: str) -> "TypedAhead":
        """Without the command of a record."""
        return msgspec.structs.replace(self, held=tuple(one for one in self.held if one.id != record))

    def remember(self, said: Said) -> "TypedAhead":
        """A message has a record of its own: the queue may have said it before, or may say it again."""
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
    """Have calls of the last answer no results yet?"""
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
    """True if a prompt stands there already, since the last answer, once as typed while the agent ran and once not."""
    for one in reversed(messages):
        if one.message["role"] == "assistant":
            return False
        if one.prompt and _text(one) == _text(said) and is_mid_run(one) != is_mid_run(said):
            return True
    return False


def _text(said: Said) -> str:
    return str(said.message["content"]).strip()


def _without(texts: Iterable[str], text: str) -> tuple[str, ...]:
    """Without the first one that is so."""
    left = list(texts)
    if text in left:
        left.remove(text)
    return tuple(left)
