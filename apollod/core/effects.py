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
    """Bring weights and optimizer to a checkpoint. `path` empty: the weights before the first step, a fresh optimizer.
    `weights`: write the weights too (otherwise memory already holds them). `fingerprint`: what must come out.

    Weights are looked for in `model_dir`, then in the history of the checkpoints beside `path` and in `base`. Where the trainer
    still has the steps since `target` in memory, it may undo those instead; then `target_fingerprint` must come out."""

    path: str
    model_dir: str
    weights: bool
    fingerprint: str
    checkpoints: str = ""
    """directory of the history; empty: `model_dir` itself holds the weights"""
    base: str = ""
    """the weights before the first step, where they were kept"""
    target: int = -1
    """-1: no step is undone"""
    target_fingerprint: str = ""


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
    """Bring the files of `model_dir` to the weights of `step`, and keep its optimizer state and the way back to what the files
    held before in the new directory `path`. `full`: keep the weights there, too.

    Without a `model_dir`: write a whole model directory with weights and optimizer state to `path`, and nothing else."""

    step: int
    path: str
    model_dir: str = ""
    full: bool = False


class ObserveCheckpoint(msgspec.Struct, frozen=True):
    """Whoever wrote this checkpoint is gone: finish or drop what it left, and see whether it was committed."""

    step: int
    path: str


class RemoveCheckpoint(msgspec.Struct, frozen=True):
    """Delete an old checkpoint's directory."""

    path: str


class RunHook(msgspec.Struct, frozen=True):
    """Run the user's command for a committed checkpoint; asked for until it is reported."""

    step: int
    path: str
    fingerprint: str


class PlanRollback(msgspec.Struct, frozen=True):
    """Read from the journal how to get from version `version` back to step `to`, from one of `checkpoints` (path by step)."""

    to: int
    version: int
    checkpoints: dict[int, str]


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
    | ObserveCheckpoint | RunHook | PlanRollback | RemoveCheckpoint | KeepBase | RefreshEngine | PauseEngine | ResumeEngine
    | ProbeTrainer | ScoreProbe | CompareWeights | Exit
)
