"""Rows that compare two answers or rate one: TRL's preference and KTO rows, OpenAI's DPO rows.

The better answer is learned like any other, a bad one is not. A loss over both answers would take its rows from here,
where both are at hand.
"""

from typing import Any

from apollod.curation.conversation import Dropped
from apollod.curation.formats.rows import alpaca, sharegpt
from apollod.errors import RecordRefused

BAD = Dropped("rated bad")
RATINGS = ("kto_tag", "label")
LABELS: dict[object, bool] = {
    True: True, False: False, "true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False,
    "desirable": True, "undesirable": False,
}  # fmt: skip
"""The keys match 1 and 0, too, which equal True and False"""
ANSWERED = frozenset({"completion", "messages", "conversations", "output", "response"})
"""Fields of a rated answer; without one of them, a `label` may mean anything"""


def is_pair(row: dict[str, Any]) -> bool:
    """True if the row has a chosen and a rejected answer."""
    return "chosen" in row and "rejected" in row


def pair(row: dict[str, Any]) -> dict[str, Any]:
    """The chosen answer to the prompt. Without a prompt field, the prompt is the common beginning of both answers.
    Raises RecordRefused."""
    chosen, rejected = (_messages(row[name], name) for name in ("chosen", "rejected"))
    prompt = _prompt(row)
    if isinstance(chosen, str) and isinstance(prompt, str):
        return {"prompt": prompt, "completion": chosen}
    if isinstance(chosen, str) and prompt is None:
        common = _common_text(chosen, rejected if isinstance(rejected, str) else "")
        return {"prompt": chosen[:common], "completion": chosen[common:]}
    answers = chosen if isinstance(chosen, list) else [{"role": "assistant", "content": chosen}]
    others = rejected if isinstance(rejected, list) else []
    common = next((n for n, turn in enumerate(answers) if n >= len(others) or turn != others[n]), len(answers) - 1)
    context, answers = answers[:common], answers[common:]
    if not context:  # else it repeats the prompt
        context = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt or []
    return _after(context, answers, sharegpt.tools_of(row.get("tools")))


def is_openai(row: dict[str, Any]) -> bool:
    """True if the row has a preferred output."""
    return "preferred_output" in row and "input" in row


def openai(row: dict[str, Any]) -> dict[str, Any]:
    """The preferred output to the input's messages. Raises RecordRefused."""
    asked = row["input"]
    if not isinstance(asked, dict):
        raise RecordRefused("input is no object", 'give {"messages": [...], "tools": [...]}')
    context, answers = _messages(asked.get("messages"), "input"), _messages(row["preferred_output"], "preferred_output")
    if not isinstance(context, list) or not isinstance(answers, list):
        raise RecordRefused("input or preferred_output has no list of messages", "give [{role, content}, ...]")
    return _after(context, answers, sharegpt.tools_of(asked.get("tools")))


def is_rated(row: dict[str, Any]) -> bool:
    """True if the row has a rating. A label that is neither true nor false does not count."""
    return _rating(row) is not None


def rated(row: dict[str, Any]) -> dict[str, Any] | Dropped:
    """The row without its rating, or `BAD` if that is not good."""
    return {name: value for name, value in row.items() if name not in RATINGS} if _rating(row) else BAD


def _rating(row: dict[str, Any]) -> bool | None:
    for name in RATINGS:
        if name in row and (name != "label" or not ANSWERED.isdisjoint(row)):
            value = row[name]
            value = value.strip().lower() if isinstance(value, str) else value
            if isinstance(value, bool | int | float | str) and value in LABELS:
                return LABELS[value]
    return None


def _prompt(row: dict[str, Any]) -> str | list[dict[str, Any]] | None:
    """The prompt of both answers: TRL's `prompt`, or a field of another name; None: it is within the answers."""
    if "instruction" in row:
        return alpaca.prompt(row)
    if "conversations" in row:
        prompt: str | list[dict[str, Any]] = sharegpt.messages_of(row["conversations"], "conversations")
    elif name := next((name for name in ("prompt", "messages", "question") if name in row), ""):
        prompt = _messages(row[name], name)
    else:
        return None
    system = row.get("system")
    if isinstance(system, str) and system:
        told = {"role": "system", "content": system}
        return [told, *(prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}])]
    return prompt


def _messages(value: Any, name: str) -> str | list[dict[str, Any]]:
    """A text, or messages; one message may stand alone. Raises RecordRefused."""
    if isinstance(value, str):
        return value
    return sharegpt.messages_of([value] if isinstance(value, dict) else value, name)


def _after(context: list[dict[str, Any]], answers: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """A row with learned answers after context."""
    return {"prompt": context, "completion": answers, "tools": tools}


def _common_text(chosen: str, rejected: str) -> int:
    """Length of the common beginning of both answers, cut before its trailing space, as in TRL's `extract_prompt`."""
    pairs = enumerate(zip(chosen, rejected, strict=False))
    common = next((n for n, (one, other) in pairs if one != other), min(len(chosen), len(rejected)))
    return common - 1 if common and chosen[common - 1] == " " else common
