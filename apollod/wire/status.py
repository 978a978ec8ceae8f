"""The status object: what `apollod ctl status`, GET /apollod/status and /metrics say of the daemon.

Law of this file: fields are only ever added, never renamed, never given another type. What DESIGN section 9 promises is
required; whatever came later has a default, so that the status of an older daemon can be read, and fields of a newer
one are passed over. A field that is UNSET is left out of the JSON: nobody knows it, which is not the same as null.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from apollod.errors import ApolloError

SCHEMA_VERSION = 1

STATES = ("starting", "serving", "training", "paused", "degraded", "stopping")
"""what `Status.state` can say; a newer daemon may know more"""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A child process."""

    pid: int | None
    """null while it is down"""
    ready: bool
    """engine: it serves; trainer: weights and optimizer are those of the last step"""
    restarts: int
    """starts after the first since the daemon started"""
    given_up: bool = False
    """it crashed too often; `apollod ctl resume` tries again"""
    error: str = ""
    """why it ended last, unless it was asked to"""


class Engine(Process, frozen=True, kw_only=True):
    """vLLM."""

    url: str
    """of its API; empty until it is ready"""
    model: str
    """the name under which the model is served; empty until it is ready"""
    path: str = ""
    """directory that it loaded the model from"""


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """The newest comparison of trainer and engine: how far their log-probabilities differ, and whether every tensor is
    the same."""

    step: int
    """version of the weights that were compared"""
    aligned: bool
    mean_abs_diff: float
    """of the log-probabilities of the probe text, in nats"""
    max_abs_diff: float
    tokens: int
    """length of the probe text"""
    bound: float
    """mean difference above which training halts"""
    seconds: float
    usual: float = 0.0
    """the mean before; 0 while none was measured"""
    same_at: int | None = None
    """newest version at which every tensor was the same by digest; null while none was compared"""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The one copy of the weights. The counts are of tensors (`wire.manifest` says what live, cast ... mean)."""

    bridge: str
    """how trainer and engine share them; empty until the engine is ready"""
    parameters: int
    live: int
    cast: int
    rederive: int
    frozen: int
    trained: int = 0
    bytes: int
    elements: int = 0
    """numbers in the tensors that are trained"""
    fingerprint: str
    """16 hex digits (DESIGN section 8); empty until a trainer saw the weights"""
    base_fingerprint: str = ""
    """of the untrained weights"""
    version: int = 0
    """number of the last completed step that was not taken back"""
    publish: str = ""
    """`hogwild` or `fenced`; empty before the first start"""
    cache: str = ""
    """what becomes of cached prefixes after a step; empty before the first start"""
    paused: bool = False
    """requests wait for a fenced write"""
    alignment: Alignment | None = None
    served: int | UnsetType | None = UNSET
    """version that the engine has taken over; null without an engine"""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Examples, counted over the life of the journal."""

    pending: int
    """accepted and not yet learned, the running step's included"""
    held: int
    """somebody has to decide about them, or their step could not be run"""
    trained: int
    skipped: int = 0
    """their step wrote nothing"""
    undone: int = 0
    """their step was taken back"""
    withdrawn: int = 0
    """somebody took them out of the queue"""
    declined: int = 0
    """somebody decided against them"""
    edited: int = 0
    """another one is learned in their place"""
    expired: int = 0
    """nobody decided in time"""
    forgetting: int = 0
    """were learned, and are taken out of the weights"""
    unforgotten: int = 0
    """were to be forgotten and could not be"""
    rejected: int
    """lines that were quarantined, and examples that cannot be learned from"""
    duplicates: int
    """lines that were known already"""
    accepted: int = 0


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A path of a source that cannot be read now."""

    reason: str
    hint: str
    """what can be done about it"""
    mode: str
    """where it was found: `inbox`, `tail` (files of a watched directory) or `poll` (databases)"""
    since: float
    """Unix time at which it was found"""


class Optimizer(msgspec.Struct, frozen=True, kw_only=True):
    """What makes the steps; before the first start, nothing."""

    name: str
    rank: int
    lr: float = 0.0
    lr_direct: float = 0.0
    """for direct corrections"""
    state_bytes: int
    products: str = ""
    """what bf16 matrices are multiplied in, `bf16` or `float32`; empty without a trainer"""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest committed checkpoint (null: there is none), and what there is of others."""

    step: int | None
    at: float | None
    """Unix time of its commit"""
    fingerprint: str | None
    path: str | None = None
    steps_since: int = 0
    """steps that a crash would have run again"""
    kept: int = 0
    """checkpoints that one can go back to"""
    bytes: int = 0
    """of all of them"""
    due_in_s: float | None = None
    """seconds until the next one is written by itself; 0: as soon as `activities` lets it; null while nothing is
    unsaved"""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The step that is being made."""

    step: int
    example: str
    """id of the first one that it learns"""
    examples: int
    tokens: int
    """of all of them; 0: not known"""
    elapsed_s: float
    """since its intent was recorded"""
    expected_s: float | None
    """what the steps before it let expect for all of it; null: nothing yet"""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where engine and trainer are on their way to the next step."""

    phase: str
    """`loading`: the engine reads the weights; `compiling`: it has them and gets ready to serve; `attaching`: the
    trainer binds to them; `restoring`: a checkpoint; `replaying`: steps since then; `aligning`: both are compared"""
    elapsed_s: float
    """since the process was started, or the comparison or the rollback began"""
    done: int = 0
    """steps that were replayed"""
    of: int = 0
    """steps to replay"""


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollback can take back at once, in memory."""

    steps: int | UnsetType | None = UNSET
    """the last ones; a rollback further back reads a checkpoint and runs steps again. null without a trainer"""
    reason: str = ""
    """why it can never be one, such as too small a `[checkpoint] undo_bytes`"""
    bytes: int | None = None
    """of host memory that the trainer was given for it; null without a trainer"""


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """The one that is wanted or under way."""

    to: int
    from_: int = msgspec.field(name="from")
    state: str
    """`requested` or `started`"""


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The untrained weights."""

    kept: bool = False
    path: str | None = None
    how: str | None = None
    reason: str = ""
    """why they are not kept"""


