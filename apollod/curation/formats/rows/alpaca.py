"""Rows of Alpaca: `instruction`, `input`, `output`, and LLaMA-Factory's `system` and `history`."""

from typing import Any

from apollod.errors import RecordRefused


def is_it(row: dict[str, Any]) -> bool:
    """True if the row has an instruction and its output."""
    return "instruction" in row and "output" in row and "messages" not in row


def convert(row: dict[str, Any]) -> dict[str, Any]:
    """A conversation that ends with the learned output. Earlier turns (`history`) are context."""
    return {"messages": [*prompt(row), {"role": "assistant", "content": row["output"]}]}


def prompt(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages before the output. Raises RecordRefused."""
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
