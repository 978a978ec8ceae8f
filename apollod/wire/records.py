"""The inbox's record schema: parses a line of JSON into a training record, or refuses it with the reason.

Pure and light, since the trainer reads records too. A record is kept in a canonical form and identified by its hash, so
the same example is recognised in any JSON spelling. Whatever changes the text that a model sees changes the form; white
space, escapes, order of keys, content parts, ids and metadata do not. The tier that a line may name is not part of it:
the same text in another tier is the same example.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from apollod.core.events import Sampled, Tier
from apollod.core.facts.intake.repeats import content_id
from apollod.errors import RecordRefused
from apollod.wire.strict_json import DEPTH_MAX, depth_over, half_a_pair, json_type, load, short, too_deep, too_large
from apollod.wire.teacher import GivenTeacher

ROLES = ("system", "developer", "user", "assistant", "tool")
_SHAPES = 'write {"messages": [...]}, {"prompt": ..., "completion": ...} or {"text": ...}'
_TOKENS = 'write {"prompt_token_ids": [1, 2], "token_ids": [3, 4]}, numbers of the model\'s own vocabulary'
_ID_MAX = (1 << 31) - 1

Kind = Literal["messages", "completion", "text", "tokens", "compared"]
Form = dict[str, Any]
"""One turn in canonical form: known fields only, keys in order, without null and default values"""


TIERS: tuple[Tier, ...] = ("direct", "bulk", "dream")
"""tiers that a line may name"""


class Record(NamedTuple):
    """A line that can be learned from. `id`: hex of BLAKE2b-128 of `canonical`; `tier`: as named by the line, if
    any."""

    kind: Kind
    canonical: bytes
    id: str
    tier: Tier | None = None


class Function(msgspec.Struct, frozen=True, omit_defaults=True):
    """`arguments`: an object, in the written order."""

    name: str
    arguments: dict[str, Any]


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    function: Function
    type: str
    id: str | None = None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn. `weight` 0: an assistant turn that is context, not target; `reasoning_weight` 0: its thought is
    context. `part` (k, n): the k-th of n parts of a long answer, from 0, is the target, and the text before it is
    context. `msgspec.to_builtins` gives the form for chat templates."""

    role: str
    content: str
    name: str | None = None
    part: tuple[int, int] | None = None
    reasoning_content: str | None = None
    reasoning_weight: int = 1
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None
    weight: int = 1


class MessagesRecord(msgspec.Struct, frozen=True):
    """A conversation; the targets are its assistant turns with weight 1. `teacher`: with the distribution that they are
    learned from."""

    messages: list[Message]
    tools: list[dict[str, Any]] = []
    sampled: list[Sampled] = []
    teacher: GivenTeacher | None = None


class CompletionRecord(msgspec.Struct, frozen=True):
    """Plain text; the target is `completion`."""

    prompt: str
    completion: str
    sampled: list[Sampled] = []
    teacher: GivenTeacher | None = None


class TextRecord(msgspec.Struct, frozen=True):
    """Plain text, all of it target."""

    text: str
    teacher: GivenTeacher | None = None


TOKEN_IDS = b'{"prompt_token_ids"'
"""how the record of token ids begins"""


class TokensRecord(msgspec.Struct, frozen=True):
    """Text that was tokenised by whoever gives it; the targets are `token_ids`, as they are: no end is added."""

    prompt_token_ids: list[int]
    token_ids: list[int]
    teacher: GivenTeacher | None = None

    def as_words(self) -> tuple[str, str]:
        """Context and targets for readers of text, which have no tokenizer."""
        return tokens_in_words(self.prompt_token_ids), tokens_in_words(self.token_ids)


def tokens_in_words(ids: Sequence[int]) -> str:
    """Token ids as a text for people."""
    return " ".join(map(str, ids))


_written = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
Readable = MessagesRecord | CompletionRecord | TextRecord
"""Records that have text"""
TypedRecord = Readable | TokensRecord

# The canonical form has sorted keys, so the first key tells the shape.
_TYPED: dict[bytes, msgspec.json.Decoder[Any]] = {
    b'{"completion"': msgspec.json.Decoder(CompletionRecord),
    b'{"messages"': msgspec.json.Decoder(MessagesRecord),
    TOKEN_IDS: msgspec.json.Decoder(TokensRecord),
    b'{"text"': msgspec.json.Decoder(TextRecord),
}


def parse_line(line: bytes) -> Record:
    """The record in a line (with or without its newline); raises RecordRefused. The line must not begin with a byte
    order mark."""
    value = object_of_line(line)
    kind, form = _shape(value)
    return _record(kind, form, _tier(value.get("tier")))


def object_of_line(line: bytes) -> dict[str, Any]:
    """The JSON object in a line, not interpreted; raises RecordRefused if it is not valid for `record_of`."""
    value = load(line)
    if not isinstance(value, dict):
        raise RecordRefused(f"the line is a JSON {json_type(value)}, not an object", _SHAPES)
    return value


def record_of(value: dict[str, Any]) -> Record:
    """The record for a line with this JSON object; raises RecordRefused."""
    if depth_over(value, DEPTH_MAX):
        raise too_deep()
    kind, form = _shape(value)
    return _record(kind, form, _tier(value.get("tier")))


