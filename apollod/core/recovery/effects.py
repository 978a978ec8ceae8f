"""Effects: restore weights and run steps again, keep the base weights."""

from typing import ClassVar, Literal

from apollod.core.kernel.effect import Effect


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
