"""The settings that fix the bits of a step: the fields marked with it (`core.settings.FIXES_BITS`)."""

from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from apollod.core.settings import OptimizerSettings, Settings


def _fixes_bits(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(
        isinstance(part, Meta) and (part.extra or {}).get("fixes_bits") for part in get_args(hint)[1:]
    )


BITS_DEPEND_ON = tuple(
    name for name, hint in get_type_hints(OptimizerSettings, include_extras=True).items() if _fixes_bits(hint)
)
"""Names of settings that must be equal when a step is run again."""


_KEYS = {field.name: field.encode_name for field in msgspec.structs.fields(OptimizerSettings)}
"""Keys of [trainer] by the names of their fields."""


NO_KEYS = frozenset({"limiter_rule"})
"""Settings that only records have: the configuration cannot set them back."""


def differing_setting(then: Settings | None, now: Settings | None) -> str | None:
    """First key of [trainer] that the bits of a step depend on and that differs between both; None if none does."""
    if then is None or now is None:
        return None
    name = next((n for n in BITS_DEPEND_ON if getattr(then.trainer, n) != getattr(now.trainer, n)), None)
    return None if name is None else _KEYS[name]


def setting(settings: Settings, key: str) -> Any:
    """The value of a key of [trainer]."""
    return next(getattr(settings.trainer, name) for name, its_key in _KEYS.items() if its_key == key)
