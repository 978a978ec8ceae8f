"""The status object, shown by `apollod ctl status`, GET /apollod/status and /metrics.

Law of this object and of its sections: fields are only ever added, never renamed, never given another type. Fields
promised in DESIGN section 9 are required; later ones have a default, so that the status of an older daemon can be read,
and fields of a newer one are ignored. A field that is UNSET is left out of the JSON: it is not known, which is not the
same as null.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from apollod.core.rules.bootstrap import Bootstrap
from apollod.core.rules.checkpoints import Checkpoint
from apollod.core.rules.children import Engine, Process, Start
from apollod.core.rules.dreams.status import Dreams
from apollod.core.rules.environments import EnvironmentStatus
from apollod.core.rules.feedback import Capture
from apollod.core.rules.followups import FollowUps
from apollod.core.rules.holding.policy import Holding
from apollod.core.rules.intake.policy import Blocked, Queue
from apollod.core.rules.judging.policy import Judge
from apollod.core.rules.lessons.policy import Lessons
from apollod.core.rules.preferences import Preferences
from apollod.core.rules.publishing import Weights
from apollod.core.rules.quality.status import Quality
from apollod.core.rules.recovery import Base
from apollod.core.rules.rescoring import Learned
from apollod.core.rules.rollback import Rollback, Undo
from apollod.core.rules.schedule import Schedule
from apollod.core.rules.training import Optimizer, RunningStep
from apollod.core.rules.updates import Updates
from apollod.errors import ApolloError

SCHEMA_VERSION = 1


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """The file that holds every event."""

    seq: int
    """number of the newest event"""
    bytes: int
    head_hash: str
    """hash of the newest event, 64 hex digits; empty before the first"""
    path: str = ""
    verified: int | UnsetType = UNSET
    """event up to which the hash chain was verified in this life"""
    free_bytes: int | UnsetType = UNSET
    """free space on its disk"""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of the state directory, from the events of the last day."""

    journal_bytes_per_day: int
    history_bytes_per_day: int
    """checkpoints written minus checkpoints removed"""
    days_left: float | None
    """days until the disk of the state directory is full; null: no growth"""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the daemon at one time."""

    schema_version: int = SCHEMA_VERSION
    state: str
    """one of `core.rules.daemon.STATES`"""
    error: str = ""
    """why it does less than it should; empty: all is well"""
    pid: int = 0
    """of the supervisor; 0 if the state was folded from a journal"""
    step: int
    """number of the last completed step that was not taken back: the version of the weights"""
    engine: Engine
    trainer: Process
    weights: Weights
    queue: Queue
    blocked: dict[str, Blocked] = {}
    """paths of sources that cannot be read now"""
    optimizer: Optimizer
    checkpoint: Checkpoint
    running: RunningStep | None = None
    start: Start | None = None
    rollback: Rollback | None = None
    undo: Undo = Undo()
    base: Base = Base()
    judge: Judge = Judge()
    follow_ups: FollowUps = FollowUps()
    holding: Holding = Holding()
    journal: Journal
    growth: Growth | None = None
    """null while the journal is younger than ten minutes"""
    capture: Capture = Capture()
    quality: Quality = Quality()
    paths: dict[str, str] = {}
    """`state`, `inbox`, `socket`; empty if the state was folded from a journal"""
    schedule: Schedule = Schedule()
    bootstrap: Bootstrap | None = None
    """null: none so far"""
    dreams: Dreams = Dreams()
    lessons: Lessons = Lessons()
    environments: list[EnvironmentStatus] = []
    """in the order of their first start"""
    preferences: Preferences = Preferences()
    updates: Updates = Updates()
    learned: Learned = Learned()
    uptime_s: float
    processor: str = ""
    """kind of CPU, which decides the kernels: amx_bf16, avx512_bf16, avx512, avx2, arm_bf16, arm, other; empty if the
    state was folded from a journal"""
    activities: dict[str, str] = {}
    """activity -> why it cannot begin now; empty: it can"""


class TrainStatus(msgspec.Struct, frozen=True):
    """The answer of GET /train/status: the part of a status about learning."""

    schema_version: int
    state: str
    step: int
    queue: dict[str, int]


class QualityStatus(msgspec.Struct, frozen=True):
    """The answer of GET /apollod/quality: the part of a status about quality."""

    schema_version: int
    quality: Quality


StatusT = TypeVar("StatusT", Status, TrainStatus, QualityStatus)


def read(body: Any) -> Status:
    """The status in the body of a reply. Raises ApolloError if it is not one."""
    return _read(body, Status)


def read_train_status(body: Any) -> TrainStatus:
    """The part of a status about learning. Raises ApolloError if it is not one."""
    return _read(body, TrainStatus)


def read_quality(body: Any) -> QualityStatus:
    """The part of a status about quality. Raises ApolloError if it is not one."""
    return _read(body, QualityStatus)


def _read(body: Any, kind: type[StatusT]) -> StatusT:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise ApolloError(
            f"this is not the status of an apollod: {error}", "use one version of apollod everywhere"
        ) from error


def plain(status: Status) -> dict[str, Any]:
    """The status as JSON values, in the order of its fields."""
    values: dict[str, Any] = msgspec.to_builtins(status)
    return values