def record_of_forms(
    messages: Sequence[Form], tools: Sequence[dict[str, Any]] = (), turns: Sequence[bytes] | None = None
) -> Record:
    """The record of a conversation whose turns are in canonical form already; raises RecordRefused. `turns`: the result
    of `turn_json` for each, if known."""
    form = _conversation(list(messages), {"tools": list(tools)})
    written = b",".join(turns if turns is not None else map(turn_json, messages))
    rest = b',"tools":' + _json(form["tools"]) if "tools" in form else b""
    canonical = b'{"messages":[' + written + b"]" + rest + b"}"
    return record_of_bytes("messages", canonical)


def record_of_bytes(kind: Kind, canonical: bytes, tier: Tier | None = None) -> Record:
    """The record with this canonical form."""
    return Record(kind, canonical, content_id(canonical), tier)


def turn_json(form: Form) -> bytes:
    """A turn in canonical form as JSON, as in a record; raises RecordRefused."""
    if "tool_calls" in form:
        return _json(form)
    try:
        return msgspec.json.encode(form)  # faster, and equal except for numbers
    except UnicodeEncodeError as error:
        raise half_a_pair() from error


def _record(kind: Kind, form: dict[str, Any], tier: Tier | None = None) -> Record:
    return record_of_bytes(kind, _json(form), tier)


def _json(value: Any) -> bytes:
    try:
        return _written(value).encode()
    except UnicodeEncodeError as error:
        raise half_a_pair() from error
    except ValueError as error:  # 1e400 is read as infinity
        raise too_large() from error


def with_sampled(canonical: bytes, sampled: Sequence[Sampled]) -> bytes:
    """A canonical record for the trainer, with the tokens of its answers, in order."""
    return canonical[:-1] + b',"sampled":' + msgspec.json.encode(sampled) + b"}" if sampled else canonical


def decode_record(canonical: bytes) -> TypedRecord:
    """The typed form of a canonical record, with or without tokens and teacher; raises RecordRefused for other
    bytes."""
    decoder = _TYPED.get(canonical[: canonical.find(b":")])
    if decoder is None:
        raise RecordRefused("the bytes are no canonical record", "give what parse_line made")
    try:
        record: TypedRecord = decoder.decode(canonical)
    except msgspec.MsgspecError as error:
        raise RecordRefused(f"the bytes are no canonical record: {error}", "give what parse_line made") from error
    return record


# --- shapes -------------------------------------------------------------------------------------------------------


