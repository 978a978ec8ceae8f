"""An example as a person reads it: what the model is shown in order, what it learns of it, what was stripped.

What is learned is called a target, and is bold in a terminal with colours. What was stripped is struck there, and
stands between [- and -] elsewhere.
"""

import json
import os
import sys
from collections.abc import Sequence
from textwrap import indent
from typing import Any, NamedTuple

from apollod.cli import render

TOOLS = "tools"  # as `curation.stripping` calls them, which takes too long to import here
BOLD, STRUCK, OFF = "\x1b[1m", "\x1b[9;2m", "\x1b[0m"
Removed = dict[str, Any]


class Part(NamedTuple):
    """A piece of an example under a heading."""

    heading: str
    text: str
    target: bool = False
    stripped: tuple[tuple[int, str], ...] = ()
    """(where in the text, what was there)"""
    gone: bool = False
    """all of it was stripped"""


def lines(record: dict[str, Any], removed: Sequence[Removed] = ()) -> list[str]:
    """All parts, each under its heading."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    shown: list[str] = []
    for part in parts(record, removed):
        shown += ["", render.plain(part.heading), indent(_marked(part, coloured), "    ")]
    return shown


def parts(record: dict[str, Any], removed: Sequence[Removed] = ()) -> list[Part]:
    """Everything that a record says, in the order in which the model is shown it, and what was stripped where it
    stood."""
    if "text" in record:
        return [Part("text, target", record["text"], target=True)]
    if "completion" in record:
        return [Part("prompt", record["prompt"]), Part("completion, target", record["completion"], target=True)]
    found = [Part(f"{_of(one)}, stripped", one["text"], gone=True) for one in removed if one["why"] == TOOLS]
    if record.get("tools"):
        found.append(Part("tools", json.dumps(record["tools"], ensure_ascii=False, indent=2)))
    for place in range(len(record["messages"]) + 1):
        here = [one for one in removed if one["place"] == place and one["why"] != TOOLS]
        found += [Part(f"{_of(one)}, stripped", one["text"], gone=True) for one in here if one["at"] < 0]
        if place < len(record["messages"]):
            spans = tuple((one["at"], one["text"]) for one in here if one["at"] >= 0)
            found.append(_turn(record["messages"][place], spans))
    return found


def _of(one: Removed) -> str:
    return str(one.get("role") or one["why"])


def _turn(turn: dict[str, Any], stripped: tuple[tuple[int, str], ...]) -> Part:
    heading = " ".join(turn[name] for name in ("role", "name", "tool_call_id") if name in turn)
    target = turn["role"] == "assistant" and bool(turn.get("weight", 1))
    calls = [call_text(call.get("function", {})) for call in turn.get("tool_calls", [])]
    thought = [f"<think>\n{turn['reasoning_content']}\n</think>"] if turn.get("reasoning_content") else []
    text = "\n".join([*thought, *([turn["content"]] if turn["content"] else []), *calls])
    return Part(f"{heading}, target" if target else heading, text, target, stripped)


def call_text(function: dict[str, Any]) -> str:
    """A call as a person reads it: its name, then each argument on a line, a text of several lines under its name."""
    arguments = function.get("arguments")
    if not isinstance(arguments, dict):
        return f"calls {function.get('name', '')}\n    {arguments}"
    lines = [f"calls {function.get('name', '')}"]
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"    {name}:\n{indent(text, ' ' * 8)}" if "\n" in text else f"    {name}: {text}")
    return "\n".join(lines)


def _marked(part: Part, coloured: bool) -> str:
    """Its text with marks, safe for a terminal."""
    if part.gone:
        return _struck(part.text, coloured)
    pieces, at = [], 0
    for where, text in part.stripped:
        pieces += [render.plain(part.text[at:where]), _struck(text, coloured)]
        at = where
    text = "".join([*pieces, render.plain(part.text[at:])])
    return f"{BOLD}{text}{OFF}" if part.target and coloured else text


def _struck(text: str, coloured: bool) -> str:
    return f"{STRUCK}{render.plain(text)}{OFF}" if coloured else f"[-{render.plain(text)}-]"
