"""torchrl's `SGLangWeightSyncScheme`, unmodified, writes the weights that apollod serves.

    pip install torchrl==0.14.1 tensordict
    python examples/torchrl_sglang.py http://127.0.0.1:8000 MODEL

MODEL is the directory that apollod serves; its weights are moved a little and sent, three times. Needs `[control]
enabled = true` in apollod's configuration.

torchrl is made for GPUs and NCCL alone, and apollod receives by gloo. So four calls are answered here, in this process
only (`without_a_gpu`): choosing and awaiting a device, moving a tensor to it, and the name of the group's backend. On a
machine with a GPU the last one is enough.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.distributed_c10d import Backend

from apollod.foreign_wheels import guard_lazily

guard_lazily()  # torchrl imports torchvision, which may be of another torch, as in apollod's own environment

from torchrl.weight_update.llm import SGLangWeightSyncScheme, sglang_nccl
from transformers import AutoModelForCausalLM

VERSIONS = 3


def without_a_gpu() -> None:
    """Answer the four calls."""
    moved: Callable[..., torch.Tensor] = torch.Tensor.to

    def to(tensor: torch.Tensor, *where: Any, **how: Any) -> torch.Tensor:
        return tensor if where and str(where[0]).startswith("cuda") else moved(tensor, *where, **how)

    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda device=None: None
    torch.Tensor.to = to  # type: ignore[method-assign, assignment]
    sglang_nccl.Backend = lambda name: Backend("gloo" if name == "nccl" else name)


def joined(url: str, model: torch.nn.Module) -> Any:
    """A sender in a group with the server."""
    scheme = SGLangWeightSyncScheme(server_url=url, master_address="127.0.0.1", num_gpus=1, strategy="state_dict")
    sender = scheme.create_sender()
    sender.register_model(model)
    sender.init_all_workers_group(sglang_nccl.get_model_metadata(model))
    return sender


def move(model: torch.nn.Module, seed: int) -> None:
    """Add a little to every weight: in place of training."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for one in model.state_dict().values():
            one.add_((0.01 * torch.randn(one.shape)).to(one.dtype))


def main() -> None:
    """Send the versions, each within a pause of generation."""
    url, directory = sys.argv[1:]
    without_a_gpu()
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    sender = joined(url, model)
    for version in range(1, VERSIONS + 1):
        move(model, version)
        sender.update_weights()
        print(f"version {version} is served")
    sender.flush_cache()
    sender.shutdown()


if __name__ == "__main__":
    main()
