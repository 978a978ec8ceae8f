"""Effects: write, observe and remove checkpoints, and run the user's command."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class WriteCheckpoint(Effect, frozen=True, tag="write-checkpoint"):
    """Bring the files of `model_dir` to the weights of `step`, and keep its optimizer state and the way back to what
    the files held before in the new directory `path`. `full`: keep the weights there, too.

    Without a `model_dir`: write a whole model directory with weights and optimizer state to `path`, and nothing
    else."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    step: int
    path: str
    model_dir: str = ""
    full: bool = False


class ObserveCheckpoint(Effect, frozen=True):
    """Finish or drop a checkpoint whose writer is gone, and see whether it was committed."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    step: int
    path: str


class RemoveCheckpoint(Effect, frozen=True):
    """Delete an old checkpoint's directory."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    path: str


class RunHook(Effect, frozen=True):
    """Run the user's command for a committed checkpoint; asked for until it is reported."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    step: int
    path: str
    fingerprint: str
