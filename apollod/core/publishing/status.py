"""The part of `status` about the weights."""

import msgspec
from msgspec import UNSET, UnsetType

from apollod.core.alignment import status as alignment
from apollod.core.alignment.status import Alignment
from apollod.core.children.state import NO_ENGINE
from apollod.core.kernel.composing import composed
from apollod.core.state import State


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The one copy of the weights. The counts are of tensors (`wire.manifest` defines live, cast ...)."""

    bridge: str
    """how trainer and engine share them; empty until the engine is ready"""
    parameters: int
    live: int
    cast: int
    rederive: int
    frozen: int
    trained: int = 0
    bytes: int
    elements: int = 0
    """number of elements in trained tensors"""
    fingerprint: str
    """16 hex digits (DESIGN section 8); empty until a trainer saw the weights"""
    base_fingerprint: str = ""
    """fingerprint of the untrained weights"""
    version: int = 0
    """number of the last completed step that was not taken back"""
    publish: str = ""
    """`hogwild` or `fenced`; empty before the first start"""
    cache: str = ""
    """treatment of cached prefixes after a step; empty before the first start"""
    paused: bool = False
    """requests wait for a fenced write"""
    alignment: Alignment | None = None
    served: int | UnsetType | None = UNSET
    """version in use by the engine; null without an engine"""


def status(state: State, served: int | UnsetType | None) -> Weights:
    """The weights as engine and trainer reported them; `served`: version in use by the engine."""
    bound, settings = state.children.bound, state.daemon.settings
    return composed(
        Weights, state.children.engine_facts or NO_ENGINE, trained=bound.parameters if bound else 0,
        elements=bound.elements if bound else 0,
        fingerprint=state.training.fingerprint, base_fingerprint=state.recovery.base_fingerprint,
        version=state.training.version, publish=settings.trainer.publish if settings else "",
        cache=settings.trainer.cache if settings else "", paused=state.publishing.engine_paused,
        alignment=alignment.status(state), served=served,
    )  # fmt: skip
