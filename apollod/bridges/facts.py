"""Capabilities of each bridge, so that callers never branch on its name. Pure."""

from collections.abc import Mapping

import msgspec

from apollod.errors import ShareRefused
from apollod.wire.manifest import CudaHandle, Manifest


class BridgeFacts(msgspec.Struct, frozen=True):
    """Capabilities of a bridge that the core depends on. tests/support/bridge_conformance.py tests each of them."""

    in_place: bool
    """the engine reads the trainer's writes directly: nothing is transferred, and there is one copy"""
    outlives_engine: bool
    """the trainer still has the weights, and may write them, when the engine is gone"""
    needs_pause: bool
    """the engine must not generate during a transfer of weights"""


BRIDGES: Mapping[str, BridgeFacts] = {
    # `shared`: engine and trainer map the same memory. The trainer's mapping of a memory file keeps it alive; in CUDA
    # a mapping whose exporter has ended is undefined, so the trainer ends with the engine.
    "memfd": BridgeFacts(in_place=True, outlives_engine=True, needs_pause=False),
    "cuda-ipc": BridgeFacts(in_place=True, outlives_engine=False, needs_pause=False),
    # The engine is elsewhere and has a copy; the trainer's memory is a memory file, which the gateway maps
    # (`engine.gateway`), or the gateway's on a GPU: `facts_of`. It must not be written while it is sent.
    "disk": BridgeFacts(in_place=False, outlives_engine=True, needs_pause=True),
    "memmap": BridgeFacts(in_place=False, outlives_engine=True, needs_pause=True),
    "gloo": BridgeFacts(in_place=False, outlives_engine=True, needs_pause=True),
    "tensor": BridgeFacts(in_place=False, outlives_engine=True, needs_pause=True),
    "nccl": BridgeFacts(in_place=False, outlives_engine=True, needs_pause=True),
    "restart": BridgeFacts(in_place=False, outlives_engine=True, needs_pause=True),
    "lora": BridgeFacts(in_place=False, outlives_engine=True, needs_pause=True),
}
"""By the name in the manifest and in `engine.ready`."""


def facts_of(manifest: Manifest) -> BridgeFacts:
    """The facts about the bridge of a manifest. Device memory ends with the process that exported it, whatever the
    bridge. Raises ShareRefused for an unknown one."""
    found = facts(manifest.bridge)
    on_device = any(isinstance(one, CudaHandle) for one in manifest.storages)
    return msgspec.structs.replace(found, outlives_engine=False) if on_device else found


def facts(name: str) -> BridgeFacts:
    """The facts about the bridge of this name. Raises ShareRefused for an unknown one."""
    try:
        return BRIDGES[name]
    except KeyError:
        raise ShareRefused(f"no bridge is called {name!r}", "use one version of apollod everywhere") from None
