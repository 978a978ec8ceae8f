"""What the daemon asks the world to do. Every effect is safe to repeat; its outcome comes back as an input."""

from typing import ClassVar

import msgspec


class Effect(msgspec.Struct, frozen=True):
    """Base of all effects."""

    distinguished_by: ClassVar[tuple[str, ...]] = ()
    """the fields that tell an effect from another one of its type; none: there is only one at a time"""

    def key(self) -> str:
        """Identifies the work, such as `RunHook path='/s/checkpoints/step-12'`. While an effect is under way,
        another one with its key is not begun; several of one type may be under way at once if their keys differ."""
        return " ".join([type(self).__name__, *(f"{name}={getattr(self, name)!r}" for name in self.distinguished_by)])
