"""A world with a quality guard: probes are answered by how good the model is, which a test says of each step."""

from typing import Any

import msgspec
from support.world import SETTINGS, World

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.settings import QualitySettings

ITEMS = 40
GUARDED = msgspec.structs.replace(SETTINGS, quality=QualitySettings(every_steps=3))


def guarded(**changes: Any) -> ev.Settings:
    return msgspec.structs.replace(GUARDED, quality=msgspec.structs.replace(GUARDED.quality, **changes))


class GuardedWorld(World):
    """`failing`: how many of the probes fail with the weights of a step on which an example was learned."""

    def __init__(self, settings: ev.Settings = GUARDED, dies_at: int = 0) -> None:
        super().__init__(settings, dies_at)
        self.probed: list[fx.MeasureQuality] = []
        self.poison: dict[str, int] = {}
        """how many more probes fail once this example is learned"""
        self.probes = "p"
        self.answers = True
        """probes are answered as soon as they are asked"""
        self.telling: list[fx.TellAlarm] = []
        """what somebody is being told, which lasts until `tells`"""
        self.begun_to_tell: list[tuple[int, str]] = []

    def _run(self, effect: fx.Effect) -> list[ev.Event]:
        if isinstance(effect, fx.MeasureQuality):
            if effect not in self.probed:
                self.probed.append(effect)
            return []
        if isinstance(effect, fx.TellAlarm):
            if effect not in self.telling:
                self.telling.append(effect)
                self.begun_to_tell.append((effect.incident, effect.about))
            return []
        return super()._run(effect)

    def tells(self, error: str = "") -> list[ev.Event]:
        """The end of what is being told."""
        told = self.telling.pop(0)
        return self.give(inp.AlarmTold(told.incident, told.about, error))

    def learned(self) -> list[str]:
        """Examples that the weights have learned: of steps that were not taken back."""
        undone = {step for e in self.of(ev.RollbackStarted) for step in e.undone}
        return [one for e in self.of(ev.StepCompleted) if e.step not in undone for one in ev.all_examples(e)]

    def figures(self) -> dict[str, dict[str, float | None]]:
        failing = min(ITEMS, sum(self.poison.get(one, 0) for one in self.learned()))
        return {"facts.passed": {f"i{n:02}": float(n >= failing) for n in range(ITEMS)}}

    def look(self) -> list[ev.Event]:
        """The oldest question is answered."""
        asked, version = self.probed.pop(0), self.state.training.version
        return self.give(inp.ProbesAnswered(asked.number, self.probes, self.figures(), version, version))

    def settle(self) -> None:
        """Steps and looks until there is nothing left to do."""
        while True:
            super().settle()
            if not self.probed or not self.answers:
                return
            self.look()

    def successor(self, dies_at: int = 0) -> "GuardedWorld":
        other = super().successor(dies_at)
        assert isinstance(other, GuardedWorld)
        other.poison, other.probes = self.poison, self.probes
        return other

    def up(self) -> "GuardedWorld":
        super().up()
        return self
