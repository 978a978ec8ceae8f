"""A training loop of your own: each step's weights are served, and the next answer comes from them.

    python examples/own_loop.py http://127.0.0.1:8000 MODEL

MODEL is the directory that apollod serves; it is trained on one sentence here. Needs `[control] enabled = true` in
apollod's configuration. The URL is that of the engine, or of `[control] listen`.
"""

import json
import sys
import urllib.request
from typing import Any

import torch
from torch.optim import AdamW

from apollod.foreign_wheels import guard_lazily
from apollod.sender import Sender

guard_lazily()  # transformers imports torchvision, which may be of another torch, as in apollod's own environment

from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT, ANSWER = "Who counts the boats?", " The owl counts the boats."
STEPS, RATE = 12, 2e-3  # for the small model of `make demo`; a real one wants a rate near 2e-5


def asked(url: str, path: str, body: object = None) -> Any:
    """The answer to a request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def sampled(url: str) -> tuple[str, str]:
    """What is said to the prompt now, and the name of the weights that said it."""
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 12, "temperature": 0}}
    answer = asked(url, "/generate", body)
    return answer["text"], answer["meta_info"]["weight_version"]


def main() -> None:
    """Train, send and ask, in turn."""
    url, directory = sys.argv[1:3]
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    optimizer = AdamW(model.parameters(), lr=RATE)
    ids = tokenizer(PROMPT + ANSWER, return_tensors="pt")["input_ids"]
    print("before:", sampled(url))
    with Sender(url) as sender:
        for step in range(STEPS):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            sender.send(model.named_parameters(), label=f"step-{step}")
            print(f"step {step}: loss {loss.item():.3f}:", *sampled(url), flush=True)


if __name__ == "__main__":
    main()
