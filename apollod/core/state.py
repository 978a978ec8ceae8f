"""The daemon's state: all that decisions may depend on, one slice a subject.

Law: only `core.fold` writes it; everyone else reads. State depends on events alone, never on a clock: times come from
the event.
"""

import msgspec

from apollod.core.facts.alignment import AlignmentState
from apollod.core.facts.bootstrap import BootstrapState
from apollod.core.facts.checkpoints import CheckpointsState
from apollod.core.facts.children import ChildrenState
from apollod.core.facts.daemon import DaemonState
from apollod.core.facts.dreams.state import DreamsState
from apollod.core.facts.environments import EnvironmentsState
from apollod.core.facts.feedback import FeedbackState
from apollod.core.facts.followups import FollowUpsState
from apollod.core.facts.forgetting import ForgettingState
from apollod.core.facts.holding import HoldingState
from apollod.core.facts.intake.state import IntakeState
from apollod.core.facts.judging.state import JudgingState
from apollod.core.facts.lessons.state import LessonsState
from apollod.core.facts.preferences import PreferencesState
from apollod.core.facts.publishing import PublishingState
from apollod.core.facts.quality.state import QualityState
from apollod.core.facts.recovery import RecoveryState
from apollod.core.facts.rescoring import RescoringState
from apollod.core.facts.review import ReviewState
from apollod.core.facts.rollback import RollbackState
from apollod.core.facts.schedule import ScheduleState
from apollod.core.facts.scoring import ScoringState
from apollod.core.facts.training import TrainingState
from apollod.core.facts.updates import UpdatesState


class State(msgspec.Struct):
    """Everything decisions may depend on. A field is named like the subject whose fold writes it."""

    seq: int = 0
    """of the last event that was folded"""
    daemon: DaemonState = msgspec.field(default_factory=DaemonState)
    children: ChildrenState = msgspec.field(default_factory=ChildrenState)
    intake: IntakeState = msgspec.field(default_factory=IntakeState)
    training: TrainingState = msgspec.field(default_factory=TrainingState)
    review: ReviewState = msgspec.field(default_factory=ReviewState)
    bootstrap: BootstrapState = msgspec.field(default_factory=BootstrapState)
    scoring: ScoringState = msgspec.field(default_factory=ScoringState)
    rescoring: RescoringState = msgspec.field(default_factory=RescoringState)
    followups: FollowUpsState = msgspec.field(default_factory=FollowUpsState)
    judging: JudgingState = msgspec.field(default_factory=JudgingState)
    quality: QualityState = msgspec.field(default_factory=QualityState)
    dreams: DreamsState = msgspec.field(default_factory=DreamsState)
    lessons: LessonsState = msgspec.field(default_factory=LessonsState)
    environments: EnvironmentsState = msgspec.field(default_factory=EnvironmentsState)
    feedback: FeedbackState = msgspec.field(default_factory=FeedbackState)
    preferences: PreferencesState = msgspec.field(default_factory=PreferencesState)
    forgetting: ForgettingState = msgspec.field(default_factory=ForgettingState)
    holding: HoldingState = msgspec.field(default_factory=HoldingState)
    recovery: RecoveryState = msgspec.field(default_factory=RecoveryState)
    checkpoints: CheckpointsState = msgspec.field(default_factory=CheckpointsState)
    rollback: RollbackState = msgspec.field(default_factory=RollbackState)
    schedule: ScheduleState = msgspec.field(default_factory=ScheduleState)
    updates: UpdatesState = msgspec.field(default_factory=UpdatesState)
    publishing: PublishingState = msgspec.field(default_factory=PublishingState)
    alignment: AlignmentState = msgspec.field(default_factory=AlignmentState)

    @property
    def unsaved(self) -> bool:
        """True if the weights differ from those of the newest checkpoint."""
        return bool(self.recovery.since) or self.taken_back

    @property
    def taken_back(self) -> bool:
        """True if the model directory holds steps that were taken back since."""
        origin, newest = self.recovery.origin, self.checkpoints.newest
        return origin is not newest and origin != newest

    @property
    def queued(self) -> int:
        """Number of examples that wait to be learned, including those of the running step."""
        running = self.training.running
        return sum(len(queue.waiting) for queue in self.intake.queues) + (len(running.examples) if running else 0)

    @property
    def due(self) -> int:
        """Number of these that wait for nothing but their turn: ratings wait for others."""
        return self.queued - len(self.intake.gathered)
