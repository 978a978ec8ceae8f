"""Rows of Alpaca: `instruction`, `input`, `output`, and as LLaMA-Factory has them `system` and `history`."""

from typing import Any

from apollod.errors import RecordRefused


def is_it(row: dict[str, Any]) -> bool:
    """True if it has an instruction and the output for it."""
    return "instruction" in row and "output" in row and "messages" not in row


def convert(row: dict[str, Any]) -> dict[str, Any]:
    """A conversation; what is learned is the output. What was said before (`history`) is context."""
    return {"messages": [*prompt(row), {"role": "assistant", "content": row["output"]}]}


def prompt(row: dict[str, Any]) -> list[dict[str, Any]]:
    """What the output answers, as messages. Raises RecordRefused."""
    messages = [{"role": "system", "content": row["system"]}] if row.get("system") else []
    history = row.get("history") or []
    if not isinstance(history, list) or not all(isinstance(said, list) and len(said) == 2 for said in history):
        raise RecordRefused("history is no list of [question, answer]", "give pairs of strings, or leave it out")
    for said in history:
        messages += [{"role": "user", "content": said[0]}, {"role": "assistant", "content": said[1], "weight": 0}]
    parts = [part for part in (row.get("instruction", ""), row.get("input", "")) if part]
    if not all(isinstance(part, str) for part in parts):
        raise RecordRefused("instruction or input is no string", "write texts")
    return [*messages, {"role": "user", "content": "\n".join(parts)}]
