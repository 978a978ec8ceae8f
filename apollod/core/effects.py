"""All effects: requests to the outside world. Safe to repeat; the outcome comes back as an input.

Each subject declares its own in `<subject>/effects.py`; this module re-exports them.
"""

# ruff: noqa: F403
from apollod.core.alignment.effects import *
from apollod.core.checkpoints.effects import *
from apollod.core.children.effects import *
from apollod.core.daemon.effects import *
from apollod.core.dreams.effects import *
from apollod.core.followups.effects import *
from apollod.core.forgetting.effects import *
from apollod.core.holding.effects import *
from apollod.core.intake.effects import *
from apollod.core.judging.effects import *
from apollod.core.kernel.effect import Effect as Effect
from apollod.core.lessons.effects import *
from apollod.core.publishing.effects import *
from apollod.core.quality.effects import *
from apollod.core.recovery.effects import *
from apollod.core.rescoring.effects import *
from apollod.core.rollback.effects import *
from apollod.core.scoring.effects import *
from apollod.core.training.effects import *
