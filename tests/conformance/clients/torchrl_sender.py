"""A trainer that sends its weights by torchrl's `SGLangWeightSyncScheme`, for SGLang servers.

    torchrl_sender.py URL MODEL VERSIONS PLANTED ANSWER

VERSIONS times the weights of MODEL are moved and sent; the version PLANTED has a NaN, and another sender goes on after
it. ANSWER: for each version the fingerprint of what was sent, that of what is served afterwards, and the sender's
error.

torchrl is unmodified, but is made for GPUs alone. Four calls are answered here, in this process only, so that it runs
without one: choosing and awaiting a device, moving a tensor to it, and the name of the group's backend.
"""

import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
import torch
from torch.distributed.distributed_c10d import Backend
from torchrl.weight_update.llm import SGLangWeightSyncScheme, sglang_nccl
from transformers import AutoModelForCausalLM

from apollod.trainer.bind import live_fingerprint


def without_a_gpu() -> None:
    """Answer the four calls."""
    moved: Callable[..., torch.Tensor] = torch.Tensor.to

    def to(tensor: torch.Tensor, *where: Any, **how: Any) -> torch.Tensor:
        return tensor if where and str(where[0]).startswith("cuda") else moved(tensor, *where, **how)

    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda device=None: None
    torch.Tensor.to = to
    sglang_nccl.Backend = lambda name: Backend("gloo" if name == "nccl" else name)


def fingerprint(weights: dict[str, torch.Tensor]) -> str:
    """The fingerprint of weights, as apollod's status tells it."""
    found = ((name, live_fingerprint.tensor_fingerprint(one)) for name, one in weights.items())
    return live_fingerprint.format(live_fingerprint.model_fingerprint(found))


def move(model: torch.nn.Module, seed: int) -> None:
    """Add a little to every weight."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for one in model.state_dict().values():
            one.add_((0.01 * torch.randn(one.shape)).to(one.dtype))


def served(url: str) -> dict[str, Any]:
    """The weights that are served now."""
    return requests.get(f"{url}/apollod/status", timeout=60).json()["weights"]


def sent(url: str, model: torch.nn.Module, sender: Any, planted: bool) -> dict[str, Any]:
    """Send one version."""
    held = {name: one.clone() for name, one in model.state_dict().items()}
    if planted:
        list(model.state_dict().values())[-1].view(-1)[0] = torch.nan
    error = ""
    try:
        sender.update_weights()
    except (RuntimeError, requests.RequestException) as raised:
        error = str(raised)
    model.load_state_dict(held)
    return {"sent": fingerprint(held), "served": served(url), "error": error}


def joined(url: str, model: torch.nn.Module) -> Any:
    """A sender in a group with the server."""
    scheme = SGLangWeightSyncScheme(server_url=url, master_address="127.0.0.1", num_gpus=1, strategy="state_dict")
    sender = scheme.create_sender()
    sender.register_model(model)
    sender.init_all_workers_group(sglang_nccl.get_model_metadata(model))
    return sender


def main() -> None:
    url, directory, versions, planted, answer = sys.argv[1:]
    without_a_gpu()
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    sender, told = joined(url, model), []
    for version in range(1, int(versions) + 1):
        move(model, version)
        told.append(sent(url, model, sender, version == int(planted)))
        if told[-1]["error"]:  # its group was left
            sender.shutdown()
            sender = joined(url, model)
    flushed = sender.flush_cache()
    sender.shutdown()
    version = importlib.metadata.version("torchrl")
    Path(answer).write_text(json.dumps({"version": version, "flushed": flushed, "versions": told}))


if __name__ == "__main__":
    main()
