"""Effects: start and stop the engine and the trainer, and attach the trainer to the weights."""

from typing import ClassVar, Literal

from apollod.core.kernel.effect import Effect


class SpawnEngine(Effect, frozen=True):
    """Check the model directory and the port, then start the engine on `model_dir`."""

    model_dir: str


class SpawnTrainer(Effect, frozen=True):
    """Start the trainer process."""


class StopChild(Effect, frozen=True):
    """End a child: politely (`grace_s`), then by SIGKILL of its process group."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("role",)
    role: Literal["engine", "trainer"]
    grace_s: float


class AttachTrainer(Effect, frozen=True):
    """Hand manifest and memory to the trainer; sent as soon as it is connected."""

    fresh: bool
