"""The parts of `status` about the weights: served ones, checkpoints, and rollbacks."""

import msgspec
from msgspec import UNSET, UnsetType


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """The newest comparison of trainer and engine: the difference of their log-probabilities, and the equality of
    tensors."""

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
    """usual mean difference; 0 while none was measured"""
    same_at: int | None = None
    """newest version at which every tensor was the same by digest; null while none was compared"""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The one copy of the weights. The counts are of tensors (`wire.manifest` defines live, cast ...)."""

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
    """number of elements in trained tensors"""
    fingerprint: str
    """16 hex digits (DESIGN section 8); empty until a trainer saw the weights"""
    base_fingerprint: str = ""
    """fingerprint of the untrained weights"""
    version: int = 0
    """number of the last completed step that was not taken back"""
    publish: str = ""
    """`hogwild` or `fenced`; empty before the first start"""
    cache: str = ""
    """treatment of cached prefixes after a step; empty before the first start"""
    paused: bool = False
    """requests wait for a fenced write"""
    alignment: Alignment | None = None
    served: int | UnsetType | None = UNSET
    """version in use by the engine; null without an engine"""


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The untrained weights."""

    kept: bool = False
    path: str | None = None
    how: str | None = None
    reason: str = ""
    """why they are not kept"""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest committed checkpoint (null: none), and totals of all."""

    step: int | None
    at: float | None
    """Unix time of its commit"""
    fingerprint: str | None
    path: str | None = None
    steps_since: int = 0
    """steps that a crash would have run again"""
    kept: int = 0
    """checkpoints available for a rollback"""
    bytes: int = 0
    """total size"""
    due_in_s: float | None = None
    """seconds until the next automatic one; 0: as soon as `activities` allows it; null: nothing is unsaved"""


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that a rollback can undo at once, in memory."""

    steps: int | UnsetType | None = UNSET
    """number of last steps; a rollback further back reads a checkpoint and runs steps again. null without a trainer"""
    reason: str = ""
    """why none can ever be undone, such as too small a `[checkpoint] undo_bytes`"""
    bytes: int | None = None
    """host memory of the trainer for it; null without a trainer"""


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """The requested rollback, or the one under way."""

    to: int
    from_: int = msgspec.field(name="from")
    state: str
    """`requested` or `started`"""
