"""A program that asks a server what TRL's trainers ask, by its `VLLMClient`, unmodified: `trl_client.py URL ANSWER`"""

import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trl.generation.vllm_client import VLLMClient

PROMPTS = [[10, 11, 12, 13], [20, 21]]
WIDTH = 5
"""log-probabilities at each position"""


def error_of(call: Callable[[], Any]) -> str:
    """The class of the exception that a call raises, and its text."""
    try:
        call()
    except Exception as raised:  # noqa: BLE001 - whatever it is, it is told
        return f"{type(raised).__name__}: {raised}"
    return ""


def main() -> None:
    url, answer = sys.argv[1:]
    client = VLLMClient(base_url=url, connection_timeout=60.0)
    generated = client.generate(PROMPTS, n=2, max_tokens=6, temperature=1.0, generation_kwargs={"seed": 2**62 + 1})
    greedy = client.generate(PROMPTS, max_tokens=6, temperature=1e-6, generation_kwargs={"ignore_eos": True})
    whole = [prompt + ids for prompt, ids in zip(PROMPTS, greedy["completion_ids"], strict=True)]
    scored = client.get_sequence_logprobs(whole, [len(prompt) for prompt in PROMPTS], top_logprobs=WIDTH)
    chat = client.chat([[{"role": "user", "content": "hello"}]], max_tokens=4)
    client.reset_prefix_cache()
    told = {
        "version": importlib.metadata.version("trl"),
        "model": client.model,
        "world_size": client.get_world_size(),
        "transfer": client.get_server_info()["weight_transfer_config"],
        "generated": generated,
        "greedy": greedy,
        "scored": scored,
        "chat": chat,
        "joined": error_of(lambda: client.init_communicator(device="cpu")),
        "finished": error_of(lambda: client._finish_weight_update()),
    }
    Path(answer).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
