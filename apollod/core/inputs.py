"""Everything that can happen to the daemon, as values that `decide` is given.

Each subject declares its own in `<subject>/inputs.py`; this module re-exports them.
"""

# ruff: noqa: F403
from apollod.core.alignment.inputs import *
from apollod.core.bootstrap.inputs import *
from apollod.core.checkpoints.inputs import *
from apollod.core.children.inputs import *
from apollod.core.daemon.inputs import *
from apollod.core.dreams.inputs import *
from apollod.core.feedback.inputs import *
from apollod.core.followups.inputs import *
from apollod.core.forgetting.inputs import *
from apollod.core.holding.inputs import *
from apollod.core.intake.inputs import *
from apollod.core.judging.inputs import *
from apollod.core.kernel.input import Advance as Advance
from apollod.core.kernel.input import Input as Input
from apollod.core.kernel.input import Tick as Tick
from apollod.core.lessons.inputs import *
from apollod.core.publishing.inputs import *
from apollod.core.quality.inputs import *
from apollod.core.recovery.inputs import *
from apollod.core.rescoring.inputs import *
from apollod.core.review.inputs import *
from apollod.core.rollback.inputs import *
from apollod.core.schedule.inputs import *
from apollod.core.scoring.inputs import *
from apollod.core.training.inputs import *
