"""Folds events into the state: each subject folds its own events into its own slice.

Law: `fold` is the only writer. It changes the state it is given and returns it, so that a million events fold in
seconds.
"""

from collections.abc import Callable
from typing import Any

from apollod.core import events as ev
from apollod.core.alignment.fold import FOLDS as ALIGNMENT
from apollod.core.bootstrap.fold import FOLDS as BOOTSTRAP
from apollod.core.checkpoints.fold import FOLDS as CHECKPOINTS
from apollod.core.children.fold import FOLDS as CHILDREN
from apollod.core.daemon.fold import FOLDS as DAEMON
from apollod.core.dreams.fold import FOLDS as DREAMS
from apollod.core.feedback.fold import FOLDS as FEEDBACK
from apollod.core.followups.fold import FOLDS as FOLLOW_UPS
from apollod.core.forgetting.fold import FOLDS as FORGETTING
from apollod.core.holding.fold import FOLDS as HOLDING
from apollod.core.intake.fold import FOLDS as INTAKE
from apollod.core.judging.fold import FOLDS as JUDGING
from apollod.core.lessons.fold import FOLDS as LESSONS
from apollod.core.publishing.fold import FOLDS as PUBLISHING
from apollod.core.quality.fold import FOLDS as QUALITY
from apollod.core.recovery.fold import FOLDS as RECOVERY
from apollod.core.rescoring.fold import FOLDS as RESCORING
from apollod.core.review.fold import FOLDS as REVIEW
from apollod.core.rollback.fold import FOLDS as ROLLBACK
from apollod.core.schedule.fold import FOLDS as SCHEDULE
from apollod.core.scoring.fold import FOLDS as SCORING
from apollod.core.state import State
from apollod.core.training.fold import FOLDS as TRAINING

SLICES = {
    "alignment": ALIGNMENT,
    "publishing": PUBLISHING,
    "schedule": SCHEDULE,
    "rescoring": RESCORING,
    "recovery": RECOVERY,
    "training": TRAINING,
    "scoring": SCORING,
    "followups": FOLLOW_UPS,
    "review": REVIEW,
    "bootstrap": BOOTSTRAP,
    "feedback": FEEDBACK,
    "intake": INTAKE,
    "judging": JUDGING,
    "dreams": DREAMS,
    "lessons": LESSONS,
    "quality": QUALITY,
    "forgetting": FORGETTING,
    "holding": HOLDING,
    "checkpoints": CHECKPOINTS,
    "rollback": ROLLBACK,
    "children": CHILDREN,
    "daemon": DAEMON,
}
"""Folds by slice of the state. A slice that others read while they fold the same event comes after them: all see
`children` and `daemon` as they were before the event."""

IGNORED = frozenset(
    {
        ev.ConfigChanged, ev.ExampleCarried, ev.SourceDiscovered, ev.ReplayVerified, ev.ReplayDiverged,
    }
)  # fmt: skip
"""Facts for people only: no decision depends on them."""

_FOLLOWERS: dict[type[ev.Event], list[tuple[str, Callable[[Any, State, Any, int], None]]]] = {}
for _slice, _folds in SLICES.items():
    for _kind, _follow in _folds.items():
        _FOLLOWERS.setdefault(_kind, []).append((_slice, _follow))


def fold(state: State, recorded: ev.Recorded) -> State:
    """Apply one recorded event to `state` and return it."""
    state.seq = recorded.seq
    event = recorded.event
    for slice_, follow in _FOLLOWERS.get(type(event), ()):
        follow(getattr(state, slice_), state, event, recorded.at_ns)
    return state
