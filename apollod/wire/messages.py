"""Everything that crosses the supervisor's Unix socket, as tagged msgspec Structs in msgpack.

Tags are explicit strings: they are the protocol, class names are not. Engine and trainer talk as children (`Hello`
with a role first), everyone else sends one request a connection and reads one reply.
"""

from typing import Any, Literal

import msgspec

from apollod.core.effects import Restore, WriteCheckpoint
from apollod.core.inputs import (
    Bound,
    CheckpointWritten,
    Compared,
    Encoded,
    EncodeDone,
    Probed,
    Refused,
    Restored,
    StepDone,
    StepFailed,
)
from apollod.wire.manifest import Manifest

__all__ = [
    "PROTOCOL", "Answer", "Attach", "AttachCopy", "Bound", "CheckpointRequest", "CheckpointWritten", "Compare", "Compared",
    "Encode", "EncodeDone", "Encoded", "Failure", "FromSupervisor", "Hello", "Kernels", "LoadRefused", "Loaded", "OptimizerSettings",
    "Pause", "PauseRequest", "Paused", "Probe", "Probed", "Quit", "Refresh", "Refreshed", "Refused", "RelearnRequest", "Reply",
    "Request", "Reserve",
    "Restore", "Restored", "Resume", "ResumeRequest", "Resumed", "Role", "RollbackRequest", "Share", "StatusRequest", "Step", "StepDone",
    "StepExample", "StepFailed", "SubmitRequest", "ToSupervisor", "WriteCheckpoint", "encode",
]

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


class Refresh(msgspec.Struct, frozen=True, tag="refresh"):
    """Weights changed: re-derive what the engine derives, label the new version; what becomes of cached prefixes: see
    `core.effects.RefreshEngine`."""

    version: int
    forget: Literal["reset", "salt", "keep"] = "reset"


class Refreshed(msgspec.Struct, frozen=True, tag="refreshed"):
    """Result of a Refresh; `error` is empty when it worked, `rederived` counts parameters."""

    version: int
    rederived: int
    seconds: float
    error: str = ""


class Pause(msgspec.Struct, frozen=True, tag="pause-engine"):
    """Let requests wait until Resume, at most `at_most_s` seconds; `clear`: forget cached prefixes and running requests' KV."""

    clear: bool
    at_most_s: float


class Paused(msgspec.Struct, frozen=True, tag="paused"):
    """The engine is idle; with `error` it is not paused."""

    seconds: float
    error: str = ""


class Resume(msgspec.Struct, frozen=True, tag="resume-engine"):
    """Let requests go on; answered also where they were not waiting."""


class Resumed(msgspec.Struct, frozen=True, tag="resumed"):
    """`active` requests go on after `seconds`. `expired`: no answer to a Resume, `at_most_s` was over."""

    seconds: float
    expired: bool = False
    active: int = 0


class Compare(msgspec.Struct, frozen=True, tag="compare"):
    """Compare every tensor with the trainer's digests; the answer is `Compared`."""

    step: int
    digests: dict[str, str]


# --- trainer ------------------------------------------------------------------------------------------------------


class OptimizerSettings(msgspec.Struct, frozen=True):
    """What a step depends on besides weights, example, number and learning rate."""

    name: str = "apollo"
    rank: int = 64
    scale: Literal["channel", "tensor"] = "channel"
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    rounding: Literal["stochastic", "nearest", "master"] = "stochastic"
    seed: int = 0
    max_tokens: int = 4096
    checkpointing: bool = False
    """gradient checkpointing of the layers"""
    moments: Literal["float32", "bfloat16"] = "float32"
    limiter: float = 1.01
    """largest growth of an update's norm from one step to the next; 0: no limit"""
    layers: str = ""
    """decoder layers that are trained, such as "0-3,20-31", and nothing else; empty: everything"""
    freeze: tuple[str, ...] = ()
    """patterns (fnmatch) of names that are not trained"""


