"""The daemon's quality guard on this sequence: its test (core/facts/quality), on probes that differ from the measured
questions.

Every `EVERY` steps, and after each task, the probes are asked, greedily: known facts in their other wording,
instructions told and their opposites on other scenarios than those of task 0, small talk. They are compared with two
runs on the weights before the first step, at the daemon's margin. After an alarm weights and optimizer return to the
last look without one; later examples are not learned again, the looks begin anew, and learning goes on. No culprits are
searched for.
"""

from collections import defaultdict
from collections.abc import Sequence

from apollod.core.facts.quality.looking import begun
from apollod.core.facts.quality.sequential import alarms, baseline_of, drops, renewed, seen
from apollod.core.settings import QualitySettings
from benchmarks.forgetting.learner import Model
from benchmarks.forgetting.tasks import Question

EVERY = 25


class Guard:
    """The guard of one model."""

    def __init__(self, model: Model, probes: Sequence[Question]) -> None:
        self._model, self._probes = model, probes
        found = self._look()
        self._before = {name: baseline_of([items, items]) for name, items in found.items()}
        self._metrics = {name: begun(name, QualitySettings(), before) for name, before in self._before.items()}
        self._good = model.keep()
        self.alarms = 0

    def look(self) -> bool:
        """Look; True after an alarm, with the last good weights back."""
        found = self._look()
        for name, metric in self._metrics.items():
            self._metrics[name] = seen(metric, drops(self._before[name], found[name], "lower", 1.0))
        if not alarms(self._metrics, whole=True):
            self._good = self._model.keep()
            return False
        self.alarms += 1
        self._metrics = {name: renewed(metric) for name, metric in self._metrics.items()}
        self._model.go_back(self._good)
        return True

    def _look(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = defaultdict(dict)
        for n, (one, passed) in enumerate(zip(self._probes, self._model.passed(self._probes), strict=True)):
            found[f"{one.group}.passed"][str(n)] = float(passed)
        return found
