"""A request in its surrounding, as a conversation."""

from collections.abc import Sequence
from typing import Any

from apollod.core.dreams.scenario import Turn
from apollod.core.surroundings import JOINT, Surrounding


def conversation_in(
    around: Surrounding, told: str, scenario: Sequence[Turn], answer: str | None = None, thought: str = ""
) -> list[dict[str, Any]]:
    """As messages of a record: what stands before, with the instruction `told` in its system message, the scenario, and
    an answer if there is one, after a `thought` that is not learned. What an assistant says in it before is the
    situation, and nothing of it is learned."""
    before = [*_told_in(around, told), *({"role": turn.role, "content": turn.content} for turn in scenario)]
    shown = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in before]
    return shown if answer is None else [*shown, answered(answer, thought)]


def answered(answer: str, thought: str = "") -> dict[str, Any]:
    """An answer that is learned, as a message of a record, after a `thought` that is not, if there is one."""
    context = {"reasoning_content": thought, "reasoning_weight": 0} if thought else {}
    return {"role": "assistant", "content": answer, **context}


def _told_in(around: Surrounding, told: str) -> list[dict[str, Any]]:
    messages = [dict(one) for one in around.messages]
    if not told:
        return messages
    if around.system is None:
        return [{"role": "system", "content": told}, *messages]
    return [{**messages[0], "content": around.system + JOINT + told}, *messages[1:]]
