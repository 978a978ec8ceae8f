"""A daemon without children."""

import anyio

from apollod.core import inputs as inp
from apollod.core.effects import Effect


class NoEffects:
    """An executor that does nothing, remembers what it was asked for, and ends the loop."""

    def __init__(self) -> None:
        self.exit = anyio.Event()
        self.ran: list[Effect] = []

    async def run(self, effect: Effect) -> list[inp.Input]:
        self.ran.append(effect)
        return []
