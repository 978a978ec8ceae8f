"""All messages over the supervisor's Unix socket, as tagged msgspec Structs in msgpack.

Tags are explicit strings: they are the protocol, class names are not. Engine and trainer connect as children (`Hello`
with a role first), other clients send one request a connection and read one reply (`wire.control_messages`).
"""

from typing import Literal

import msgspec

from apollod.core.effects import CompareWeights, ProbeTrainer, RefreshEngine, Restore, ResumeEngine, WriteCheckpoint
from apollod.core.facts.training import StepTerms
from apollod.core.inputs import (
    Bound,
    CheckpointWritten,
    Compared,
    Encoded,
    EncodeDone,
    EngineResumeReport,
    ExamplesRanked,
    ExamplesScored,
    Probed,
    Refused,
    Restored,
    ScoredAgain,
    StepDone,
    StepFailure,
    Undoable,
    WeightsSentReport,
)
from apollod.core.settings import Kernels, OptimizerSettings, Products, ProductsDtype
from apollod.wire.control_messages import (
    Answer,
    BootstrapRequest,
    BootstrapStopRequest,
    CheckpointRequest,
    DecideRequest,
    DocumentForgetRequest,
    DreamStartRequest,
    DreamStopRequest,
    EditRequest,
    EnvironmentRequest,
    Failure,
    FeedbackQuestion,
    FeedbackRequest,
    ForgetRequest,
    LeaseRequest,
    LessonForgetRequest,
    LessonPractiseRequest,
    LessonQuestion,
    LessonsRequest,
    PatternAddRequest,
    PatternRetireRequest,
    PatternsRequest,
    PauseRequest,
    QualityRequest,
    QueueRequest,
    RelearnRequest,
    Reply,
    Request,
    ResumeRequest,
    RollbackRequest,
    StatusRequest,
    SubmitRequest,
    TeachDocumentRequest,
    TeachRequest,
    UpdateCommitRequest,
    UpdateDirectoryRequest,
    UpdateJoinRequest,
    UpdateLeaveRequest,
    UpdateOpenRequest,
    UpdateReceiveRequest,
    UpdateUndoRequest,
    WithdrawRequest,
)
from apollod.wire.framing import encode
from apollod.wire.manifest import Manifest

__all__ = [
    "FROM_SUPERVISOR",
    "PROTOCOL",
    "TO_SUPERVISOR",
    "Answer",
    "AtWork",
    "Attach",
    "AttachCopy",
    "BootstrapRequest",
    "BootstrapStopRequest",
    "Bound",
    "CheckpointRequest",
    "CheckpointWritten",
    "CompareWeights",
    "Compared",
    "DecideRequest",
    "DocumentForgetRequest",
    "DreamStartRequest",
    "DreamStopRequest",
    "EditRequest",
    "Encode",
    "EncodeDone",
    "Encoded",
    "EngineResumeReport",
    "EnvironmentRequest",
    "ExamplesRanked",
    "ExamplesScored",
    "Failure",
    "FeedbackQuestion",
    "FeedbackRequest",
    "ForgetRequest",
    "FromSupervisor",
    "Hello",
    "Kernels",
    "LeaseRequest",
    "LessonForgetRequest",
    "LessonPractiseRequest",
    "LessonQuestion",
    "LessonsRequest",
    "LoadRefused",
    "Loaded",
    "OptimizerSettings",
    "PatternAddRequest",
    "PatternRetireRequest",
    "PatternsRequest",
    "Pause",
    "PauseRequest",
    "Paused",
    "ProbeTrainer",
    "Probed",
    "QualityRequest",
    "QueueRequest",
    "Quit",
    "Rank",
    "ReferenceTokens",
    "ReferencesScored",
    "RefreshEngine",
    "Refreshed",
    "Refused",
    "RelearnRequest",
    "Reply",
    "Request",
    "Rescore",
    "Reserve",
    "Restore",
    "Restored",
    "ResumeEngine",
    "ResumeRequest",
    "Role",
    "RollbackRequest",
    "ScoreReferences",
    "ScoredAgain",
    "Share",
    "StatusRequest",
    "Step",
    "StepDone",
    "StepExample",
    "StepFailure",
    "SubmitRequest",
    "TeachDocumentRequest",
    "TeachRequest",
    "ToSupervisor",
    "Undoable",
    "UpdateCommitRequest",
    "UpdateDirectoryRequest",
    "UpdateJoinRequest",
    "UpdateLeaveRequest",
    "UpdateOpenRequest",
    "UpdateReceiveRequest",
    "UpdateUndoRequest",
    "WatchedItem",
    "WeightsSentReport",
    "WithdrawRequest",
    "WriteCheckpoint",
    "encode",
]  # fmt: skip

