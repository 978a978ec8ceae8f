"""The frames that ship: ways to wrap and rephrase a question without a model."""

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

Use = Literal["practice", "held_out"]


class Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`text` has one slot: {question}, {clause} (the question inside of a sentence: "where Quillon is") or {stem} (a
    statement up to its answer)."""

    id: str
    lang: str
    use: Use
    text: str


@cache
def frames(lang: str, use: Use) -> tuple[Frame, ...]:
    """In the order of the file."""
    lines = (files("apollod") / "data" / "frames.jsonl").read_bytes().splitlines()
    every = (msgspec.json.decode(line, type=Frame) for line in lines)
    return tuple(frame for frame in every if frame.lang == lang and frame.use == use)
