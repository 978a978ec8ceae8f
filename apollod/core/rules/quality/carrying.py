"""The part of the quality guard that a journal takes over from its archive: the runs of the baseline, so that a decline
over two journals is still one. Results of looks are not taken over; the next look begins the tests anew."""

from collections.abc import Iterator

from apollod.core import events as ev
from apollod.core.facts.quality.baseline import RUNS_MIN
from apollod.core.facts.quality.state import QualityState

Dated = tuple[int, ev.Event]


class QualityNotes:
    """The newest runs of a baseline, collected in one pass over the archive."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, ev.QualityMeasured]] = []

    def see(self, recorded: ev.Recorded) -> None:
        """Note the next event."""
        event = recorded.event
        if not isinstance(event, ev.QualityMeasured) or event.why != "baseline":
            return
        one = (event.probes, event.step)
        same = [dated for dated in self._runs if (dated[1].probes, dated[1].step) == one]
        self._runs = [*same, (recorded.at_ns, event)][-RUNS_MIN:]

    def taken_over(self, state: QualityState) -> Iterator[Dated]:
        """Events to take over, in order."""
        if state.baseline and len(self._runs) == RUNS_MIN and self._runs[-1][1].step == state.at:
            yield from self._runs


def carried_quality(state: QualityState) -> QualityState:
    """The part of the state that is the same in both journals."""
    return QualityState(
        probes=state.probes, contrasts=state.contrasts, baseline=state.baseline, silent=state.silent,
        at=state.at, good=state.at, goods=(state.at,) if state.baseline else (), window_from=state.at,
        references=state.references, number=state.number, incidents=state.incidents, alarms_ns=state.alarms_ns,
        totals=state.totals,
    )  # fmt: skip