PROTOCOL = 1

Role = Literal["engine-worker", "engine-api", "trainer"]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First message of a child. `pid` is checked against SO_PEERCRED and the spawned process group."""

    role: Role
    pid: int
    protocol: int = PROTOCOL
    versions: dict[str, str] = {}


# --- engine worker ------------------------------------------------------------------------------------------------


class Reserve(msgspec.Struct, frozen=True, tag="reserve"):
    """The loader asks for shared memory of this many bytes; the answer is `Share` with a descriptor."""

    bytes: int


class Share(msgspec.Struct, frozen=True, tag="share"):
    """One memory file descriptor travels with this frame (SCM_RIGHTS)."""

    bytes: int


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The model is loaded and verified bit for bit after post-processing."""

    manifest: Manifest
    seconds: float


class LoadRefused(msgspec.Struct, frozen=True, tag="load-refused"):
    """The loader will not share this model or configuration."""

    reason: str
    hint: str


# --- engine API process -------------------------------------------------------------------------------------------


class Refreshed(msgspec.Struct, frozen=True, tag="refreshed"):
    """Result of a RefreshEngine; `error`: empty on success; `rederived`: number of parameters."""

    version: int
    rederived: int
    seconds: float
    error: str = ""


class Pause(msgspec.Struct, frozen=True, tag="pause-engine"):
    """Make requests wait until ResumeEngine, at most `at_most_s` seconds; `clear`: drop cached prefixes, and the KV of
    running requests."""

    clear: bool
    at_most_s: float


class Paused(msgspec.Struct, frozen=True, tag="paused"):
    """The engine is idle; with `error` it is not paused."""

    seconds: float
    error: str = ""


# --- trainer ------------------------------------------------------------------------------------------------------


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """Bind to the engine's memory. `fresh`: right after a load, views must equal the files of `manifest.model_dir`
    bit for bit. `Share` frames with the descriptors come first, one a storage."""

    manifest: Manifest
    optimizer: OptimizerSettings
    fresh: bool
    undo_bytes: int = 0
    """memory for undoing the last steps"""
    kernels: Kernels = "auto"
    gradient_checkpointing: bool = False
    """compute layers again in the backward pass instead of keeping them: takes less memory and gives the same bits"""
    undo_refused: str = ""
    """why `undo_bytes` is 0 although it was not configured as 0"""
    products: Products = "auto"


class AttachCopy(msgspec.Struct, frozen=True, tag="attach-copy"):
    """Offline replay: load `model_dir` into the trainer's own memory on `device`, with the dtypes of the engine (`held`
    and `tied`: see `TrainerBound`). A second one changes settings of the optimizer, kernels and threads, and keeps
    weights and state."""

    model_dir: str
    held: dict[str, str]
    tied: dict[str, str]
    device: Literal["cpu", "cuda"]
    optimizer: OptimizerSettings
    kernels: Kernels = "auto"
    gradient_checkpointing: bool = False
    products: Products = "auto"
    threads: int = 0
    """0: unchanged"""


