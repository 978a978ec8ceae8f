"""Recovery after a crash or a restart, to the journal's last step. Events, inputs, effects and state."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.checkpoints import CheckpointRef
from apollod.core.facts.training import StepCompleted, StepStarted, StepTerms, Undoable, all_digests, all_examples
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.settings import ProductsDtype, Settings

# --- environment -----------------------------------------------------------------------------------------------------
# The environment that determines a step's bits, with settings "auto" and 0 resolved. Recorded with every
# `trainer.bound`.

CHOSEN = ("threads", "kernels")
"""Keys of [trainer], and of `TrainerBound.versions`, that are resolved."""


def differing_choice(then: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """First key of [trainer] that differs; None if none does, or the values are not recorded."""
    return next((key for key in CHOSEN if key in then and key in now and then[key] != now[key]), None)


def chosen(values: Mapping[str, str], key: str) -> int | str:
    """The value in the type of [trainer]."""
    return int(values[key]) if key == "threads" and values[key].isdigit() else values[key]


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """All differences, for people."""
    return ", ".join(
        f"{name} {then[name]} then, {now[name]} now" for name in then if name in now and then[name] != now[name]
    )


# --- events ----------------------------------------------------------------------------------------------------------


class RecordedStep(StepTerms, frozen=True):
    """A completed step, with the inputs to run it again and the expected result."""

    step: int
    examples: tuple[str, ...]
    digests: tuple[str, ...]
    lr: float
    applied: bool
    skipped: int
    fingerprint: str
    products: ProductsDtype = "bf16"
    """see `TrainerBound`"""

    @classmethod
    def of(cls, begun: StepStarted | None, done: StepCompleted, products: ProductsDtype) -> "RecordedStep":
        """The step with this intent and this result. `begun` None: not known."""
        examples, skipped = all_examples(done), done.skipped_zero + done.skipped_nonfinite
        digests, terms = (all_digests(begun), begun.terms()) if begun else (("",) * len(examples), {})
        return cls(
            done.step, examples, digests, done.lr, done.applied, skipped, done.fingerprint, products, **terms
        )  # fmt: skip


class ReplayVerified(Event, frozen=True):
    """Steps after a checkpoint were run again and every fingerprint was the recorded one."""

    kind: ClassVar[str] = "replay.verified"
    first: int
    last: int
    fingerprint: str


class ReplayDiverged(Event, frozen=True):
    """A step run again did not give the recorded bits. Training stops; serving goes on."""

    kind: ClassVar[str] = "replay.diverged"
    step: int
    expected: str
    found: str
    detail: str


class BaseKept(Event, Input, frozen=True):
    """The weights before the first step were kept in a second place. `how`: reflink, link (hard) or copy."""

    kind: ClassVar[str] = "base.kept"
    path: str
    how: str
    bytes: int
    seconds: float


class BaseLost(Event, Input, frozen=True):
    """The weights before the first step could not be kept, or the kept files are gone or changed: a replay from 0 needs
    them from elsewhere."""

    kind: ClassVar[str] = "base.lost"
    path: str
    reason: str


# --- inputs ----------------------------------------------------------------------------------------------------------


class Bound(Input, frozen=True, tag="bound"):
    """The trainer's model is bound; `fingerprint`: of the memory as found. For the others see `TrainerBound`."""

    fingerprint: str
    parameters: int
    elements: int
    versions: dict[str, str]
    held: dict[str, str] = {}
    tied: dict[str, str] = {}
    products: ProductsDtype = "bf16"
    template: str = ""


class Restored(Input, frozen=True, tag="restored"):
    """Weights and optimizer after a Restore. `undone`: they are those of its `target`, by undoing steps in memory."""

    fingerprint: str
    state_bytes: int
    undone: bool = False
    undoable: Undoable | None = None


# --- effects ---------------------------------------------------------------------------------------------------------


class Restore(Effect, frozen=True, tag="restore"):
    """Bring weights and optimizer to a checkpoint. `path` empty: the weights before the first step, a fresh optimizer.
    `weights`: write the weights too (otherwise memory already holds them). `fingerprint`: of the expected result.

    Weights are searched in `model_dir`, then in the history of the checkpoints beside `path` and in `base`. If the
    trainer still has the steps since `target` in memory, it may undo those instead; then `target_fingerprint` is
    expected."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path", "target")
    path: str
    model_dir: str
    weights: bool
    fingerprint: str
    checkpoints: str = ""
    """directory of the history; empty: `model_dir` itself holds the weights"""
    base: str = ""
    """directory of the weights before the first step, if kept"""
    target: int = -1
    """step to undo to; -1: none"""
    target_fingerprint: str = ""


class KeepBase(Effect, frozen=True):
    """Keep the weights of `model_dir`, nothing learned yet, in the directory `path` (whole or not at all)."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    model_dir: str
    path: str
    how: Literal["auto", "copy"]


# --- state -----------------------------------------------------------------------------------------------------------


class RecoveryState(msgspec.Struct):
    """The way from the files on disk to the weights of the last step."""

    base_fingerprint: str = ""
    base: BaseKept | None = None
    """kept weights of version 0"""
    base_lost: str = ""
    """why they are not kept"""
    origin: CheckpointRef | None = None
    """the checkpoint from which recovery starts, None: the base. The newest one, unless steps were taken back since"""
    since: list[RecordedStep] = []
    """steps from `origin` to the version of the weights, in order"""
    since_ns: int = 0
    """time of completion of the first of them, or of the checkpoint before"""
    learned_with: Settings | None = None
    """settings when the last of them was completed"""
    products: ProductsDtype = "bf16"
    """dtype of matrix products of the trainer bound last, for the next step"""
    ran_on: dict[str, str] = {}
    """environment of the trainer then: see `TrainerBound.versions`"""
