"""A trainer that sends its weights by torchrl's `SGLangWeightSyncScheme`, as `examples/torchrl_sglang.py` does.

    torchrl_sender.py URL MODEL VERSIONS PLANTED ANSWER

VERSIONS times the weights of MODEL are moved and sent; the version PLANTED has a NaN, and another sender goes on after
it. ANSWER: for each version the fingerprint of what was sent, that of what is served afterwards, and the sender's
error.
"""

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import requests
import torch
from transformers import AutoModelForCausalLM

from apollod.trainer.bind import live_fingerprint
from examples.torchrl_sglang import joined, move, without_a_gpu


def fingerprint(weights: dict[str, torch.Tensor]) -> str:
    """The fingerprint of weights, as apollod's status tells it."""
    found = ((name, live_fingerprint.tensor_fingerprint(one)) for name, one in weights.items())
    return live_fingerprint.format(live_fingerprint.model_fingerprint(found))


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
