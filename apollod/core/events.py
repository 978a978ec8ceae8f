"""The facts that the journal holds: the only vocabulary on disk. See `kernel.event` for its law.

Each subject declares its own in `<subject>/events.py`; this module re-exports them.
"""

# ruff: noqa: F403
from apollod.core.alignment.events import *
from apollod.core.bootstrap.events import *
from apollod.core.checkpoints.events import *
from apollod.core.children.events import *
from apollod.core.daemon.events import *
from apollod.core.dreams.events import *
from apollod.core.feedback.events import *
from apollod.core.followups.events import *
from apollod.core.forgetting.events import *
from apollod.core.holding.events import *
from apollod.core.intake.events import *
from apollod.core.judging.events import *
from apollod.core.kernel.event import Event as Event
from apollod.core.kernel.event import Recorded as Recorded
from apollod.core.lessons.events import *
from apollod.core.publishing.events import *
from apollod.core.quality.events import *
from apollod.core.recovery.events import *
from apollod.core.rescoring.events import *
from apollod.core.review.events import *
from apollod.core.rollback.events import *
from apollod.core.schedule.events import *
from apollod.core.scoring.events import *
from apollod.core.settings import Settings as Settings
from apollod.core.training.events import *

KINDS: dict[str, type[Event]] = {cls.kind: cls for cls in Event.__subclasses__()}
"""Event types by kind."""
