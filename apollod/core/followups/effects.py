"""Effects: ask the served model about follow-ups."""

from typing import ClassVar

from apollod.core.kernel.effect import Effect


class ScoreFollowUp(Effect, frozen=True):
    """Ask whether the user's next message rejects an example's answer; `example` empty: about all labelled cases."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("example",)
    example: str
