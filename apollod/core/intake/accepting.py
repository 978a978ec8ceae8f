"""A line becomes an example, and one that holds a probe of the quality guard waits for a person."""

from typing import Any

import msgspec

from apollod.core.intake.events import ExampleAccepted, Tier
from apollod.core.intake.inputs import Line
from apollod.core.review.events import ExampleHeld


def accepted(line: Line, source: str, tier: Tier, number: int = 0, **more: Any) -> ExampleAccepted:
    """The fact that this line, `number` of `source`, is an example. `more`: what the line does not say, or not so."""
    sampled = tuple(one.sampled for one in line.responses)
    keys = dict.fromkeys(key for one in line.responses for key in one.keys)
    known: dict[str, Any] = {
        "example": line.example, "record": msgspec.Raw(line.record), "source": source, "line": number, "tier": tier,
        "origin": line.origin, "removed": line.removed, "responses": tuple(keys), "signature": line.signature,
        "sampled": sampled if any(one.response for one in sampled) else (), "topic": line.topic,
        "instead_of": line.instead_of, "lesson": line.lesson, "question": line.question,
    }  # fmt: skip
    return ExampleAccepted(**known | more)


def leaked(line: Line) -> str:
    """The reason why a line is not learned whose probe would then measure nothing; empty: it holds none."""
    return f"it holds {line.leak}, which measures nothing any more once this is learned" if line.leak else ""


def held_for_leak(taken: ExampleAccepted, line: Line) -> list[ExampleHeld]:
    """The fact that the example of this line waits for a person, if it holds a probe."""
    why = leaked(line)
    return [ExampleHeld(example=taken.example, tier=taken.tier, reason=why)] if why else []
