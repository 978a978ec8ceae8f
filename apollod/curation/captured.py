"""Matches a log's answers with the engine's own captured responses.

Pure. A log names the responses that it holds (`Origin.responses`); the text has to agree, too, since a client may
choose ids, and edit what it writes down.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from apollod.core.intake.events import Sampled
from apollod.core.intake.inputs import Line, Response


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
    turns = [turn for turn in _turns(line.record) if turn.get("role") == "assistant" and turn.get("weight") != 0]
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


def _turns(record: bytes) -> list[dict[str, Any]]:
    return msgspec.json.decode(record, type=_Conversation).messages


def says(turn: dict[str, Any], text: str) -> bool:
    """True if the log's words of this answer stand in the sampled text."""
    sampled = "".join(text.split())
    content = "".join(str(turn.get("content", "")).split())
    names = [str(call["function"]["name"]) for call in turn.get("tool_calls") or ()]
    return bool(content or names) and content in sampled and all("".join(name.split()) in sampled for name in names)
