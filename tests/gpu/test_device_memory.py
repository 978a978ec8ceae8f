"""The memory that a configuration is fitted to is the memory that CUDA gives."""

import torch

from apollod.adapters.system.hardware import device_bytes
from apollod.supervisor.memory_budget import this_device


def test_what_the_driver_says_is_what_cuda_has() -> None:
    found = device_bytes()
    assert found is not None and (device := this_device()) is not None and device.gpu
    total = torch.cuda.get_device_properties(0).total_memory
    assert device.bytes == found and total <= found <= 1.03 * total
