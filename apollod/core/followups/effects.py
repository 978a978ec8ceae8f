"""What the world is asked to do: ask the served model about follow-ups."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class ScoreFollowUp(Effect, frozen=True):
    """Ask what the person's next words say of an example's answer; `example` empty: of all cases that are known."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("example",)
    example: str
