"""Receives the broadcasts of one announcement into a file, through a buffer of the largest one."""

import time
from pathlib import Path
from typing import Protocol

import torch

from apollod.errors import ReceiveFailed
from apollod.receiver.finite_values import is_finite
from apollod.receiver.payload import UNWRITTEN, Tensor, total_bytes
from apollod.receiver.weights_file import WeightsFile, new_weights_file
from apollod.wire.receiver_messages import Received


class Group(Protocol):
    """A group that has been joined; `gloo_group` and `nccl_group` have one each."""

    timeout_s: float

    def receive(self, into: torch.Tensor, deadline: float) -> None:
        """Fill `into`, flat and in host memory, by the next broadcast until `deadline` (`time.monotonic`). Raises
        ReceiveFailed."""

    def rest(self) -> None:
        """Give back what only a receipt needs."""

    def leave(self) -> None:
        """Leave the group."""


def receive(group: Group, broadcasts: list[list[Tensor]], file: Path, as_bytes: bool) -> Received:
    """Write all tensors of the broadcasts to `file`. `as_bytes`: the sender broadcasts buffers of bytes, else each
    tensor in its dtype. Raises ReceiveFailed, and leaves no file then."""
    began = time.monotonic()
    deadline = began + group.timeout_s
    tensors = [one for together in broadcasts for one in together]
    buffer = _buffer(max(total_bytes(together) for together in broadcasts))
    try:
        with new_weights_file(file, tensors) as weights:
            for together in broadcasts:
                weights.settle()  # of the buffer
                received = buffer[: total_bytes(together)].fill_(UNWRITTEN)
                dtype = torch.uint8 if as_bytes else getattr(torch, together[0].dtype)
                group.receive(received.view(dtype), deadline)
                _write(weights, together, received.numpy().data)
    finally:
        group.rest()
    return Received(total_bytes(tensors), time.monotonic() - began, weights.digest)


def _write(weights: WeightsFile, together: list[Tensor], received: memoryview) -> None:
    """Write the tensors of one broadcast, each after it was looked at."""
    start = 0
    for one in together:
        data = received[start : start + one.bytes]
        if not is_finite(data, one.dtype):
            raise ReceiveFailed(
                f"{one.name} holds NaN or infinity",
                "look at the trainer's loss and gradients; or the sender sent fewer bytes than it announced, which are "
                f"{one.bytes} for {one.dtype} of shape {list(one.shape)}",
            )
        weights.write(data)
        start += one.bytes


def _buffer(count: int) -> torch.Tensor:
    try:
        return torch.empty(count, dtype=torch.uint8)
    except RuntimeError as error:  # torch's way to say that there is not enough memory
        raise ReceiveFailed(
            f"there is no memory for a broadcast of {count} bytes", "send fewer tensors in one broadcast"
        ) from error
