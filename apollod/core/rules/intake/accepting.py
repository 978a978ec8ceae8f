"""Turns lines into examples and has them tokenised; one that holds a probe of the quality guard waits for a person."""

from typing import Any

import msgspec

from apollod.core import effects as fx
from apollod.core.facts.intake.events import ExampleAccepted, Tier
from apollod.core.facts.intake.inputs import Line
from apollod.core.facts.review import ExampleHeld
from apollod.core.kernel.composing import composed
from apollod.core.state import State


def accepted(line: Line, source: str, tier: Tier, number: int = 0, **more: Any) -> ExampleAccepted:
    """The event that accepts this line, `number` of `source`, as an example. `more`: fields that the line lacks or that
    override it."""
    sampled = line.sampled or tuple(one.sampled for one in line.responses)
    keys = dict.fromkeys(key for one in line.responses for key in one.keys)
    taken = composed(
        ExampleAccepted, line, record=msgspec.Raw(line.record), source=source, line=number, tier=tier,
        responses=tuple(keys), sampled=sampled if any(one.response or one.prompt for one in sampled) else (),
    )  # fmt: skip
    return msgspec.structs.replace(taken, **more)


def leaked(line: Line) -> str:
    """Reason not to learn a line that holds a probe, which would then measure nothing; empty: it holds none."""
    return f"it holds {line.leak}, which measures nothing any more once this is learned" if line.leak else ""


def held_for_leak(taken: ExampleAccepted, line: Line) -> list[ExampleHeld]:
    """The event that holds the example of this line for a person, if the line holds a probe."""
    why = leaked(line)
    return [ExampleHeld(example=taken.example, tier=taken.tier, reason=why)] if why else []


def begin_encoding(state: State, fresh: list[tuple[str, Tier]]) -> list[fx.Effect]:
    """Have these examples (id, tier), which are about to be queued, tokenised; not while earlier ones are: then these
    follow."""
    if any(queue.untokenised for queue in state.intake.queues) or state.children.trainer.phase != "ready":
        return []
    direct_first = sorted(fresh, key=lambda example: example[1] == "bulk")
    return fx.encode((example for example, _ in direct_first), state.recovery.base_fingerprint)
