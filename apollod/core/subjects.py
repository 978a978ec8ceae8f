"""The subjects of the core, in the order in which they answer, and in that in which they begin."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from apollod.core.kernel.effect import Effect
from apollod.core.kernel.outcome import Outcome
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.rules import (
    alignment,
    bootstrap,
    checkpoints,
    children,
    daemon,
    environments,
    feedback,
    followups,
    forgetting,
    preferences,
    publishing,
    recovery,
    rescoring,
    review,
    rollback,
    schedule,
    scoring,
    training,
    updates,
)
from apollod.core.rules.dreams import fold as dreams_fold
from apollod.core.rules.dreams import policy as dreams
from apollod.core.rules.holding import fold as holding_fold
from apollod.core.rules.holding import policy as holding
from apollod.core.rules.intake import fold as intake_fold
from apollod.core.rules.intake import policy as intake
from apollod.core.rules.judging import fold as judging_fold
from apollod.core.rules.judging import policy as judging
from apollod.core.rules.lessons import fold as lessons_fold
from apollod.core.rules.lessons import policy as lessons
from apollod.core.rules.quality import fold as quality_fold
from apollod.core.rules.quality import policy as quality
from apollod.core.state import State


class Subject(NamedTuple):
    """The rules of a subject. Functions are given the state and the time (ns since the epoch), and change nothing."""

    name: str
    """that of its slice of the state"""
    handlers: Handlers
    folds: Folds
    repeat: Callable[[State, int], Sequence[Effect]] | None = None
    """effects that are requested until an event records their outcome"""
    close: Callable[[State, int], Outcome] | None = None
    """follows whatever began"""


SUBJECTS = (
    Subject("daemon", daemon.HANDLERS, daemon.FOLDS, close=daemon.close),
    Subject("children", children.HANDLERS, children.FOLDS, close=children.close),
    Subject("rollback", rollback.HANDLERS, rollback.FOLDS),
    Subject("checkpoints", checkpoints.HANDLERS, checkpoints.FOLDS, repeat=checkpoints.repeat),
    Subject("holding", holding.HANDLERS, holding_fold.FOLDS, repeat=holding.repeat),
    Subject("forgetting", forgetting.HANDLERS, forgetting.FOLDS),
    Subject("quality", quality.HANDLERS, quality_fold.FOLDS, repeat=quality.repeat),
    Subject("followups", followups.HANDLERS, followups.FOLDS),
    Subject("training", training.HANDLERS, training.FOLDS),
    Subject("recovery", recovery.HANDLERS, recovery.FOLDS),
    Subject("lessons", lessons.HANDLERS, lessons_fold.FOLDS),
    Subject("dreams", dreams.HANDLERS, dreams_fold.FOLDS),
    Subject("judging", judging.HANDLERS, judging_fold.FOLDS),
    Subject("updates", updates.HANDLERS, updates.FOLDS),
    Subject("environments", environments.HANDLERS, environments.FOLDS, repeat=environments.repeat),
    Subject("intake", intake.HANDLERS, intake_fold.FOLDS),
    Subject("feedback", feedback.HANDLERS, feedback.FOLDS),
    Subject("preferences", preferences.HANDLERS, preferences.FOLDS),
    Subject("bootstrap", bootstrap.HANDLERS, bootstrap.FOLDS),
    Subject("review", review.HANDLERS, review.FOLDS),
    Subject("scoring", scoring.HANDLERS, scoring.FOLDS),
    Subject("rescoring", rescoring.HANDLERS, rescoring.FOLDS),
    Subject("schedule", schedule.HANDLERS, schedule.FOLDS),
    Subject("publishing", publishing.HANDLERS, publishing.FOLDS, repeat=publishing.repeat),
    Subject("alignment", alignment.HANDLERS, alignment.FOLDS),
)
"""In this order subjects answer the same input, a child's end before its consequences. In the reverse order they fold
the same event: a slice that others read meanwhile comes after them, and all see `children` and `daemon` as they were
before the event."""

BEGINNINGS: tuple[Callable[[State, int], Outcome], ...] = (
    holding.advance,
    schedule.advance,
    review.advance,
    bootstrap.advance,
    quality.advance,
    forgetting.advance,
    rollback.advance,
    alignment.advance,
    updates.advance,
    checkpoints.advance,
    environments.advance,
    training.advance,
    lessons.advance,
    scoring.advance,
    rescoring.advance,
    judging.advance,
    followups.advance,
    dreams.advance,
)
"""Activities that may begin by themselves, by precedence: the first one with an outcome begins."""
