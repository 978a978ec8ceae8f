"""The parts of the daemon that a handler may use."""

from typing import NamedTuple

from apollod.adapters.journal.writer import Journal
from apollod.supervisor.bootstrapping import Bootstrapper
from apollod.supervisor.children import Children
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.journal_watch import Audit, GrowthWatch
from apollod.supervisor.judge import Judge
from apollod.supervisor.loop import Loop

USAGE = 2
"""exit code of a request that cannot be meant so; status 400 over HTTP"""


class Daemon(NamedTuple):
    """Parts of the running daemon."""

    config: Config
    loop: Loop
    journal: Journal
    children: Children
    audit: Audit
    growth: GrowthWatch
    bootstrapper: Bootstrapper
    judge: Judge | None = None
    """the judge for dreams"""
    dreamer: Dreamer | None = None
    """asks the imagination and the served model"""
