"""The weights: what is served, what lies on disk, and the ways back."""

import msgspec
from msgspec import UNSET, UnsetType


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


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The untrained weights."""

    kept: bool = False
    path: str | None = None
    how: str | None = None
    reason: str = ""
    """why they are not kept"""


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


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that a rollback can take back at once, in memory."""

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
