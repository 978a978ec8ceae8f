"""Folds events into the state: each subject folds its own events into its own slice.

Law: `fold` is the only writer. It changes the state it is given and returns it, so that a million events fold in
seconds.
"""

from collections.abc import Callable
from typing import Any

from apollod.core import events as ev
from apollod.core.rules.alignment import FOLDS as ALIGNMENT
from apollod.core.rules.bootstrap import FOLDS as BOOTSTRAP
from apollod.core.rules.checkpoints import FOLDS as CHECKPOINTS
from apollod.core.rules.children import FOLDS as CHILDREN
from apollod.core.rules.daemon import FOLDS as DAEMON
from apollod.core.rules.dreams.fold import FOLDS as DREAMS
from apollod.core.rules.feedback import FOLDS as FEEDBACK
from apollod.core.rules.followups import FOLDS as FOLLOW_UPS
from apollod.core.rules.forgetting import FOLDS as FORGETTING
from apollod.core.rules.holding.fold import FOLDS as HOLDING
from apollod.core.rules.intake.fold import FOLDS as INTAKE
from apollod.core.rules.judging.fold import FOLDS as JUDGING
from apollod.core.rules.lessons.fold import FOLDS as LESSONS
from apollod.core.rules.publishing import FOLDS as PUBLISHING
from apollod.core.rules.quality.fold import FOLDS as QUALITY
from apollod.core.rules.recovery import FOLDS as RECOVERY
from apollod.core.rules.rescoring import FOLDS as RESCORING
from apollod.core.rules.review import FOLDS as REVIEW
from apollod.core.rules.rollback import FOLDS as ROLLBACK
from apollod.core.rules.schedule import FOLDS as SCHEDULE
from apollod.core.rules.scoring import FOLDS as SCORING
from apollod.core.rules.training import FOLDS as TRAINING
from apollod.core.state import State

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
