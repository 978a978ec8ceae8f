"""Protocol of the process that receives the weights of a foreign trainer: one JSON object a line.

A `Join` is answered by `Joined`, a `Receive` and a `Take` by `Received`, each by `ReceiveRefused` where it fails;
`Leave` has no answer. A process that was refused is in no group any more, since it has not taken all that the sender
broadcasts.
"""

from typing import Literal

import msgspec

from apollod.wire.tensor_handles import Handle

Style = Literal["plain", "nested"]
"""How the store's keys are prefixed. plain: by the group's name, or, with NCCL, not at all, as by vLLM; nested: as
`torch.distributed` prefixes those of a group with a name, which is what torchrl, AReaL, slime and SGLang use."""

Backend = Literal["gloo", "nccl"]

Layout = Literal["each", "packed", "bucket"]
"""How tensors are cut into broadcasts. each: one a tensor; packed: vLLM's buffers; bucket: all in one, as SGLang's
`flattened_bucket`."""


class Announced(msgspec.Struct, frozen=True):
    """A tensor that the sender will broadcast. `dtype`: its torch name, with or without `torch.`"""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Join(msgspec.Struct, frozen=True, tag="join"):
    """Join the group `group` of `world_size` processes as `rank`; its store is at `address` and `port`, and rank 0
    sends. `timeout_s`: limit for this, and for each `Receive` from its first broadcast to its last. `unique_id`: of
    a group of NCCL, in place of a store; `addresses`: those to which it may lead besides this machine's own."""

    address: str
    port: int
    rank: int
    world_size: int
    group: str
    style: Style
    timeout_s: float
    backend: Backend = "gloo"
    unique_id: bytes = b""
    addresses: tuple[str, ...] = ()


class Receive(msgspec.Struct, frozen=True, tag="receive"):
    """Receive these tensors in their order and write them to the safetensors file `file`. `packed_bytes`: size of the
    layout packed."""

    file: str
    tensors: tuple[Announced, ...]
    layout: Layout
    packed_bytes: int = 0


class Take(msgspec.Struct, frozen=True, tag="take"):
    """Copy these tensors, of which there is one handle each, into the safetensors file `file`. Needs no group. Files
    are read in shared memory (/dev/shm) and below `directories`."""

    file: str
    tensors: tuple[Announced, ...]
    handles: tuple[Handle, ...]
    directories: tuple[str, ...] = ()


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Leave the group."""


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """The group is complete."""

    seconds: float


class Received(msgspec.Struct, frozen=True, tag="received"):
    """The file is complete, and not flushed to the disk. `bytes`: those of the tensors; `digest`: BLAKE2b-256 of the
    file."""

    bytes: int
    seconds: float
    digest: str


class ReceiveRefused(msgspec.Struct, frozen=True, tag="receive-refused"):
    """Nothing was joined or received."""

    reason: str
    hint: str


ToReceiver = Join | Receive | Take | Leave
FromReceiver = Joined | Received | ReceiveRefused

TO_RECEIVER: msgspec.json.Decoder[ToReceiver] = msgspec.json.Decoder(ToReceiver)
FROM_RECEIVER: msgspec.json.Decoder[FromReceiver] = msgspec.json.Decoder(FromReceiver)


def part_of(file: str, pid: int) -> str:
    """Name under which the process with this pid writes `file` until it is complete; whoever sees it die removes it."""
    return f"{file}.part-{pid}"
