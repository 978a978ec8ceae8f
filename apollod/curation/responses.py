"""Identifies the answers that a record teaches, whatever its format: by a key, and with their text.

Pure. The key of an answer is made of its request and its content: the last message of the user and the last message of
any other role before the answer (often a tool's result), then its text and calls. White space, ids of calls, system
prompts and earlier turns do not count, since logs and formats differ in them; nor do thoughts, which many logs do not
keep. So "Done." after two different questions is two answers, and the same answer in the log of an agent and in a
record given over HTTP is one.
"""

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from apollod.core.facts.intake.events import Origin, Sampled
from apollod.core.facts.intake.inputs import Line, Response
from apollod.curation.conversation import is_learned
from apollod.curation.preferences import Preferences, pair, rated
from apollod.errors import RecordRefused
from apollod.wire.records import Form, Record, record_of, record_of_bytes, tokens_in_words, turn_json
from apollod.wire.thoughts import NO_THOUGHT, opens_thought

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


# Answers that the engine captured: matches them with those of a log, makes the training record of a rated one, and
# finds the question in a prompt that a chat template rendered.
#
# A log names the responses that it holds (`Origin.responses`); the text has to agree, too, since a client may
# choose ids, and edit what it writes down. The record of a rated answer has the texts for people, exports and the
# content id; training uses the tokens beside it.


class Captured(NamedTuple):
    """An answer that the engine gave. `text`: as its client received it."""

    name: str
    """id of the response, with `#N` behind it for another choice than the first"""
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    text: str


class _Turns(msgspec.Struct):
    messages: list[dict[str, Any]] = []


def joined(line: Line, captured: Callable[[str], Sequence[Captured]], prompt_most: int = 1 << 62) -> Line:
    """Attach the sampled tokens to each answer of the line that was captured.

    The prompt is kept as the engine saw it where nothing was taken out of it; the trainer uses it if its text is that
    of the record, which is not so for a log with less than the whole conversation. A prompt of more than `prompt_most`
    tokens is dropped: no step could take it.
    """
    if not line.origin.responses or not line.responses:
        return line
    turns = msgspec.json.decode(line.record, type=_Turns).messages
    turns = [turn for turn in turns if is_learned(turn)]
    named = [captured(response) for response in line.origin.responses]
    if not any(named) or len(turns) != len(line.responses):
        return line
    found, first = list[Response](), 0  # the responses stand in the order of the turns; some turns have none
    for turn, response in zip(turns, line.responses, strict=True):
        for place in range(first, len(named)):
            if taken := next((one for one in named[place] if says(turn, one.text)), None):
                whole = not (found or line.removed or line.origin.left_out or line.origin.shortened)
                prompt = taken.prompt if whole and len(taken.prompt) <= prompt_most else ()
                response = msgspec.structs.replace(response, sampled=Sampled(taken.name, taken.answer, prompt))
                first = place + 1
                break
        found.append(response)
    return msgspec.structs.replace(line, responses=tuple(found))


def says(turn: dict[str, Any], text: str) -> bool:
    """True if the log's words of this answer stand in the sampled text."""
    sampled = "".join(text.split())
    content = "".join(str(turn.get("content", "")).split())
    names = [str(call["function"]["name"]) for call in turn.get("tool_calls") or ()]
    return bool(content or names) and content in sampled and all("".join(name.split()) in sampled for name in names)


# --- rated answers ----------------------------------------------------------------------------------------------------


def rated_line(answer: Captured, prompt: str, good: bool, model: str, preferences: Preferences) -> Line | None:
    """The line to learn of an answer that was rated, exactly as it was sampled; None: a bad answer is not learned.
    Raises RecordRefused for an empty one."""
    line = _line(answer.name, prompt, answer.text, _sampled(answer), model)
    if preferences.ratings == "sft":
        return line if good else None
    record = rated(record_of_bytes("completion", line.record), good, preferences)
    return msgspec.structs.replace(
        line, example=record.id, record=record.canonical, sampled=(_sampled(answer),),
        responses=line.responses if good else (), decided=True,
    )  # fmt: skip


def corrected_line(
    answer: Captured, prompt: str, correction: str, final: int, model: str, preferences: Preferences
) -> Line:
    """The line to learn of a corrected answer: the correction after the very tokens of the engine's prompt, ended as
    the engine ends, or the pair of both answers.

    A thought that the prompt has opened is closed empty. Raises RecordRefused for a correction that is empty or equal
    to the answer.
    """
    if not correction.strip():
        raise RecordRefused("the correction is empty", "say what should have been answered, or leave it out")
    if correction.strip() == answer.text.strip():
        raise RecordRefused(
            "the correction is what was answered", "rate it good, or say what should have been answered"
        )
    text = NO_THOUGHT + correction if opens_thought(prompt) else correction
    sampled = Sampled(answer.name, (), answer.prompt, final)
    line = _line(answer.name, prompt, text, sampled, model)
    if preferences.pairs == "sft":
        return line
    worse = _line(answer.name, prompt, answer.text, _sampled(answer), model)
    better, other = (record_of_bytes("completion", one.record) for one in (line, worse))
    record = pair(better, other, preferences)
    return msgspec.structs.replace(
        line, example=record.id, record=record.canonical, sampled=(sampled, _sampled(answer)), decided=True
    )


def _sampled(answer: Captured) -> Sampled:
    return Sampled(answer.name, answer.answer, answer.prompt)


def _line(name: str, prompt: str, completion: str, sampled: Sampled, model: str) -> Line:
    record = record_of({"prompt": prompt, "completion": completion})
    (response,) = taught(record).responses
    return Line(
        1, record.id, record.canonical, origin=Origin(responses=(name,), model=model),
        responses=(type(response)(response.key, response.end, sampled),),
    )  # fmt: skip


# --- rendered prompts -------------------------------------------------------------------------------------------------

_CHATML = (
    r"(?:<\|im_start\|>system\n(?P<system>.*?)<\|im_end\|>\n)?<\|im_start\|>user\n(?P<question>.*?)<\|im_end\|>\n"
    r"<\|im_start\|>assistant\n(?:<think>\s*(?:</think>\s*)?)?"
)
_LLAMA = (
    r"(?:<\|begin_of_text\|>)?(?:<\|start_header_id\|>system<\|end_header_id\|>\n\n(?P<system>.*?)<\|eot_id\|>)?"
    r"<\|start_header_id\|>user<\|end_header_id\|>\n\n(?P<question>.*?)<\|eot_id\|>"
    r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n"
)
_GEMMA = r"(?:<bos>)?<start_of_turn>user\n(?P<system>)(?P<question>.*?)<end_of_turn>\n<start_of_turn>model\n"
_MISTRAL = r"(?:<s>)?\s?\[INST\]\s?(?P<system>)(?P<question>.*?)\s?\[/INST\]"
_FORMS = tuple(re.compile(form, re.DOTALL) for form in (_CHATML, _LLAMA, _GEMMA, _MISTRAL))
_MARK = re.compile(r"<\|\w+\|>|<(?:start|end)_of_turn>|\[/?INST\]")


def question_in(prompt: str, template: str) -> str:
    """The user's question, if nothing else precedes the answer; empty for several turns, a system message, or another
    form than ChatML, Llama 3, Gemma and Mistral. A system message that is part of the `template` itself is allowed,
    since the template adds it to a bare question, too."""
    for form in _FORMS:
        if (found := form.fullmatch(prompt)) and not _MARK.search(found["question"]):
            own = not found["system"] or found["system"].strip() in template
            return found["question"].strip() if own else ""
    return ""
