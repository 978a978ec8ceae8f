"""The part of `status` about the untrained weights."""

import msgspec

from apollod.core.state import State


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The untrained weights."""

    kept: bool = False
    path: str | None = None
    how: str | None = None
    reason: str = ""
    """why they are not kept"""


def status(state: State) -> Base:
    """The kept weights of version 0, or the reason why there are none."""
    own, settings = state.recovery, state.daemon.settings
    if own.base is not None:
        return Base(kept=True, path=own.base.path, how=own.base.how)
    off = settings is not None and settings.checkpoint.keep_base == "off"
    return Base(reason=own.base_lost or ('[checkpoint] keep_base = "off"' if off else "not kept yet"))
