"""Strips instructions that a behaviour should no longer need, and keeps them beside the learned text.

Removals are recorded exactly, so that the conversation as the model saw it can be restored (`restored`). Answers are
never touched, only the model's input. The time is linear in the text, for any text.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from apollod.core.facts.intake.events import Removed, StripLevel
from apollod.curation.conversation import is_learned
from apollod.wire.records import Form

MEMORY = (
    "memory", "memories", "recalled-memories", "relevant-memories", "supermemory-context", "claude-mem-context",
    "active_memory_plugin",
)  # fmt: skip
REMINDERS = ("system-reminder", "hook_context", "hook_prompt", "user-prompt-submit-hook")
METADATA = "(untrusted metadata):\n```json\n"
"""Follows the name of OpenClaw's metadata of a message, such as its sender: JSON up to the end of the fence"""
SCAFFOLDING = (
    "environment_context", "user_instructions", "permissions instructions", "available_skills", "env", "INSTRUCTIONS",
)  # fmt: skip
INSTRUCTING = frozenset({"system", "developer"})
INSTRUCTION = "instruction"
"""`Removed.why` of the text of `Stripping.instruction`"""
TOOLS = "tools"
"""`Removed.why` of the tools of a conversation: `text` is their JSON"""

_LEVELS: dict[StripLevel, tuple[tuple[str, str], ...]] = {
    "none": (),
    "memory": tuple((tag, "memory") for tag in MEMORY) + tuple((tag, "reminder") for tag in REMINDERS),
}
_LEVELS["system"] = _LEVELS["memory"]
_LEVELS["all"] = _LEVELS["system"] + tuple((tag, "scaffolding") for tag in SCAFFOLDING)
_Span = tuple[int, int, str]
"""(begin, end, why)"""


class Stripping(msgspec.Struct, frozen=True):
    """Rules for stripping the conversations of a source."""

    level: StripLevel = "memory"
    """memory: surfaced memories and reminders; system: also messages of the roles system and developer; all: also tools
    and programs' texts about themselves"""
    patterns: tuple[str, ...] = ()
    """regular expressions for further text to strip"""
    instruction: str = ""
    """text to strip wherever it stands, with any white space between its words; answers given without it are not
    learned"""


def strip(
    messages: Sequence[Form], stripping: Stripping, tools: Sequence[dict[str, object]] = ()
) -> tuple[list[Form], list[dict[str, object]], tuple[Removed, ...]]:
    """(messages, tools, removed). A marked message (`strip`) is removed whole, and so is one with nothing left."""
    kept: list[Form] = []
    removed: list[Removed] = []
    left = list(tools)
    if left and stripping.level == "all":
        removed.append(Removed(0, -1, msgspec.json.encode(left).decode(), TOOLS))
        left = []
    for message in messages:
        stripped, taken = strip_one(message, stripping, len(kept))
        removed += taken
        if stripped is not None:
            kept.append(stripped)
    return kept, left, tuple(removed)


def strip_one(message: Form, stripping: Stripping, place: int = 0) -> tuple[Form | None, list[Removed]]:
    """The rest of a message (None: all was stripped; the same object if nothing was), and the texts taken out of it.
    `place`: its index among the remaining messages."""
    role, content = message["role"], message["content"]
    if role == "assistant":
        return message, []
    why = "marked" if message.get("strip") else "system" if _instructs(role, stripping.level) else ""
    spans = [] if why else _spans(content, stripping)
    if why or (spans and not _without(content, spans).strip() and role != "tool"):
        return None, [Removed(place, -1, content, why or spans[0][2], role)]
    removed, at = list[Removed](), 0
    for begin, end, reason in spans:
        removed.append(Removed(place, begin - at, content[begin:end], reason))
        at += end - begin
    return {**message, "content": _without(content, spans)} if spans else message, removed


def restored(messages: Sequence[Form], removed: Sequence[Removed]) -> list[Form]:
    """The messages as they were before `strip`, without marks and tools."""
    whole: list[Form] = []
    rest = [one for one in removed if one.why != TOOLS]
    for place in range(len(messages) + 1):
        here = [one for one in rest if one.place == place]
        whole += [{"content": one.text, "role": one.role} for one in here if one.at < 0]
        if place == len(messages):
            break
        content = messages[place]["content"]
        for one in reversed([one for one in here if one.at >= 0]):
            content = content[: one.at] + one.text + content[one.at :]
        whole.append({**messages[place], "content": content})
    return whole


def _instructs(role: str, level: StripLevel) -> bool:
    return role in INSTRUCTING and level in ("system", "all")


