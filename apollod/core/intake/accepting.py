"""A line becomes an example."""

from typing import Any

import msgspec

from apollod.core.intake.events import ExampleAccepted, Tier
from apollod.core.intake.inputs import Line


def accepted(line: Line, source: str, tier: Tier, number: int = 0, **more: Any) -> ExampleAccepted:
    """The fact that this line, `number` of `source`, is an example. `more`: what the line does not say, or not so."""
    sampled = tuple(one.sampled for one in line.responses)
    keys = dict.fromkeys(key for one in line.responses for key in one.keys)
    known: dict[str, Any] = {
        "example": line.example, "record": msgspec.Raw(line.record), "source": source, "line": number, "tier": tier,
        "origin": line.origin, "removed": line.removed, "responses": tuple(keys), "signature": line.signature,
        "sampled": sampled if any(one.response for one in sampled) else (), "topic": line.topic,
    }  # fmt: skip
    return ExampleAccepted(**known | more)