def _shape(value: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
    """The record's kind and canonical form: only text that the model is shown, keys in order. Other fields are
    ignored."""
    # tables exported as JSON are full of nulls
    value = {key: field for key, field in value.items() if field is not None}
    if "messages" in value:
        return "messages", _conversation(_messages(value["messages"], "messages"), value)
    if "prompt" in value and "completion" in value:
        return _prompt_completion(value)
    if "text" in value:
        return "text", {"text": _text(value["text"], "text")}
    if "token_ids" in value:
        return "tokens", _tokens(value)
    found = ", ".join(short(key) for key in list(value)[:5]) or "no keys"
    raise RecordRefused(f"the object has no known shape (it has {found})", _SHAPES)


def _tier(value: Any) -> Tier | None:
    """The tier, if any. An unknown one is refused: a wrong learning rate would go unnoticed."""
    if value is not None and value not in TIERS:
        raise RecordRefused(f"the tier is {short(value)}", f"use one of {', '.join(TIERS)}, or leave it out")
    return value  # type: ignore[no-any-return]


def _prompt_completion(value: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
    prompt, completion = value["prompt"], value["completion"]
    if isinstance(prompt, list) and isinstance(completion, list):
        # As in TRL: turns of the prompt are context, also the assistant's.
        context = [
            {**message, "weight": 0} if message["role"] == "assistant" else message
            for message in _messages(prompt, "prompt")
        ]
        return "messages", _conversation(context + _messages(completion, "completion"), value)
    if not isinstance(prompt, str) or isinstance(completion, list):
        raise RecordRefused(
            f"prompt is a JSON {json_type(prompt)} and completion is a JSON {json_type(completion)}",
            "make both strings, or both lists of messages",
        )
    return "completion", {"completion": _text(completion, "completion"), "prompt": prompt}


def _tokens(value: dict[str, Any]) -> dict[str, Any]:
    """Check the form of token ids; the trainer checks that the model has these tokens."""
    form = {name: _ids(value.get(name), name) for name in ("prompt_token_ids", "token_ids")}
    if not form["token_ids"]:
        raise RecordRefused("token_ids is empty, so there is no target token", "leave the line out")
    return form


def _ids(value: Any, name: str) -> list[int]:
    if not isinstance(value, list):
        found = "missing" if value is None else f"a JSON {json_type(value)}, not a list"
        raise RecordRefused(f"{name} is {found}", _TOKENS)
    for one in value:
        if type(one) is not int or not 0 <= one <= _ID_MAX:
            raise RecordRefused(f"{name} has {short(one)}, which is no token id", _TOKENS)
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RecordRefused(f"{name} is a JSON {json_type(value)}, not a string", "write the text as one string")
    if not value.strip():
        raise RecordRefused(f"{name} is empty, so there is no target token", "leave the line out")
    return value


def _conversation(messages: list[dict[str, Any]], value: dict[str, Any]) -> dict[str, Any]:
    assistant = [message for message in messages if message["role"] == "assistant"]
    if not assistant:
        raise RecordRefused("messages have no assistant turn, so there is no target token", "add the answer to learn")
    if all(message.get("weight") == 0 for message in assistant):
        raise RecordRefused(
            "every assistant turn has weight 0, so there is no target token", "give one of them weight 1"
        )
    form: dict[str, Any] = {"messages": messages}
    tools = value.get("tools")
    if tools:
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise RecordRefused("tools is not a list of objects", "give the tools as in an OpenAI chat request")
        form["tools"] = tools  # in the order in which they were written: a chat template shows it
    return form


def _messages(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise RecordRefused(
            f"{where} is a JSON {json_type(value)}, not a list", "give a list of {role, content} objects"
        )
    return [message_form(item, f"message {number}") for number, item in enumerate(value, 1)]


def message_form(value: Any, where: str, part: bool = False) -> Form:
    """The canonical form of one turn; content is always there. `where`: its name in an error. `part`: it is a part of
    an answer, which may be empty. Raises RecordRefused."""
    if not isinstance(value, dict):
        raise RecordRefused(f"{where} is a JSON {json_type(value)}, not an object", "give {role, content}")
    role = value.get("role")
    if role not in ROLES:
        raise RecordRefused(f"{where} has the role {short(role)}", f"use one of {', '.join(ROLES)}")
    form: dict[str, Any] = {"content": _content(value.get("content"), role, where)}
    if value.get("name") is not None:
        form["name"] = _string(value["name"], f"name of {where}")
    if role == "assistant" and value.get("part") is not None:
        form["part"] = _part(value["part"], where)
    if value.get("reasoning_content") is not None:
        form["reasoning_content"] = _string(value["reasoning_content"], f"reasoning_content of {where}")
        if _weight(value.get("reasoning_weight"), where) == 0:
            form["reasoning_weight"] = 0
    form["role"] = role
    if value.get("tool_call_id") is not None:
        form["tool_call_id"] = _string(value["tool_call_id"], f"tool_call_id of {where}")
    if role == "assistant":
        if value.get("tool_calls"):
            form["tool_calls"] = _tool_calls(value["tool_calls"], where)
        elif not part and not form["content"].strip():
            raise RecordRefused(f"{where} is an empty assistant turn", "give it content or tool_calls, or leave it out")
        if _weight(value.get("weight"), where) == 0:
            form["weight"] = 0
    elif value.get("strip") is True:
        form["strip"] = True  # the reader of the line removes the message, so it is not learned
    return form


def _content(value: Any, role: str, where: str) -> str:
    """Content as one string: chat templates render text parts one after the other."""
    if value is None and role == "assistant":
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise RecordRefused(
            f"the content of {where} is a JSON {json_type(value)}", "write a string or a list of text parts"
        )
    texts = []
    for part in value:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise RecordRefused(
                f"the content of {where} has a part that is not text", 'use only {"type": "text", "text": ...}'
            )
        texts.append(part["text"])
    return "".join(texts)


def _tool_calls(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise RecordRefused(f"tool_calls of {where} is not a list", "give the calls as in an OpenAI chat response")
    calls = []
    for call in value:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            what = f"{where} has a tool call without a function name"
            raise RecordRefused(what, 'give {"function": {"name": ..., "arguments": ...}}')
        arguments = _arguments(function.get("arguments"), where)
        form: dict[str, Any] = {"function": {"arguments": arguments, "name": function["name"]}}
        if call.get("id") is not None:
            form["id"] = _string(call["id"], f"the id of a tool call of {where}")
        calls.append({**form, "type": "function"})
    return calls


def _arguments(value: Any, where: str) -> dict[str, Any]:
    """Arguments as an object: OpenAI sends them as JSON text, chat templates need the object, as vLLM passes it."""
    if isinstance(value, str):
        try:
            value = load(value) if value else {}
        except RecordRefused as error:
            what = f"the arguments of a tool call of {where} are broken: {error}"
            raise RecordRefused(what, "write a JSON object") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RecordRefused(
            f"the arguments of a tool call of {where} are a JSON {json_type(value)}", "write a JSON object"
        )
    return value


def _weight(value: Any, where: str) -> int:
    if value is None:
        return 1
    if value not in (0, 1):
        raise RecordRefused(f"the weight of {where} is {short(value)}", "use 0 (context) or 1 (target)")
    return int(value)


def _part(value: Any, where: str) -> list[int]:
    whole = isinstance(value, list) and [type(one) for one in value] == [int, int]
    if not whole or not 0 <= value[0] < value[1]:
        raise RecordRefused(f"the part of {where} is {short(value)}", "give [number from 0, count], or leave it out")
    return [*value]


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise RecordRefused(f"{what} is a JSON {json_type(value)}, not a string", "write a string")
    return value
