"""All objectives that a step can name."""

from __future__ import annotations

from apollod.errors import ApolloError
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.sft import SFT

OBJECTIVES: dict[str, Objective] = {objective.name: objective for objective in (SFT,)}


class ObjectiveUnknown(ApolloError, ValueError):
    """A step names an objective that this trainer does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no objective {name!r}, known are {', '.join(sorted(OBJECTIVES))}",
            "supervisor and trainer must be of one version; a journal of a newer one is replayed by that version",
        )


def objective_named(name: str) -> Objective:
    """The objective; raises ObjectiveUnknown."""
    if name not in OBJECTIVES:
        raise ObjectiveUnknown(name)
    return OBJECTIVES[name]