class Encode(msgspec.Struct, frozen=True, tag="encode"):
    """Tokenise examples: (content id, canonical record JSON) pairs. `directories`: where the weights before the first
    step may lie, whose fingerprint is `untrained`."""

    examples: list[tuple[str, bytes]]
    directories: tuple[str, ...] = ()
    untrained: str = ""


class StepExample(msgspec.Struct, frozen=True):
    """An example to learn: content id, canonical record JSON, expected digest of its tokens and columns."""

    example: str
    record: bytes
    digest: str


class Step(StepTerms, frozen=True, tag="step"):
    """Run one optimizer step that learns `examples`. `anchors`: records of the anchors that it holds (`held`); they are
    learned by `context` beside the examples. `replay`: the step is in the journal already. An unknown objective fails
    the step. `products`: dtype of its matrix products; None: that of the trainer's binding."""

    step: int
    examples: list[StepExample]
    lr: float
    anchors: list[StepExample] = []
    replay: bool = False
    products: ProductsDtype | None = None


class Rescore(msgspec.Struct, frozen=True, tag="rescore"):
    """Score examples that were learned by `sft` with the present weights, until the next other request; the answer is
    `ExamplesScored`."""

    number: int
    examples: list[StepExample]


class ReferenceTokens(msgspec.Struct, frozen=True):
    """Token ids; those from `start` on are scored."""

    ids: tuple[int, ...]
    start: int


class WatchedItem(msgspec.Struct, frozen=True):
    """Tokens that are scored from `start` on, and their weight. `rate`: their log odds are watched, else their loss."""

    ids: tuple[int, ...]
    start: int
    weight: float
    rate: bool


class Suspect(msgspec.Struct, frozen=True):
    """An example, and the objective and learning rate of the step that learned it."""

    example: StepExample
    objective: str
    lr: float


class Rank(msgspec.Struct, frozen=True, tag="rank"):
    """Estimate how far a step by each of `suspects` would move the sum of `items`, to first order, with the present
    weights. Nothing is written; `AtWork` is sent meanwhile, and the answer is `ExamplesRanked`."""

    incident: int
    number: int
    items: list[WatchedItem]
    suspects: list[Suspect]


class AtWork(msgspec.Struct, frozen=True, tag="at-work"):
    """Sign of life during a long request; not an answer."""


class ScoreReferences(msgspec.Struct, frozen=True, tag="score-references"):
    """Offline replay: score these tokens with the present weights; the answer is `ReferencesScored`."""

    items: list[ReferenceTokens]


class ReferencesScored(msgspec.Struct, frozen=True, tag="references-scored"):
    """The mean log-probability (natural) of each item's tokens, in their order; None: NaN."""

    logprobs: list[float | None]


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    """Finish and exit 0."""


# --- both directions ----------------------------------------------------------------------------------------------


ToSupervisor = (
    Hello
    | Reserve
    | Loaded
    | LoadRefused
    | Refreshed
    | Paused
    | EngineResumeReport
    | WeightsSentReport
    | Compared
    | Probed
    | Bound
    | Restored
    | EncodeDone
    | StepDone
    | StepFailure
    | ExamplesScored
    | ExamplesRanked
    | AtWork
    | CheckpointWritten
    | ReferencesScored
    | Refused
    | Request
)
FromSupervisor = (
    Share
    | RefreshEngine
    | Pause
    | ResumeEngine
    | CompareWeights
    | Attach
    | AttachCopy
    | Restore
    | Encode
    | Step
    | ProbeTrainer
    | Rescore
    | Rank
    | ScoreReferences
    | WriteCheckpoint
    | Quit
    | Reply
    | Failure
)

TO_SUPERVISOR: msgspec.msgpack.Decoder[ToSupervisor] = msgspec.msgpack.Decoder(ToSupervisor)
FROM_SUPERVISOR: msgspec.msgpack.Decoder[FromSupervisor] = msgspec.msgpack.Decoder(FromSupervisor)
"""Decoders for each end of a connection; made once, since that takes longer than many connections."""
