"""The simulation of lives remembers looks by their counts: it has to say what the code of the daemon says."""

from random import Random

import pytest

from apollod.core.facts.quality.looking import fallen_together, looked
from apollod.core.facts.quality.sequential import Baseline, alarms
from apollod.core.facts.quality.state import QualityState
from benchmarks.guard_lives import SETTINGS
from benchmarks.guard_models import SMALL, Guard, drawn, groups_of


@pytest.mark.parametrize("share", [0.05, 0.15, 0.25, 0.5])
def test_a_look_of_the_simulation_is_one_of_the_daemon(share: float) -> None:
    rng, rang = Random(f"compared {share}"), set()
    for _ in range(40):
        guard, own = Guard(SMALL), QualityState()
        own.baseline = {f"{name}.passed": Baseline({f"{n:02}": 1.0 for n in range(SMALL[name])}, 0.0) for name in SMALL}
        drops = drawn(rng, SMALL, "all", share)
        figures = {f"{name}.passed": {f"{n:02}": 1.0 - one for n, one in enumerate(drops[name])} for name in SMALL}
        for _ in range(3):
            own.metrics = looked(own, SETTINGS, figures)
            alarm = bool(alarms(own.metrics, whole=True) or fallen_together(own, SETTINGS, own.metrics, figures))
            assert guard.whole(drops) == alarm
            assert {f"{name}.passed": one for name, one in guard.metrics.items()} == own.metrics
            rang.add(alarm)
    assert share != 0.15 or rang == {True, False}


def test_models_pass_what_their_levels_have() -> None:
    small, middle, large = (groups_of(model) for model in ("small", "middle", "large"))
    assert small == SMALL and small.items() < middle.items() < large.items()
    assert [sum(groups.values()) for groups in (small, middle, large)] == [200, 920, 1640]
