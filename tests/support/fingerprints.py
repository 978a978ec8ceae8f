"""The fingerprint of many tensors on a device, against that of each on CPU. Run on CPU, in Triton's interpreter and on
a GPU."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from support.device_waits import DeviceWaits
from torch import Tensor

from apollod.trainer.bind import live_fingerprint
from apollod.trainer.bind.live_fingerprint import DeviceFingerprint, Share


def file_fingerprint(path: Path) -> int:
    """F of one safetensors file, by the sums of the trainer. The shards of a checkpoint add up modulo 2^64."""
    return live_fingerprint.model_fingerprint(
        (name, live_fingerprint.tensor_fingerprint(tensor)) for name, tensor in load_file(path).items()
    )


def tensors(device: str) -> dict[str, tuple[Tensor, torch.dtype]]:
    """Every kind that there is: as stored, wider than stored, an odd count, an odd address, not contiguous, empty."""
    generator = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).mul(9).to(device)

    odd = randn(1001).bfloat16()
    kinds = {
        "plain": (randn(70, 64).bfloat16(), torch.bfloat16), "float": (randn(33), torch.float32),
        "cast": (randn(48).bfloat16().float(), torch.bfloat16), "odd": (odd, torch.bfloat16),
        "shifted": (odd[1:], torch.bfloat16), "turned": (randn(30, 20).t(), torch.float32),
        "bytes": (torch.arange(7, dtype=torch.uint8, device=device), torch.uint8),
        "empty": (randn(0, 3), torch.float32), "number": (randn(1)[0], torch.float32),
    }  # fmt: skip
    return kinds | {f"layer {i}": (randn(4, 16).bfloat16(), torch.bfloat16) for i in range(60)}


def check_one_number_is_read(device: str, triton: bool) -> None:
    """And, by Triton, with a number of launches that does not depend on how many tensors there are."""
    held = tensors(device)
    shares = [Share(tensor, dtype, live_fingerprint.factor(name)) for name, (tensor, dtype) in held.items()]
    fingerprint = DeviceFingerprint(shares, triton)

    def expected() -> int:
        return live_fingerprint.model_fingerprint(
            (name, live_fingerprint.tensor_fingerprint(t.cpu(), dtype)) for name, (t, dtype) in held.items()
        )

    with DeviceWaits() as seen:
        answer = fingerprint.queue()
    assert not seen.waits
    if triton:
        few = DeviceFingerprint(shares[:12], triton)
        with DeviceWaits() as fewer:
            few.queue()
        assert seen.launches == fewer.launches < len(held)
    assert answer() == expected()
    with DeviceWaits() as seen:
        answer()
    assert seen.waits in (["_local_scalar_dense"], [])
    for name in ("cast", "plain", "shifted"):  # what is copied or added up is what is there now
        held[name][0].view(-1)[5] += 1.0
        assert fingerprint.queue()() == expected(), name


def check_blocks(device: str) -> None:
    """Torch's sums over several blocks, of a dtype as stored and of a wider one."""
    wide = torch.randn(5003, generator=torch.Generator().manual_seed(1)).bfloat16().float().to(device)
    for tensor, dtype in ((wide.bfloat16(), torch.bfloat16), (wide, torch.bfloat16), (wide, torch.float32)):
        before, live_fingerprint.BLOCK_WORDS = live_fingerprint.BLOCK_WORDS, 1000
        try:
            found = DeviceFingerprint([Share(tensor, dtype, live_fingerprint._K)], triton=False).queue()()
        finally:
            live_fingerprint.BLOCK_WORDS = before
        assert found == live_fingerprint.tensor_fingerprint(tensor.cpu(), dtype)
