"""Puts a request into its surrounding, as a conversation."""

from collections.abc import Sequence
from typing import Any

from apollod.core.dreams.scenario import Turn
from apollod.core.surroundings import JOINT, Surrounding


def conversation_in(
    around: Surrounding, told: str, scenario: Sequence[Turn], answer: str | None = None, thought: str = ""
) -> list[dict[str, Any]]:
    """Messages of a record: the surrounding, with the instruction `told` in its system message, the scenario, and the
    answer if there is one, after a `thought` that is not learned. Earlier turns of the assistant are context and not
    learned."""
    before = [*_told_in(around, told), *({"role": turn.role, "content": turn.content} for turn in scenario)]
    shown = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in before]
    return shown if answer is None else [*shown, answered(answer, thought)]


def answered(answer: str, thought: str = "") -> dict[str, Any]:
    """A learned answer as a message of a record, after a `thought`, if any, that is not learned."""
    context = {"reasoning_content": thought, "reasoning_weight": 0} if thought else {}
    return {"role": "assistant", "content": answer, **context}


def _told_in(around: Surrounding, told: str) -> list[dict[str, Any]]:
    messages = [dict(one) for one in around.messages]
    if not told:
        return messages
    if around.system is None:
        return [{"role": "system", "content": told}, *messages]
    return [{**messages[0], "content": around.system + JOINT + told}, *messages[1:]]
