"""Receives the broadcasts of one announcement into a file, through a buffer of the largest one."""

import time
from pathlib import Path

import torch

from apollod.errors import ReceiveFailed
from apollod.finite_values import is_finite
from apollod.receiver.gloo_group import GlooGroup
from apollod.receiver.payload import Tensor, total_bytes
from apollod.receiver.weights_file import WeightsFile, new_weights_file
from apollod.wire.receiver_messages import Received

UNWRITTEN = 0xFF
"""each byte of the buffer before a broadcast: bytes that no sender overwrites are NaN in all three dtypes"""


def receive(group: GlooGroup, broadcasts: list[list[Tensor]], file: Path) -> Received:
    """Write all tensors of the broadcasts to `file`. Raises ReceiveFailed, and leaves no file then."""
    began = time.monotonic()
    deadline = began + group.timeout_s
    tensors = [one for together in broadcasts for one in together]
    buffer = _buffer(max(total_bytes(together) for together in broadcasts))
    with new_weights_file(file, tensors) as weights:
        for together in broadcasts:
            weights.settle()  # of the buffer
            received = buffer[: total_bytes(together)].fill_(UNWRITTEN)
            group.receive(received, deadline)
            _write(weights, together, received.numpy().data)
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
