"""Interface of a cue, a function from a moment to flags, and the expressions that cues search for."""

import tomllib
from collections.abc import Callable, Iterable
from functools import cache, reduce
from importlib.resources import files
from operator import getitem
from typing import Any, NamedTuple

from apollod.core.facts.intake.events import Polarity
from apollod.curation.conversation import Moment, Said
from apollod.wire.records import Form

QUOTE_MAX = 200  # characters


class Flag(NamedTuple):
    """Evidence in a moment about one of its answers."""

    kind: str
    polarity: Polarity
    strength: float
    """weight of the evidence, from 0 to 1"""
    place: int
    """index of the answer in the moment"""
    quote: str
    """the words that show it"""
    shown_by: tuple[str, ...] = ()
    """ids of the records that show it"""


Cue = Callable[[Moment], Iterable[Flag]]


class Call(NamedTuple):
    """A call of a tool, and the answer that made it."""

    place: int
    name: str
    arguments: dict[str, object]


def quoted(text: str) -> str:
    """Words in the form of a flag's quote: one line, limited in length."""
    return " ".join(text[: 2 * QUOTE_MAX].split())[:QUOTE_MAX]


def ids(*said: Said) -> tuple[str, ...]:
    """The distinct record ids of these messages, without empty ones."""
    return tuple(dict.fromkeys(one.id for one in said if one.id))


def is_answer(form: Form) -> bool:
    """True if the model said or called something."""
    return form["role"] == "assistant" and bool(form["content"].strip() or form.get("tool_calls"))


def answer_before(moment: Moment, place: int) -> int:
    """Index of the last answer before `place` to the same prompt; -1: there is none."""
    for n in range(place - 1, -1, -1):
        said = moment.messages[n]
        if is_answer(said.message):
            return n
        if said.prompt:
            break
    return -1


def call_of(moment: Moment, place: int) -> Call | None:
    """The call that the tool's result at `place` belongs to: by its id, or the last call before it."""
    wanted = moment.messages[place].message.get("tool_call_id")
    for n in range(place - 1, -1, -1):
        said = moment.messages[n]
        for call in reversed(said.message.get("tool_calls", ())):
            if wanted is None or call.get("id") == wanted:
                return Call(n, call["function"]["name"], call["function"]["arguments"])
        if said.prompt:
            break
    return None


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((files("apollod") / "data" / "signals.toml").read_text("utf-8"))


def expressions(*path: str) -> list[str]:
    """The regular expressions of an entry of `data/signals.toml`, or of all entries of a table."""
    found = reduce(getitem, path, _tables())
    text = found if isinstance(found, str) else "".join(found.values())
    for word, meant in _tables()["words"].items():
        text = text.replace(f"<{word}>", meant.strip())
    return text.replace("\n  ", "").splitlines()