def _spans(content: str, stripping: Stripping) -> list[_Span]:
    """The spans to strip, in order, without overlaps."""
    metadata = stripping.level != "none" and METADATA in content
    if not (metadata or "<" in content or stripping.patterns or stripping.instruction):
        return []
    found = list(_tagged(content, _LEVELS[stripping.level]))
    if metadata:
        found += _metadata(content)
    for pattern in stripping.patterns:
        found += [(match.start(), match.end(), "pattern") for match in _compiled(pattern).finditer(content)]
    if stripping.instruction:
        expression = _compiled(_loosely(stripping.instruction))
        found += [(match.start(), match.end(), INSTRUCTION) for match in expression.finditer(content)]
    spans: list[_Span] = []
    for begin, end, why in sorted(found):
        if begin >= end:
            continue
        if spans and begin < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]), spans[-1][2])
        else:
            spans.append((begin, end, why))
    return spans


def _tagged(content: str, tags: Sequence[tuple[str, str]]) -> Iterator[_Span]:
    """`<tag ...>...</tag>` up to the first end, with the white space behind it; a tag that is not closed is text."""
    for tag, why in tags:
        opening, closing, at = f"<{tag}", f"</{tag}>", 0
        while (begin := content.find(opening, at)) >= 0:
            at = begin + len(opening)
            if content[at : at + 1] not in (">", " ", "\n"):
                continue
            end = content.find(closing, at)
            if end < 0:
                break
            end += len(closing)
            while end < len(content) and content[end].isspace():
                end += 1
            yield begin, end, why
            at = end


def _metadata(content: str) -> Iterator[_Span]:
    """`NAME (untrusted metadata):` with the fence below it and the white space behind that."""
    at = 0
    while (name := content.find(METADATA, at)) >= 0:
        begin, at = content.rfind("\n", 0, name) + 1, name + len(METADATA)
        end = content.find("\n```", at)
        if end < 0:
            break
        end += len("\n```")
        while end < len(content) and content[end].isspace():
            end += 1
        yield begin, end, "metadata"
        at = end


def _without(content: str, spans: Sequence[_Span]) -> str:
    ends = [0, *(end for _, end, _ in spans)]
    begins = [*(begin for begin, _, _ in spans), len(content)]
    return "".join(content[end:begin] for end, begin in zip(ends, begins, strict=True))


@cache
def _loosely(instruction: str) -> str:
    """A regular expression for a text with any white space between its words and behind it."""
    return r"\s+".join(map(re.escape, instruction.split())) + r"\s*"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class Asked(NamedTuple):
    """A conversation as an OpenAI request has it. Its last message is the answer."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


class Contexts(NamedTuple):
    """The same answer: as the model gave it, and as it is learned."""

    with_context: Asked
    without_context: Asked


def contexts(record: bytes, removed: tuple[Removed, ...]) -> Contexts | None:
    """Both conversations of a canonical record from which `removed` was stripped, up to its last learned answer; None
    if it has no such answer."""
    form = msgspec.json.decode(record)
    messages: list[Form] = form.get("messages", [])
    learned = [n for n, one in enumerate(messages) if is_learned(one)]
    if not learned:
        return None
    last = learned[-1]
    shown, tools = messages[: last + 1], form.get("tools", [])
    known = tuple(one for one in removed if one.place <= last)
    stripped_tools = [tool for one in removed if one.why == TOOLS for tool in msgspec.json.decode(one.text)]
    return Contexts(
        Asked([as_asked(one) for one in restored(shown, known)], stripped_tools or tools),
        Asked([as_asked(one) for one in shown], tools),
    )


def as_asked(message: Form) -> dict[str, Any]:
    """A turn of a record in the form of an OpenAI request: without our own marks, with arguments of calls as text, and
    with its thought under both names, of which `/tokenize` of vLLM 0.32 takes only `reasoning`."""
    asked = {key: value for key, value in message.items() if key not in ("weight", "reasoning_weight", "strip")}
    if "reasoning_content" in message:
        asked["reasoning"] = message["reasoning_content"]
    if "tool_calls" in message:
        asked["tool_calls"] = [_call(call, n) for n, call in enumerate(message["tool_calls"])]
    return asked


def _call(call: dict[str, Any], number: int) -> dict[str, Any]:
    function = call["function"]
    arguments = msgspec.json.encode(function["arguments"]).decode()
    return {"id": f"call_{number}", **call, "function": {"arguments": arguments, "name": function["name"]}}
