"""A trainer that writes its weights by torchrl's `VLLMDoubleBufferSyncScheme`, into files over those of before.

    torchrl_double_buffer.py URL MODEL DIRECTORY VERSIONS ANSWER

VERSIONS times the weights of MODEL are moved and written, and the server is told. ANSWER: for each version the
fingerprint of what was written, and that of what is served afterwards.
"""

import json
import sys
from pathlib import Path

import requests
import torch
from torchrl.weight_update.llm import VLLMDoubleBufferSyncScheme
from transformers import AutoModelForCausalLM

from examples.torchrl_sglang import move
from tests.conformance.clients.torchrl_sender import fingerprint, served


def main() -> None:
    url, model_dir, directory, versions, answer = sys.argv[1:]
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16)
    sender = VLLMDoubleBufferSyncScheme(remote_addr=directory, strategy="state_dict").create_sender()
    sender.register_model(model)
    told = []
    for version in range(1, int(versions) + 1):
        move(model, version)
        sender.update_weights()
        body = {"model_path": directory, "load_format": "memmap", "weight_version": f"their-{version}"}
        answered = requests.post(f"{url}/update_weights_from_disk", json=body, timeout=120)
        answered.raise_for_status()
        told.append({"sent": fingerprint(dict(model.state_dict())), "served": served(url)})
    Path(answer).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
