"""Identifies the answers that a record teaches, whatever its format: by a key, and with their text.

Pure. The key of an answer is made of its request and its content: the last message of the user and the last message of
any other role before the answer (often a tool's result), then its text and calls. White space, ids of calls, system
prompts and earlier turns do not count, since logs and formats differ in them; nor do thoughts, which many logs do not
keep. So "Done." after two different questions is two answers, and the same answer in the log of an agent and in a
record given over HTTP is one.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from apollod.core.inputs import Response
from apollod.wire.records import Form, Record, tokens_in_words, turn_json

_WHITE = b" \t\n\r\x0b\x0c"
_END = b"\xff"  # occurs in no UTF-8 text
_MESSAGES_AT = len(b'{"messages":[')


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: msgspec.Raw


class _Call(msgspec.Struct, gc=False):
    function: _Function


class _Turn(msgspec.Struct, gc=False):
    tool_calls: list[_Call] = []


class _Conversation(msgspec.Struct, gc=False):
    messages: list[msgspec.Raw]


class Taught(NamedTuple):
    """The answers that a record teaches, in order, and all their text."""

    responses: tuple[Response, ...]
    text: str


_conversation = msgspec.json.Decoder(_Conversation).decode
_made = msgspec.json.Decoder(_Turn).decode
_any = msgspec.json.Decoder().decode
_sorted = msgspec.json.Encoder(order="sorted").encode


def taught(record: Record) -> Taught:
    """The learned answers of a record."""
    if record.kind == "messages":
        turns = [bytes(memoryview(raw)) for raw in _conversation(record.canonical).messages]
        return taught_by([_any(turn) for turn in turns], turns)
    form: dict[str, Any] = msgspec.json.decode(record.canonical)
    if record.kind == "tokens":
        form = {"prompt": tokens_in_words(form["prompt_token_ids"]), "completion": tokens_in_words(form["token_ids"])}
    text = form["text"] if record.kind == "text" else form["completion"]
    question = form.get("prompt", "").encode()
    return Taught((Response(_key(question, question, text.encode())),), text)


def taught_by(messages: Sequence[Form], turns: Sequence[bytes]) -> Taught:
    """The learned answers of a conversation. `turns`: JSON of each message in the record.

    Canonical JSON has no white space, so offsets of turns follow from their lengths.
    """
    asked = last = ""
    responses, texts, end = list[Response](), list[str](), _MESSAGES_AT - 1
    for message, turn in zip(messages, turns, strict=True):
        end += len(turn) + 1
        role = message["role"]
        if role == "user":
            asked = last = message["content"]
        elif role != "assistant":
            last = message["content"]
        elif message.get("weight", 1):
            answer = answer_of(asked, last, message)
            responses.append(Response(answer.key, end - 1))
            texts.append(answer.text)
    return Taught(tuple(responses), "\n".join(texts))


class Answer(NamedTuple):
    """One answer. `key`: see above; `text`: its content and calls, readable."""

    key: str
    text: str


def answer_of(asked: str, last: str, form: Form) -> Answer:
    """Identity of the answer `form`. `asked`: the last message of the user before it; `last`: the last message before
    it that is not an assistant's."""
    made = _made(turn_json(form)).tool_calls if "tool_calls" in form else ()
    calls = b"".join(map(_call, made))
    key = _key(asked.encode(), last.encode(), form["content"].encode(), calls)
    return Answer(key, "\n".join([form["content"], *_arguments(made)]))


def _key(asked: bytes, last: bytes, answer: bytes, calls: bytes = b"") -> str:
    said = (part.translate(None, _WHITE) for part in (asked, last, answer))
    return blake2b(_END.join((*said, calls)), digest_size=16).hexdigest()


def _call(call: _Call) -> bytes:
    """A call as bytes, with sorted keys, since programs write the same arguments in different orders."""
    return call.function.name.encode() + _END + _sorted(_any(call.function.arguments)) + _END


def _arguments(calls: Sequence[_Call]) -> list[str]:
    """The arguments of each call as JSON, with escaped line breaks decoded, so that words are separated."""
    return [bytes(memoryview(call.function.arguments)).decode().replace("\\n", "\n") for call in calls]
