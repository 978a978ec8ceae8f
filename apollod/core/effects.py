"""What the daemon asks the world to do. Every effect is safe to repeat; its outcome comes back as an input."""

from typing import Literal

import msgspec


class SpawnEngine(msgspec.Struct, frozen=True):
    """Check the model directory and the port, then start the engine on `model_dir`."""

    model_dir: str


class SpawnTrainer(msgspec.Struct, frozen=True):
    """Start the trainer process."""


class StopChild(msgspec.Struct, frozen=True):
    """End a child: politely (`grace_s`), then by SIGKILL of its process group."""

    role: Literal["engine", "trainer"]
    grace_s: float


class AttachTrainer(msgspec.Struct, frozen=True):
    """Hand manifest and memory to the trainer; sent as soon as it is connected."""

    fresh: bool


class Restore(msgspec.Struct, frozen=True, tag="restore"):
    """Bring weights and optimizer to a checkpoint. `path` empty: the base weights of `model_dir`, a fresh optimizer.
    `weights`: write the weights too (otherwise memory already holds them). `fingerprint`: what must come out."""

    path: str
    model_dir: str
    weights: bool
    fingerprint: str


class EncodeExamples(msgspec.Struct, frozen=True):
    """Have the trainer tokenise these examples; their records are read from the journal."""

    examples: tuple[str, ...]


class RunStep(msgspec.Struct, frozen=True):
    """One optimizer step that learns `examples` (whose tokens have these `digests`) together. `loss_limit`: a loss above it
    writes nothing, 0: no limit. `replay`: the journal has its result already."""

    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    loss_limit: float = 0.0
    replay: bool = False


class WriteCheckpoint(msgspec.Struct, frozen=True, tag="write-checkpoint"):
    """Write weights and optimizer state of `step` to the directory `path` (atomic: temporary, fsync, rename)."""

    step: int
    path: str


class RemoveCheckpoint(msgspec.Struct, frozen=True):
    """Delete an old checkpoint's directory."""

    path: str


class KeepBase(msgspec.Struct, frozen=True):
    """Keep the weights of `model_dir`, nothing learned yet, in the directory `path` (whole or not at all)."""

    model_dir: str
    path: str
    how: Literal["auto", "copy"]


class RefreshEngine(msgspec.Struct, frozen=True):
    """Tell the engine that its weights are now version `version`. Only the newest one counts.

    `forget`: what becomes of cached prefixes of older weights: they are dropped, no longer found, or kept."""

    version: int
    forget: Literal["reset", "salt", "keep"] = "reset"


class PauseEngine(msgspec.Struct, frozen=True):
    """Let requests wait, for `at_most_s` seconds, so that trainer `trainer` (a pid) can do `then`.

    `clear`: drop the prefix cache and what running requests have computed; they do it again with the new weights.
    A failed attempt is made again `wait_s` later."""

    then: RunStep | Restore
    trainer: int
    clear: bool
    at_most_s: float
    attempt: int = 1
    wait_s: float = 0.0


class ResumeEngine(msgspec.Struct, frozen=True):
    """Let requests go on."""


class ProbeTrainer(msgspec.Struct, frozen=True):
    """Have the trainer score the probe with the weights of `step`; with `digests` it digests every tensor instead."""

    step: int
    digests: bool = False


class ScoreProbe(msgspec.Struct, frozen=True):
    """Have the engine score `ids`, once it is up to date; `trainer`: the trainer's log-probabilities of ids 1.. given those before."""

    step: int
    ids: tuple[int, ...]
    trainer: tuple[float, ...]
    seconds: float


class CompareWeights(msgspec.Struct, frozen=True):
    """Have the engine compare every tensor it multiplies with to the trainer's `digests` (by name)."""

    step: int
    digests: dict[str, str]


class Exit(msgspec.Struct, frozen=True):
    """Everything is down; leave."""


Effect = (
    SpawnEngine | SpawnTrainer | StopChild | AttachTrainer | Restore | EncodeExamples | RunStep | WriteCheckpoint
    | RemoveCheckpoint | KeepBase | RefreshEngine | PauseEngine | ResumeEngine | ProbeTrainer | ScoreProbe | CompareWeights | Exit
)
