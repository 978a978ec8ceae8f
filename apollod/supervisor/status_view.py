"""Builds `status` from a state. Pure, so that it also works on the fold of a journal (`apollod ctl replay`)."""

from typing import NamedTuple

from msgspec import UNSET, UnsetType

from apollod.core.rules import (
    bootstrap,
    checkpoints,
    children,
    daemon,
    environments,
    followups,
    preferences,
    publishing,
    recovery,
    rescoring,
    rollback,
    schedule,
    training,
    updates,
)
from apollod.core.rules.bootstrap import ReadSoFar
from apollod.core.rules.dreams import status as dreams
from apollod.core.rules.holding import policy as holding
from apollod.core.rules.intake import policy as intake
from apollod.core.rules.judging import policy as judging
from apollod.core.rules.lessons import policy as lessons
from apollod.core.rules.quality import status as quality
from apollod.core.state import State
from apollod.wire.status import Journal, Status


class Seen(NamedTuple):
    """Facts about the children that no event records: the engine has loaded the weights; the step that the trainer was
    told to replay (0: none); progress of reading a bootstrap's source; the version that the engine serves."""

    loaded: bool = False
    replaying: int = 0
    read: ReadSoFar | None = None
    served: int | UnsetType | None = UNSET


UNSEEN = Seen()


def status_view(state: State, now_ns: int, journal: Journal, journal_error: str = "", seen: Seen = UNSEEN) -> Status:
    """The status at a given time. Fields about the process, such as `pid` and `paths`, have their defaults."""
    return Status(
        state=daemon.phase(state, journal_error),
        error=daemon.error(state, journal_error),
        step=state.training.version,
        engine=children.engine(state),
        trainer=children.trainer(state),
        weights=publishing.status(state, seen.served),
        queue=intake.status(state),
        blocked=intake.blocked(state),
        optimizer=training.optimizer(state),
        checkpoint=checkpoints.status(state, now_ns),
        running=training.running(state, now_ns),
        start=children.start(state, now_ns, seen.loaded, seen.replaying),
        rollback=rollback.status(state),
        base=recovery.status(state),
        judge=judging.status(state),
        follow_ups=followups.status(state),
        holding=holding.status(state),
        journal=journal,
        quality=quality.status(state),
        schedule=schedule.status(state),
        bootstrap=bootstrap.status(state, seen.read),
        dreams=dreams.status(state, now_ns),
        lessons=lessons.status(state, now_ns),
        environments=environments.status(state, now_ns),
        preferences=preferences.status(state),
        updates=updates.status(state, now_ns),
        learned=rescoring.status(state),
        uptime_s=daemon.uptime_s(state, now_ns),
    )
