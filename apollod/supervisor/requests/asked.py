"""The parts of the daemon that a handler may use."""

from typing import NamedTuple

from apollod.adapters.journal.writer import Journal
from apollod.supervisor.audit import Audit
from apollod.supervisor.bootstrapping import Bootstrapper
from apollod.supervisor.children import Children
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.growth_watch import GrowthWatch
from apollod.supervisor.judge import Judge
from apollod.supervisor.loop import Loop


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
