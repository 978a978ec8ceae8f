"""Sends a model that is sharded over several processes (FSDP2): rank 0 talks to apollod, and gathers tensor by tensor.

    torchrun --nproc-per-node 2 examples/fsdp.py http://127.0.0.1:8000 MODEL

MODEL is the directory that apollod serves; it is trained on one sentence here. Needs `[control] enabled = true` in
apollod's configuration. The whole model is never in one process: rank 0 holds `chunk_bytes` of gathered tensors at a
time, the others one tensor. All ranks take part in gathering, so where rank 0 sends, the others call `take_part`, with
the same tensors in the same order. Runs on CPUs by gloo. (A large model is sharded before its weights are loaded, as
torch's documentation of `fully_shard` shows.)
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW

from apollod.foreign_wheels import guard_lazily
from apollod.sender import Sender, take_part

guard_lazily()  # transformers imports torchvision, which may be of another torch, as in apollod's own environment

from transformers import AutoModelForCausalLM, AutoTokenizer

TEXT = "The owl counts the boats before it sleeps."
STEPS = 3


def sharded(directory: str) -> torch.nn.Module:
    """The model, each layer of it sharded over all ranks."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def main() -> None:
    """Train, and send after each step."""
    url, directory = sys.argv[1:3]
    dist.init_process_group("gloo")
    model, first = sharded(directory), dist.get_rank() == 0
    ids = AutoTokenizer.from_pretrained(directory)(TEXT, return_tensors="pt")["input_ids"]
    optimizer = AdamW(model.parameters(), lr=1e-4)
    sender = Sender(url) if first else None
    for step in range(STEPS):
        loss = model(input_ids=ids, labels=ids).loss  # a trainer of your own has other data on each rank
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if sender is not None:
            sender.send(model.named_parameters(), label=f"fsdp-{step}")
            print(f"step {step}: loss {loss.item():.3f}, served", flush=True)
        else:
            take_part(model.named_parameters())
    if sender is not None:
        sender.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
