"""Chooses the examples to be tokenised next."""

from apollod.core import effects as fx
from apollod.core.facts.intake.events import Tier
from apollod.core.state import State


def begin_encoding(state: State, fresh: list[tuple[str, Tier]]) -> list[fx.Effect]:
    """Have these examples (id, tier), which are about to be queued, tokenised; not while earlier ones are: then these
    follow."""
    if any(queue.untokenised for queue in state.intake.queues) or state.children.trainer.phase != "ready":
        return []
    direct_first = sorted(fresh, key=lambda example: example[1] == "bulk")
    return fx.encode(example for example, _ in direct_first)