Kernels = Literal["auto", "triton", "eager"]
"""Of the optimizer on a GPU. The bits of a step depend on them, so the trainer says what it took (`Bound.versions`)."""


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """Bind to the engine's memory. `fresh`: right after a load, views must equal the files of `manifest.model_dir`
    bit for bit. `Share` frames with the descriptors come first, one a storage."""

    manifest: Manifest
    optimizer: OptimizerSettings
    fresh: bool
    undo_bytes: int = 0
    """memory for undoing the last steps"""
    kernels: Kernels = "auto"


class AttachCopy(msgspec.Struct, frozen=True, tag="attach-copy"):
    """Offline replay: load `model_dir` into memory of the trainer's own on `device`, held as the engine held it (`held`
    and `tied`: see `TrainerBound`). A second one changes the optimizer's settings and keeps weights and state."""

    model_dir: str
    held: dict[str, str]
    tied: dict[str, str]
    device: Literal["cpu", "cuda"]
    optimizer: OptimizerSettings
    kernels: Kernels = "auto"


class Encode(msgspec.Struct, frozen=True, tag="encode"):
    """Tokenise examples: (content id, canonical record JSON) pairs."""

    examples: list[tuple[str, bytes]]


class StepExample(msgspec.Struct, frozen=True):
    """An example to learn: content id, canonical record JSON, digest that its tokens must have."""

    example: str
    record: bytes
    digest: str


class Step(msgspec.Struct, frozen=True, tag="step"):
    """Run one optimizer step that learns `examples` together. A loss above `loss_limit` (0: none) writes nothing.
    `replay`: the step is in the journal already."""

    step: int
    examples: list[StepExample]
    lr: float
    loss_limit: float = 0.0
    replay: bool = False


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """Score the built-in text with the weights as they are, or digest every tensor; the answer is `Probed`."""

    step: int
    digests: bool = False


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    """Finish and exit 0."""


# --- control ------------------------------------------------------------------------------------------------------


class StatusRequest(msgspec.Struct, frozen=True, tag="status"):
    """`apollod ctl status`."""


class SubmitRequest(msgspec.Struct, frozen=True, tag="submit"):
    """Lines of an inbox file given directly; `source` names them in the journal."""

    lines: list[bytes]
    source: str


class CheckpointRequest(msgspec.Struct, frozen=True, tag="checkpoint"):
    """Write a checkpoint now; answered when it is committed."""


class PauseRequest(msgspec.Struct, frozen=True, tag="pause"):
    """Finish the running step, then start no other."""


class ResumeRequest(msgspec.Struct, frozen=True, tag="resume"):
    """Train again; also tries a child again that was given up."""


class RollbackRequest(msgspec.Struct, frozen=True, tag="rollback"):
    """Bring the served weights back to a step; answered when they are."""

    to: int


class RelearnRequest(msgspec.Struct, frozen=True, tag="relearn"):
    """Learn examples again whose steps were taken back."""

    examples: list[str]


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """An answer: JSON object in `body`."""

    body: Any


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """A refusal. `code` is the exit code that ctl uses (DESIGN section 9); `retryable`: nothing is wrong with the request, and later
    it may be granted."""

    error: str
    hint: str = ""
    code: int = 1
    retryable: bool = False


Request = StatusRequest | SubmitRequest | CheckpointRequest | PauseRequest | ResumeRequest | RollbackRequest | RelearnRequest
Answer = Reply | Failure

ToSupervisor = (
    Hello | Reserve | Loaded | LoadRefused | Refreshed | Paused | Resumed | Compared | Probed | Bound | Restored |
    EncodeDone | StepDone | StepFailed | CheckpointWritten | Refused | StatusRequest | SubmitRequest | CheckpointRequest |
    PauseRequest | ResumeRequest | RollbackRequest | RelearnRequest
)
FromSupervisor = (
    Share | Refresh | Pause | Resume | Compare | Attach | AttachCopy | Restore | Encode | Step | Probe | WriteCheckpoint | Quit | Reply
    | Failure
)

_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """One message as msgpack."""
    return _encoder.encode(message)
