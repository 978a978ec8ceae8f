"""Effects: plan a rollback."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class PlanRollback(Effect, frozen=True):
    """Plan from the journal the way from version `version` back to step `to`, from one of `checkpoints` (path by
    step)."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("to", "version")
    to: int
    version: int
    checkpoints: dict[int, str]
