"""Effects: write, observe and remove checkpoints, and run the user's command."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class WriteCheckpoint(Effect, frozen=True, tag="write-checkpoint"):
    """Bring the files of `model_dir` to the weights of `step`, and keep the optimizer state and the delta to the files'
    previous content in the new directory `path`. `full`: keep the weights there, too.

    Without a `model_dir`: write a whole model directory with weights and optimizer state to `path`, and nothing else.
    """

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    step: int
    path: str
    model_dir: str = ""
    full: bool = False


class ObserveCheckpoint(Effect, frozen=True):
    """Finish or drop a checkpoint whose writer is gone, and report whether it was committed."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    step: int
    path: str


class RemoveCheckpoint(Effect, frozen=True):
    """Delete an old checkpoint's directory."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    path: str


class RunHook(Effect, frozen=True):
    """Run the user's command for a committed checkpoint; repeated until it is reported."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("path",)
    step: int
    path: str
    fingerprint: str
