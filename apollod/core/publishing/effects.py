"""Effects: refresh the engine, pause and resume its requests around a write."""

from typing import ClassVar, Literal

from apollod.core.kernel.effect import Effect
from apollod.core.recovery.effects import Restore
from apollod.core.training.effects import RunStep


class RefreshEngine(Effect, frozen=True, tag="refresh"):
    """Tell the engine that its weights are now version `version`. Only the newest one counts.

    `forget`: treatment of cached prefixes of older weights: dropped, no longer found, or kept.
    """

    distinguished_by: ClassVar[tuple[str, ...]] = ("version",)
    version: int
    forget: Literal["reset", "salt", "keep"] = "reset"


class PauseEngine(Effect, frozen=True):
    """Make requests wait, for at most `at_most_s` seconds, so that trainer `trainer` (a pid) can do `then`.

    `clear`: drop the prefix cache and what running requests have computed; they do it again with the new weights. A
    failed attempt is made again `wait_s` later.
    """

    then: RunStep | Restore
    trainer: int
    clear: bool
    at_most_s: float
    attempt: int = 1
    wait_s: float = 0.0

    def key(self) -> str:
        """Like other keys, with the key of the pending write."""
        return f"PauseEngine trainer={self.trainer} attempt={self.attempt} then {self.then.key()}"


class ResumeEngine(Effect, frozen=True, tag="resume-engine"):
    """End the wait of requests."""
