"""Answers that the engine captured: matches them with those of a log, makes the training record of a rated one, and
finds the question in a prompt that a chat template rendered.

Pure. A log names the responses that it holds (`Origin.responses`); the text has to agree, too, since a client may
choose ids, and edit what it writes down. The record of a rated answer has the texts for people, exports and the content
id; training uses the tokens beside it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from apollod.core.facts.intake.events import Origin, Sampled
from apollod.core.facts.intake.inputs import Line, Response
from apollod.curation.preferences import Preferences, pair, rated
from apollod.curation.responses import taught
from apollod.errors import RecordRefused
from apollod.wire.records import record_of, record_of_bytes
from apollod.wire.thoughts import NO_THOUGHT, opens_thought


class Captured(NamedTuple):
    """An answer that the engine gave. `text`: as its client received it."""

    name: str
    """id of the response, with `#N` behind it for another choice than the first"""
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    text: str


class _Conversation(msgspec.Struct):
    messages: list[dict[str, Any]] = []


def joined(line: Line, captured: Callable[[str], Sequence[Captured]], prompt_most: int = 1 << 62) -> Line:
    """Attach the sampled tokens to each answer of the line that was captured.

    The prompt is kept as the engine saw it where nothing was taken out of it; the trainer uses it if its text is that
    of the record, which is not so for a log with less than the whole conversation. A prompt of more than `prompt_most`
    tokens is dropped: no step could take it.
    """
    if not line.origin.responses or not line.responses:
        return line
    turns = msgspec.json.decode(line.record, type=_Conversation).messages
    turns = [turn for turn in turns if turn.get("role") == "assistant" and turn.get("weight") != 0]
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