class FollowUps(msgspec.Struct, frozen=True, kw_only=True):
    """Scoring of follow-ups by the served model, where no phrase decides."""

    score: str = "off"
    """as in [signals]"""
    used: bool = False
    """was the model right about the cases whose answer is known?"""
    reason: str = ""
    """why it is not used, or is not asked now; empty when all is well"""
    right: int = 0
    """of `cases`, the last time that it was asked about them"""
    cases: int = 0
    waiting: int = 0
    """follow-ups about which it was not asked yet"""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What steps keep of what the model said before they were made."""

    hold: float = 0.0
    """as in [lessons]; 0: nothing is held"""
    anchors: int = 0
    """answers that can be held"""
    missing: int = 0
    """that are still to be frozen"""
    moved: float | None = None
    """how far the model is from them, nats a token, as each was measured last; null: none was yet"""
    reason: str = ""
    """why none could be frozen when it was tried last; empty when all is well"""


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """Who judges examples before they are learned, and whether that counts."""

    mode: str = "off"
    model: str = ""
    trusted: bool = False
    """do its verdicts decide?"""
    reason: str = ""
    """why not, or why it is not asked now; empty when all is well"""
    agreement: float | None = None
    """with planted cases and with people: the mean of the rates on good and on bad; null while not known"""
    low: float | None = None
    high: float | None = None
    """95 % interval"""
    good: int = 0
    """known to be good, of those that count; so `bad`"""
    bad: int = 0
    waiting: int = 0
    """examples that wait for its verdict"""
    asked: int = 0
    """questions under way"""
    verdicts: int = 0
    """on examples, over the life of the journal"""
    failures: int = 0
    """in a row, of the endpoint"""


class Dreams(msgspec.Struct, frozen=True, kw_only=True):
    """What is learned by practice."""

    mode: str = ""
    """`idle`, `always` or `off`; empty before the first start"""
    reason: str = ""
    """why nothing is dreamt now; empty where something is, or may begin"""
    active: int = 0
    """patterns that are practised; so `settled`, which are shown untold, and `retired`, which were given up"""
    settled: int = 0
    retired: int = 0
    pattern: str = ""
    """of which was dreamt last"""
    dream: str = ""
    """under way; empty: none is"""
    stage: str = ""
    """what it waits for"""
    next: str = ""
    """what is dreamt next, or now, in words"""
    today: int = 0
    """dreams that began on this day (UTC)"""
    total: int = 0
    share: float | None = None
    """of dreams among the last 200 examples that were learned; null: none was learned since there are patterns"""
    error: str = ""
    """why the last call had no usable answer; empty after one that had"""


class Lessons(msgspec.Struct, frozen=True, kw_only=True):
    """What is taught until it is known: lessons by their state."""

    waiting: int = 0
    """their turn has not come"""
    practising: int = 0
    known: int = 0
    fading: int = 0
    """were known, and wait for their turn"""
    replaced: int = 0
    """another one has another answer to the same question"""
    given_up: int = 0
    lesson: str = ""
    """under way; empty: none is"""
    stage: str = ""
    """what it waits for"""
    reason: str = ""
    """why nothing is asked or prepared for a lesson now; empty where it may be"""
    error: str = ""
    """why the last call had no usable answer; empty after one that had"""
    due_at: float | None = None
    """Unix time at which a known one is asked again; null: at none"""


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """An incident of the quality guard that is not settled."""

    number: int
    step: int
    """whose weights were worse"""
    to: int
    """the last step that was good"""
    metrics: list[str]
    """that were worse, the surest first"""
    phase: str
    """`alarmed`: the weights of `to` are wanted back; `restored`: they are served; `searching`: replays look for the
    examples that did it; `named`: that is over; `stuck`: there is no way to the weights of `to`"""
    reason: str = ""
    """why there is none, or why it is not known who did it"""
    replays: int = 0
    """begun so far"""
    replays_max: int = 0
    culprits: list[str] = []
    """examples that did it, which are held"""
    again: int = 0
    """steps of the others that are still to be learned again"""


class QualityMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the baseline, in its unit: the share of answers that pass, or the loss of texts in nats a token."""

    name: str
    value: float | None
    """of the last look; null: none measured it since the baseline. So are `drop` and its interval"""
    baseline: float
    drop: float | None
    """how much worse it is; below 0: better"""
    low: float | None
    high: float | None
    """95 % interval of the drop, by that look alone"""
    margin: float
    """the drop that is allowed"""
    alarmed: bool
    """is it one of those of the alarm that is open?"""


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """State of the quality guard: has the model got worse?"""

    enabled: bool = False
    """is it measured every so many steps?"""
    looks: int = 0
    """measurements over the life of the journal, those of baselines and those that failed included"""
    baseline: int | None = None
    """step that the others are compared with; null: there is none yet"""
    step: int | None = None
    """of the last measurement; null: there was none"""
    due: str = ""
    """why one is made next: `baseline`, `steps`, `window`, `checkpoint`, `asked`; empty: none is due"""
    asked: str = ""
    """`run`, `baseline` or `checkpoint`: somebody waits for it, or a checkpoint; empty: nobody does"""
    running: bool = False
    """are probes asked now?"""
    reason: str = ""
    """why what is due cannot begin now"""
    incident: Alarm | None = None
    error: str = ""
    """why the last measurement failed; empty after one that did not"""
    untold: str = ""
    """why whoever `[quality] on_alarm` names could not be told of an alarm or its end; empty after he was"""
    references_lost: str = ""
    """why, when the daemon started, looks could not be compared with what the baseline's model thought of every token,
    and what to do; empty: they can, or there is a new baseline"""
    metrics: list[QualityMetric] = []
    """by name; empty without a baseline"""
    failed: int = 0
    """of `looks`, those that failed"""
    look_s: float | None = None
    """that the last measurement took; null: there was none"""
    incidents: int = 0
    """alarms over the life of the journal; so the next two"""
    taken_back: int = 0
    """steps that alarms took back"""
    replays: int = 0
    """of searches for the examples that did it"""


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """The file that holds every event."""

    seq: int
    """number of the newest event"""
    bytes: int
    head_hash: str
    """of the newest event, 64 hex digits; empty before the first"""
    path: str = ""
    verified: int | UnsetType = UNSET
    """event up to which the chain of hashes was read back in this life"""
    free_bytes: int | UnsetType = UNSET
    """on its disk"""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the state directory grows, by the last day of events."""

    journal_bytes_per_day: int
    history_bytes_per_day: int
    """checkpoints written less checkpoints removed"""
    days_left: float | None
    """until the disk of the state directory is full; null: nothing grows"""


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the engine's own answers."""

    mode: str = ""
    """`off`, `feedback` or `all`; empty in a state that was folded from a journal"""
    answers: int = 0
    """that are kept"""
    rated: int = 0
    """answers about which somebody said something, over the life of the journal"""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When what is not urgent is learned. Times are seconds since 1970."""

    nightly: str = ""
    """hours of the day; empty: at any time"""
    zone: str = ""
    """empty: this machine's"""
    open: bool = True
    """is it learned now?"""
    opens_at: float | None = None
    closes_at: float | None = None
    """of the hours that it is in, or of the next ones"""
    steps: int = 0
    """of this night, or of the last one"""


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """Existing logs that are read and learned once: the source that is under way, or the last one."""

    path: str
    state: str
    """`reading`; `learning`: all is read, and its examples wait for their steps; `completed`; `stopped`"""
    reason: str = ""
    """why it was stopped"""
    strip: str
    files: int | None = None
    """that there are; null: nobody has looked yet"""
    files_read: int = 0
    bytes: int | None = None
    """of all of them, on disk"""
    bytes_read: int = 0
    unread: int = 0
    """files that could not be read"""
    accepted: int = 0
    """lines, like the next three"""
    duplicates: int = 0
    rejected: int = 0
    dropped: int = 0
    learned: int = 0
    """examples"""
    held: int = 0
    waiting: int = 0
    left_s: float | None = None
    """of steps, for what waits and for what the rest will probably give; null: no step tells yet how long one takes"""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon at a moment."""

    schema_version: int = SCHEMA_VERSION
    state: str
    """one of STATES"""
    error: str = ""
    """why it does less than it should; empty when all is well"""
    pid: int = 0
    """of the supervisor; 0 in a state that was folded from a journal"""
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
    running: Running | None = None
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
    """`state`, `inbox`, `socket`; empty in a state that was folded from a journal"""
    schedule: Schedule = Schedule()
    bootstrap: Bootstrap | None = None
    """null: there was none"""
    dreams: Dreams = Dreams()
    lessons: Lessons = Lessons()
    uptime_s: float
    processor: str = ""
    """kind of CPU, by which kernels are chosen: amx_bf16, avx512_bf16, avx512, avx2, arm_bf16, arm, other; empty in a
    state that was folded from a journal"""
    activities: dict[str, str] = {}
    """activity -> why it cannot begin now; empty when it can"""


class TrainStatus(msgspec.Struct, frozen=True):
    """What GET /train/status says: the part of a status that tells how far learning is."""

    schema_version: int
    state: str
    step: int
    queue: dict[str, int]


class QualityStatus(msgspec.Struct, frozen=True):
    """What GET /apollod/quality says: the part of a status that tells how good the model is."""

    schema_version: int
    quality: Quality


StatusT = TypeVar("StatusT", Status, TrainStatus, QualityStatus)


def read(body: Any) -> Status:
    """The status in the body of a reply. Raises ApolloError for what is none."""
    return _read(body, Status)


def read_train_status(body: Any) -> TrainStatus:
    """That part of a status. Raises ApolloError for what is none."""
    return _read(body, TrainStatus)


def read_quality(body: Any) -> QualityStatus:
    """That part of a status. Raises ApolloError for what is none."""
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
