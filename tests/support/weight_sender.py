"""A foreign trainer as a receiver of weights sees it: `python -m support.weight_sender PLAN` hosts the store of a group
and broadcasts as rank 0. It never sees what is announced, so a plan may send something else.

The process of the tests uses the plan and the bytes, without torch.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from math import prod
from typing import Any, Literal

import msgspec

TIMEOUT = timedelta(seconds=60)
ITEM = {"float32": 4, "bfloat16": 2, "float16": 2}
SMALL = bytes(byte & 0xBF for byte in range(256))
"""of the last byte of an element: without the highest bit of its exponent it is finite"""
BAD = {
    ("float32", "nan"): "0000c07f", ("float32", "inf"): "000080ff", ("bfloat16", "nan"): "c07f",
    ("bfloat16", "inf"): "807f", ("float16", "nan"): "007e", ("float16", "inf"): "007c",
}  # fmt: skip
"""bytes of a bad value, as hexadecimal digits"""


class Sent(msgspec.Struct, frozen=True):
    """A tensor. `bad`: what its middle element is."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bad: Literal["", "nan", "inf"] = ""

    def data(self) -> bytes:
        """Finite elements that follow from the name, and the bad one."""
        width, count = ITEM[self.dtype], prod(self.shape)
        found = bytearray(random.Random(self.name).randbytes(width * count))
        found[width - 1 :: width] = found[width - 1 :: width].translate(SMALL)
        if self.bad:
            at = count // 2 * width
            found[at : at + width] = bytes.fromhex(BAD[self.dtype, self.bad])
        return bytes(found)


class Plan(msgspec.Struct, frozen=True):
    """`stock`: a group as SGLang and torchrl make it, with the global state of torch.distributed; else with one prefix.
    `parts`: tensors of each broadcast; `as_bytes`: they are joined to a buffer of bytes, even a single one. `pause_s`:
    between broadcasts; `dies`: by SIGKILL after them."""

    port: int
    group: str
    parts: tuple[tuple[Sent, ...], ...]
    pause_s: float = 0.0
    stock: bool = False
    as_bytes: bool = False
    dies: bool = False


def group_of(plan: Plan) -> Any:
    """A function that broadcasts a tensor to the group, once it is complete."""
    import torch.distributed as dist

    if not plan.stock:
        store = dist.TCPStore("127.0.0.1", plan.port, 2, True, TIMEOUT)
        group = dist.ProcessGroupGloo(dist.PrefixStore(plan.group, store), 0, 2, TIMEOUT)
        options = dist.BroadcastOptions()
        options.rootRank = 0
        return lambda tensor: group.broadcast([tensor], options).wait()
    from torch.distributed import distributed_c10d as c10d

    # as sglang/srt/utils/common.py, init_custom_process_group
    store, rank, world = next(c10d.rendezvous(f"tcp://127.0.0.1:{plan.port}", 0, 2, timeout=TIMEOUT))
    made, _ = c10d._new_process_group_helper(
        world, rank, [], c10d.Backend("gloo"), dist.PrefixStore(plan.group, store), group_name=plan.group,
        timeout=TIMEOUT,
    )  # fmt: skip
    c10d._world.pg_group_ranks[made] = {0: 0, 1: 1}
    return lambda tensor: dist.broadcast(tensor, src=0, group=made)


def tensor_of(part: Sequence[Sent], as_bytes: bool) -> Any:
    import torch

    data = bytearray(b"".join(one.data() for one in part))
    dtype = torch.uint8 if as_bytes else getattr(torch, part[0].dtype)
    shape = [len(data)] if as_bytes else part[0].shape
    return (torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)).reshape(shape)


def main() -> None:
    from apollod.adapters.system.own_process import die_with_supervisor

    die_with_supervisor()
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    tensors = [tensor_of(part, plan.as_bytes) for part in plan.parts]
    broadcast = group_of(plan)
    with suppress(RuntimeError):  # the receiver has left
        for tensor in tensors:
            broadcast(tensor)
            time.sleep(plan.pause_s)
    if plan.dies:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(300)  # with the connection open, until the test ends this process


if __name__ == "__main__":
    main()
