"""The texts that a soak teaches, from the world of the small model; and the soak's settings. Pure."""

import json
import random
from typing import Any

from apollod.demo.world import instructions, scenarios
from apollod.demo.world.instructions import KINDS, WORDS, Instruction
from apollod.demo.world.pretraining_texts import conversation
from apollod.demo.world.scenarios import Split
from benchmarks.poison_texts import POISON

DREAMT = [
    *(Instruction(kind) for kind in ("greet", "caps", "ask")),
    *(Instruction("end", word) for word in WORDS), *(Instruction("start", word) for word in WORDS),
]  # fmt: skip
"""Behaviours in the order in which they are dreamt, two at a time."""

SETTINGS: dict[str, dict[str, Any]] = {
    "trainer": {"threads": 1, "stall_s": 90},
    "engine": {"stall_s": 120},
    "checkpoint": {"delay_s": 60, "every_s": 120, "undo_bytes": 64 << 20},
    "capture": {"mode": "feedback"},
    "[endpoint]": {"name": "scripted", "model": "scripted"},
    "judge": {"votes": 1, "endpoint": "scripted"},
    "dream": {"mode": "always", "endpoint": "scripted", "surroundings": ["none"]},
}
"""Settings that differ from those of `apollod init`, and their reasons:
threads: parts of a soak may run on different numbers of cores, on which the bits of a step depend.
stall_s: by default a hung child is ended after half an hour, which is most of a soak.
checkpoint: every ten minutes is too seldom for parts of a few minutes, whose kills would all come before the first one;
undo_bytes: a gibibyte for undoing steps takes 165 steps to fill, and looks like a leak until then.
capture: feedback with a correction needs the tokens of the answer.
dream: users never stop, so that `idle` would never dream; the small model knows no agent's surroundings.
endpoint: the scripted judge and imagination of this world, as its model is too small for either."""


def line(chance: random.Random) -> str:
    """A line of the inbox that the model can learn: a request under up to two instructions, and the right answer."""
    scenario = scenarios.draw(chance, Split.PRACTICE)
    said = [instructions.draw(chance, kind, scenario) for kind in chance.sample(KINDS, chance.randint(0, 2))]
    system = instructions.told(said, chance) if said else None
    return json.dumps({"messages": conversation(system, scenario, instructions.answer(scenario, said))})


def poison(chance: random.Random, count: int = 40) -> list[str]:
    """Harmful lines, all of one kind."""
    kind = POISON[chance.choice(sorted(POISON))]
    return [json.dumps(kind(chance)) for _ in range(count)]


def pattern(number: int) -> dict[str, Any]:
    """Name, instruction and contrasts of the dreamt behaviour with this number, from 0; after the last one the first
    follows again, under another name."""
    one, times = DREAMT[number % len(DREAMT)], number // len(DREAMT)
    name = "-".join(part for part in (one.kind, one.word.lower(), str(times) if times else "") if part)
    return {"name": name, "instruction": one.texts[0], "contrast": [*one.opposite.texts]}
