"""The time limit of a replay, after which it counts as one that hangs. Pure."""

from apollod.core.quality.state import Incident
from apollod.core.settings import QualitySettings
from apollod.core.state import State

BEGINNING_S = 900.0
"""for a process to start, to check the journal, and to read and write the weights"""
SLOWER = 10.0
"""than a step was: a replay has the last place for processor and disk, and a forward pass counts as a step"""
STEP_S = 10.0
"""where nothing is known of steps"""


def limit_s(state: State, incident: Incident, settings: QualitySettings) -> float:
    """Seconds that every replay may take: as many as the first one, which also runs the steps since the checkpoint."""
    if settings.replay_s:
        return settings.replay_s
    slowest_s = max((pace.seconds for pace in state.training.recent), default=STEP_S)
    passes = len(state.recovery.since) + len(incident.steps) + sum(map(len, incident.fell.values()))
    return BEGINNING_S + SLOWER * slowest_s * passes
