"""Finds the surrounding that the core wants before a scenario, or another one if that is missing or does not fit."""

from collections.abc import Sequence
from typing import NamedTuple

import anyio.to_thread
import structlog

from apollod.adapters.journal.examples import own_records
from apollod.core import effects as fx
from apollod.core.dreams.scenario import Turn
from apollod.core.settings import PatternSettings
from apollod.core.surroundings import JOINT, NOTHING, Surrounding, SurroundingKind, SurroundingUse, in_place_of
from apollod.curation.surrounding_texts import CHARACTERS_MAX, own_surroundings, shipped
from apollod.errors import JournalError, LlmRefused
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import Dreamer

log = structlog.get_logger()

CHARACTERS_EACH = 3
"""characters assumed for a token, so that a text cut to the model's room probably fits"""


class Placed(NamedTuple):
    """A surrounding. `left_out`: why others were not taken; empty: it is the wanted one."""

    surrounding: Surrounding
    left_out: str = ""


class Surrounder:
    """Finds surroundings. Kinds that are left out are logged once for each reason."""

    def __init__(self, config: Config, dreamer: Dreamer) -> None:
        self._journal, self._dreamer = config.journal_path, dreamer
        self._said = set[str]()

    async def placed(self, effect: fx.ImagineScenario, scenario: Sequence[Turn]) -> Placed:
        """The surrounding of a dream's scenario. Raises an LlmError if the engine cannot be asked."""
        missing: dict[SurroundingKind, str] = {}
        while (wanted := in_place_of(effect.surrounding, effect.kinds, missing)).kind != "none":
            found = await self._of_kind(wanted.kind, effect.use, effect.pattern)
            first = wanted.turn % len(found) if found else 0
            shorter = sorted((one for n, one in enumerate(found) if n != first), key=_length)
            why = "there is none yet" if not found else ""
            for one in [*found[first : first + 1], *shorter]:
                if not (why := await self._problem(one, effect, scenario)):
                    return Placed(one, "; ".join(missing.values()))
            missing[wanted.kind] = f"{wanted.kind}: {why}"
            self._say(wanted.kind, why)
        return Placed(NOTHING, "; ".join(missing.values()))

    async def _of_kind(
        self, kind: SurroundingKind, use: SurroundingUse, pattern: PatternSettings
    ) -> Sequence[Surrounding]:
        if kind == "neutral" or kind == "agent":
            return shipped(kind, use)
        try:
            recorded = await anyio.to_thread.run_sync(own_records, self._journal)
        except JournalError as error:
            self._say(kind, error.line())
            return ()
        most = min(CHARACTERS_MAX, self._dreamer.room * CHARACTERS_EACH)
        own = await anyio.to_thread.run_sync(own_surroundings, recorded, pattern.instruction, most)
        return [one.surrounding for one in own if one.use == use]

    async def _problem(self, around: Surrounding, effect: fx.ImagineScenario, scenario: Sequence[Turn]) -> str:
        """Reason why it cannot be placed before the scenario; empty: it can. A short system message alone is not
        tokenised: it has at most as many tokens as bytes."""
        room, longest = self._dreamer.room, max(effect.pattern.instruction, *effect.pattern.tested_contrasts, key=len)
        told = f"{effect.beside}{JOINT}{longest}" if effect.beside else longest
        said = sum(len(turn.content.encode()) for turn in scenario) + len(told.encode())
        if len(around.messages) == 1 and not around.tools and _length(around) + said < room // 2:
            return ""
        try:
            tokens = await self._dreamer.tokens(told, scenario, around)
        except LlmRefused as error:
            return f"the model's chat template cannot show it: {error}"
        return "" if tokens <= room else f"it does not fit beside a scenario, the model has room for {room} tokens"

    def _say(self, kind: SurroundingKind, why: str) -> None:
        if f"{kind}: {why}" not in self._said:
            self._said.add(f"{kind}: {why}")
            log.info("dream.surrounding_left_out", surrounding=kind, reason=why)


def _length(one: Surrounding) -> int:
    """Size in bytes, at least that of all its texts."""
    return sum(len(str(part).encode()) for part in (*one.messages, *one.tools))
