"""Logs of Inspect, the framework for evaluations: `logs/*.eval` (a zip) and `logs/*.json`.

A sample holds a conversation with its messages, the results of its scorers, and long texts that stand elsewhere in it
(`attachment://`). After `log/_log.py` of UKGovernmentBEIS/inspect_ai, versions 2 and 3 of the format. A `.eval` comes
from `adapters/sources/unpack.py` as `BEGIN`, then one line per sample. A sample is one record, and only the
members in use are kept (`line_of_sample`): its events repeat everything.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Said, Session, Signal, Unknown, Whole
from apollod.curation.formats import turns
from apollod.curation.formats.document import in_documents
from apollod.curation.formats.session_reader import SessionReader, json_object, string

NAME = "inspect"
BEGIN = b'{"inspect_eval_log":1}\n'
ATTACHMENT = "attachment://"
LABELS = {"C": "correct", "I": "incorrect", "N": "incorrect", "P": "0.5"}
"""Values that Inspect's scorers give; N: no answer"""
_document = re.compile(rb'\s*\{\s*"version":\s*\d+,\s*"(?:status|eval)":').match


class _Call(msgspec.Struct):
    id: str | None = None
    function: str | None = None
    arguments: Any = None
    parse_error: str | None = None


class _Error(msgspec.Struct):
    type: str | None = None
    message: str | None = None


class _Message(msgspec.Struct):
    role: str | None = None
    content: Any = None
    id: str | None = None
    source: str | None = None
    model: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    error: _Error | None = None


class _Choice(msgspec.Struct):
    stop_reason: str | None = None


class _Output(msgspec.Struct):
    model: str | None = None
    choices: list[_Choice] | None = None


class _Sample(msgspec.Struct):
    id: str | int | None = None
    uuid: str | None = None
    epoch: int | None = None
    messages: list[_Message] | None = None
    output: _Output | None = None
    scores: dict[str, Any] | None = None
    attachments: dict[str, Any] | None = None
    model_usage: dict[str, Any] | None = None
    error: Any = None


class _Record(_Sample):
    """A line, or a member of a document."""

    samples: _Sample | None = None


class _Kept(msgspec.Struct, omit_defaults=True):
    """The members of a sample that are read."""

    id: msgspec.Raw = msgspec.Raw(b"null")
    uuid: msgspec.Raw = msgspec.Raw(b"null")
    epoch: msgspec.Raw = msgspec.Raw(b"null")
    messages: msgspec.Raw = msgspec.Raw(b"null")
    output: msgspec.Raw = msgspec.Raw(b"null")
    scores: msgspec.Raw = msgspec.Raw(b"null")
    attachments: msgspec.Raw = msgspec.Raw(b"null")
    model_usage: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Record).decode
_kept = msgspec.json.Decoder(_Kept).decode


def line_of_sample(sample: bytes) -> bytes:
    """A sample of a `.eval` as a line with only the members in use; unchanged if it does not parse."""
    try:
        sample = msgspec.json.encode(_kept(sample))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass  # the reader reports the error
    return sample.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"  # JSON strings hold no raw line breaks


def _recognise(document: bool, path: str, head: bytes) -> bool:
    """Recognise the marker line of an unpacked `.eval`, or a JSON document with a version and a task."""
    if not document:
        return head.startswith(BEGIN)
    return bool(_document(head)) and b'"run_id"' in head and b'"task"' in head


def hear(line: bytes) -> Iterable[Entry]:
    """The entries of one sample."""
    if line == BEGIN:
        return (Session(agent=NAME),)
    record = json_object(line, _decode)
    sample = record.samples or record
    if sample.messages is None:
        return (Dropped("facts about the evaluation"),)
    return tuple(_of_sample(sample))


def _of_sample(sample: _Sample) -> Iterable[Entry]:
    output = sample.output or _Output()
    used = list(sample.model_usage or ())
    model = output.model or (used[0].rpartition("/")[2] if len(used) == 1 else "")
    said, system, asked = list[Said](), "", False
    for message in sample.messages or ():
        text = _text(message.content, sample.attachments or {})
        match message.role:
            case "system":
                system = f"{system}\n\n{text}" if system else text
            case "user" if text.strip():
                said.append(Said(turns.form("user", text), id=message.id or "", prompt=not asked))
                asked = True
            case "assistant":
                said.append(_answer(message, text, model))
            case "tool":
                said.append(_result(message, text))
            case "user":
                yield Dropped("a prompt without text")
            case role:
                yield Unknown(f"role: {role}")
    answers = [n for n, one in enumerate(said) if one.message["role"] == "assistant"]
    if not answers:
        yield Dropped("a sample without an answer")
        return
    last = said[answers[-1]]
    stop = output.choices[0].stop_reason if output.choices else None
    cut = stop in ("max_tokens", "model_length", "content_filter")
    message_ = {**last.message, "weight": 0} if cut else last.message
    said[answers[-1]] = msgspec.structs.replace(last, message=message_, signals=tuple(_scores(sample.scores or {})))
    session = Session(id=f"{sample.uuid or sample.id or ''}", agent=NAME, model=model, system=system)
    yield Whole(session, tuple(said), 0, "the sample ended with an error" if sample.error else "")


def _answer(message: _Message, text: str, model: str) -> Said:
    calls = [turns.tool_call(call.id, call.function, call.arguments) for call in message.tool_calls or ()]
    broken = any(call.parse_error for call in message.tool_calls or ())
    context = message.source == "input" or broken  # given with the task; or the model's own text is missing
    said = turns.answer(text, turns.text_of_blocks(message.content, "reasoning"), calls, context)
    return Said(said, id=message.id or "", model=message.model or model)


def _result(message: _Message, text: str) -> Said:
    error = message.error or _Error()
    text = text or error.message or ""
    signals = turns.trouble(error.message or text, message.error is not None, error.type == "approval")
    return Said(turns.form("tool", text, tool_call_id=message.tool_call_id), id=message.id or "", signals=signals)


def _scores(scores: dict[str, Any]) -> Iterable[Signal]:
    """Scores that are labels or numbers."""
    for name, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else None
        if isinstance(value, str | int | float):
            label = LABELS.get(str(value), str(value))
            yield Signal("evaluation", f"{'_'.join(name.split()) or 'score'} {label}")


def _text(content: Any, attachments: dict[str, Any]) -> str:
    """The text of a message, with attachments resolved from elsewhere in the sample."""
    if isinstance(content, list):
        texts = (turns.text_of_blocks([block], "text") for block in content)
        return "".join(_text(text, attachments) for text in texts)
    text = string(content)
    if text.startswith(ATTACHMENT):
        return string(attachments.get(text.removeprefix(ATTACHMENT)))
    return text


READER = SessionReader(NAME, partial(_recognise, False), hear)
DOCUMENT = SessionReader(f"{NAME}-document", partial(_recognise, True), hear, in_documents("samples"))
