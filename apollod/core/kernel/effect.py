"""Effects: requests of the core to the outside world. Every effect is safe to repeat; its outcome comes back as an
input."""

from typing import ClassVar

import msgspec


class Effect(msgspec.Struct, frozen=True):
    """Base of all effects."""

    distinguished_by: ClassVar[tuple[str, ...]] = ()
    """fields that distinguish effects of one type; none: only one at a time"""

    def key(self) -> str:
        """Identifies the work, such as `RunHook path='/s/checkpoints/step-12'`. While an effect is under way,
        another one with its key is not begun; several of one type may be under way at once if their keys differ."""
        return self.key_of(**{name: getattr(self, name) for name in self.distinguished_by})

    @classmethod
    def key_of(cls, **distinguishing: object) -> str:
        """The key of an effect of this type with these values of the fields in `distinguished_by`, in their order."""
        return " ".join([cls.__name__, *(f"{name}={value!r}" for name, value in distinguishing.items())])
