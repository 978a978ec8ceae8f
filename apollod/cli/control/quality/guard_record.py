"""The record of the quality guard in a journal: its slice of the state, its looks and its incidents, in one pass.

Events are folded by the daemon's own rules; those of other subjects, and steps, are not read.
"""

from typing import Any

from apollod.adapters.system.clock import iso
from apollod.cli.control import rows
from apollod.core import events as ev
from apollod.core.facts.quality.state import GUARD
from apollod.core.fold import fold_slices
from apollod.core.rules.quality.fold import FOLDS
from apollod.core.rules.quality.status import Story, tell
from apollod.core.settings import QualitySettings
from apollod.core.state import State

Object = dict[str, Any]

STEPS = (ev.StepStarted, ev.StepCompleted, ev.StepFailed, ev.WindowClosed)
"""Followed by the guard's fold, and not read: what only the next decisions depend on."""
_KINDS = ", ".join(f"'{one.kind}'" for one in FOLDS if one not in STEPS)
_SINCE = "seq > (SELECT min(seq) FROM events WHERE kind = 'quality.alarmed')"
_WHERE = (
    f"kind IN ({_KINDS}) OR (kind = 'step.started' AND {_SINCE} AND body ->> '$.again_of' > 0) "
    f"OR (kind = 'example.held' AND {_SINCE} AND body ->> '$.by' = '{GUARD}')"
)
"""Events of the guard, steps that repeat another one, and examples that it held."""


class GuardRecord:
    """The records taken so far: the state, the last look (None before it), all looks, and incidents, oldest first."""

    def __init__(self) -> None:
        self.state = State()
        self.last: ev.QualityMeasured | None = None
        self.looks: list[Object] = []
        self.stories: list[Story] = []
        self._before: dict[str, str] = {}
        """by probe, its answer at the baseline"""

    @property
    def settings(self) -> QualitySettings:
        """Settings of the daemon's last start."""
        settings = self.state.daemon.settings
        return settings.quality if settings is not None else QualitySettings()

    def take(self, recorded: ev.Recorded) -> None:
        """Take the next event, in the order of the journal."""
        fold_slices(self.state, recorded, ("quality", "daemon"))
        tell(self.stories, recorded, self.state)
        match recorded.event:
            case ev.QualityMeasured() as e:
                self.last = e
                if e.why == "baseline":
                    self._before |= e.answers
                look = _look(recorded, e.number, e.why, e.step, e.seconds)
                self.looks.append(look | {"left_out": e.left_out})
            case ev.QualityFailed() as e:
                look = _look(recorded, e.number, None, None, 0.0)
                self.looks.append(look | {"outcome": "failed", "reason": e.reason})
            case ev.QualityAlarmed() as e if self.last is not None:
                self.looks[-1] |= {"outcome": "alarm", "incident": e.incident}
                now = self.last.answers
                self.stories[-1].answers = {id_: (self._before.get(id_, ""), text) for id_, text in now.items()}


def _look(recorded: ev.Recorded, number: int, why: str | None, step: int | None, seconds: float) -> Object:
    return {
        "number": number, "at": iso(recorded.at_ns), "seq": recorded.seq, "why": why, "step": step, "seconds": seconds,
        "outcome": "baseline" if why == "baseline" else "passed", "incident": None, "reason": None,
        "left_out": {},
    }  # fmt: skip


def read(path: str) -> GuardRecord:
    """Read a whole journal."""
    found = GuardRecord()
    for one in rows.events(path, _WHERE):
        found.take(ev.Recorded(*one))
    return found
