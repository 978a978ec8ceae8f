"""Inputs: the daemon starts, stops, pauses and resumes."""

from apollod.core.judging.events import JudgeConfigured
from apollod.core.kernel.input import Input
from apollod.core.settings import Settings


class Started(Input, frozen=True):
    """The daemon is up on this journal. `base_problem`: defect of the kept base weights. `free_bytes`: free space on
    the disk of the state directory; None: not known. `judge`: the judge; None: none. `references_problem`: why looks
    cannot be compared with the baseline's answers; empty: they can, or need not be."""

    pid: int
    version_name: str
    settings: Settings
    state_dir: str
    base_problem: str = ""
    free_bytes: int | None = None
    judge: JudgeConfigured | None = None
    references_problem: str = ""
    follow_up_question: str = ""
    """see `DaemonStarted`"""


class StopRequested(Input, frozen=True):
    """SIGTERM, SIGINT, or the service manager."""

    reason: str


class PauseRequested(Input, frozen=True):
    by: str


class ResumeRequested(Input, frozen=True):
    by: str
