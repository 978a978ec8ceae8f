"""A world with environments: `group` answers the oldest call for a group."""

import msgspec
from support.world import SETTINGS, World

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.environments import Stage
from apollod.core.inputs import Line
from apollod.core.settings import EnvironmentSettings

HEALTHY = {"ratio": 1.0, "clipped": 0.0, "kl": 0.0, "entropy": 1.0}


def rewarding(*environments: EnvironmentSettings) -> ev.Settings:
    """Settings with these environments; with one named `sums` without any."""
    return msgspec.structs.replace(SETTINGS, environment=environments or (EnvironmentSettings("sums"),))


class RewardedWorld(World):
    """Steps of groups say `metrics`."""

    def __init__(self, settings: ev.Settings | None = None, dies_at: int = 0) -> None:
        super().__init__(settings or rewarding(), dies_at)
        self.calls: list[fx.SampleGroup] = []
        self.metrics = dict(HEALTHY)

    def _run(self, effect: fx.Effect) -> list[ev.Event]:
        if isinstance(effect, fx.SampleGroup):
            if effect.key() not in [one.key() for one in self.calls]:
                self.calls.append(effect)
            return []
        return super()._run(effect)

    def group(self, *scores: float, tokens: int = 40, first: int | None = None, reason: str = "") -> str:
        """Answer the oldest call; scores 1 and 0 without any. Returns the example's id, empty where all are equal."""
        asked, scores = self.calls.pop(0), scores or (1.0, 0.0)
        version = self.state.training.version
        example = "" if len(set(scores)) == 1 or reason else f"{asked.environment}{asked.number}"
        line = Line(asked.number, example, b'{"group":{}}') if example else None
        why = reason or ("" if example else "all answers have the same score")
        begun = version if first is None else first
        file = "f" * 32 if example else ""
        self.give(inp.GroupScored(asked.environment, asked.number, scores, begun, version, tokens, line, file, why))
        return example

    def failed(self, reason: str, stage: Stage = "prompt", **how: bool) -> None:
        """The oldest call fails."""
        asked = self.calls.pop(0)
        self.give(inp.GroupNotScored(asked.environment, asked.number, asked.attempt, stage, reason, **how))

    def encoded(self, example: str) -> inp.Encoded:
        found = super().encoded(example)
        groups = {e.example for e in self.of(ev.GroupSampled)}
        return msgspec.structs.replace(found, objective="grpo") if example in groups else found

    def give(self, input_: inp.Input) -> list[ev.Event]:
        if isinstance(input_, inp.StepDone) and not input_.metrics:
            input_ = msgspec.structs.replace(input_, metrics=self.metrics)
        return super().give(input_)
