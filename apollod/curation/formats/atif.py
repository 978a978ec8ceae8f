"""Trajectories in ATIF (`trajectory.json`), written by Harbor and others: one JSON document a run.

Versions 1.0 to 1.8 of the Agent Trajectory Interchange Format, after Harbor's models and RFC 0001. A step of the agent
is an answer with its calls and their results. Rewards stand in other files, beside it.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from apollod.curation.conversation import Dropped, Entry, Said, Session, Unknown
from apollod.curation.formats import turns
from apollod.curation.formats.document import in_documents
from apollod.curation.formats.session_reader import SessionReader, json_object
from apollod.wire.records import message_form

NAME = "atif"
_begins = re.compile(rb'\s*\{.{0,2000}?"schema_version"\s*:\s*"ATIF-', re.DOTALL).match


class _Call(msgspec.Struct):
    tool_call_id: str | None = None
    function_name: str | None = None
    arguments: Any = None


class _Result(msgspec.Struct):
    source_call_id: str | None = None
    content: Any = None


class _Observation(msgspec.Struct):
    results: list[_Result] | None = None


class _Ours(msgspec.Struct):
    """Fields that `ctl export` adds to a step for content without a field in ATIF."""

    messages: list[dict[str, Any]] | None = None
    """the complete messages of the step"""
    within: bool = False
    """a prompt that does not begin a turn: the trajectory is one example"""


class _Step(msgspec.Struct):
    step_id: int | None = None
    source: str = ""
    message: Any = None
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None
    extra: Any = None


class _Agent(msgspec.Struct):
    name: str | None = None
    version: str | None = None
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None


class _Member(msgspec.Struct):
    """A member of the document, or a step of it."""

    schema_version: str | None = None
    session_id: str | None = None
    agent: _Agent | None = None
    steps: _Step | None = None
    subagent_trajectories: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Member).decode


def recognise(path: str, head: bytes) -> bool:
    """True if the document states an ATIF version."""
    return _begins(head) is not None


def hear(record: bytes) -> Iterable[Entry]:
    """The entries of a member of the document."""
    member = json_object(record, _decode)
    if member.steps is not None:
        return tuple(_of_step(member.steps))
    if member.schema_version is not None:
        return (Session(begins=True),)
    if member.session_id is not None:
        return (Session(id=member.session_id),)
    if member.agent is not None:
        agent = member.agent
        return (
            Session(
                agent=agent.name or NAME,
                version=agent.version or "",
                model=agent.model_name or "",
                tools=tuple(agent.tool_definitions or ()),
            ),
        )
    if member.subagent_trajectories:
        return (Dropped("a run of a subagent"),)
    return (Dropped("facts about the run"),)


def _of_step(step: _Step) -> Iterable[Entry]:
    record, text = f"step {step.step_id}", turns.text_of_blocks(step.message, "text")
    ours = _ours(step.extra)
    prompt = step.source == "user" and not ours.within
    if ours.messages is not None:
        for message in ours.messages:
            said = message_form(message, f"a message of {record}", part=True)
            yield Said(said, id=record, prompt=prompt, model=step.model_name or "")
        return
    match step.source:
        case "user":
            yield turns.user(text, record, prompt)
        case "system" if (step.step_id or 1) == 1 and text.strip():
            yield Session(system=text)
        case "system":
            yield Dropped("a note of the system")
        case "agent":
            yield from _answer(step, record, text)
        case source:
            yield Unknown(f"step of {source}")


def _answer(step: _Step, record: str, text: str) -> Iterable[Entry]:
    calls = step.tool_calls or []
    made = [turns.tool_call(call.tool_call_id, call.function_name, call.arguments) for call in calls]
    context = bool(step.is_copied_context) or step.llm_call_count == 0
    said = turns.answer(text, step.reasoning_content, made, context)
    if context:
        yield Dropped("an answer of an earlier run, or that no model wrote")
    yield Said(said, id=record, model=step.model_name or "")
    for one in (step.observation.results or ()) if step.observation is not None else ():
        found = turns.text_of_blocks(one.content, "text")
        if calls:
            call = one.source_call_id or (calls[0].tool_call_id if len(calls) == 1 else None)
            yield turns.tool_result(found, call, record)
        elif found.strip():  # an agent that writes its commands as text gets results as user messages
            yield Said(turns.form("user", found), id=record)


def _ours(extra: Any) -> _Ours:
    """Our own fields in a step's `extra`; empty ones if they are missing or broken."""
    place = extra.get("apollod") if isinstance(extra, dict) else None
    try:
        return msgspec.convert(place or {}, _Ours)
    except msgspec.ValidationError:
        return _Ours()


READER = SessionReader(NAME, recognise, hear, in_documents("steps", "subagent_trajectories"))
