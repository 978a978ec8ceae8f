"""Server classes of Atropos (atroposlib) against an engine: `python atropos_talk.py URL MODEL vllm|sglang` prints, as
JSON, the sequences that a ManagedServer made of a conversation's first answers and of one that goes on, a plain
completion, and, where the class can, the log-probabilities of the first sequence."""

import asyncio
import json
import sys
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.envs.server_handling.server_manager import ServerManager

FIRST = [{"role": "user", "content": "Say word one."}]
TOKENS = 12


async def talked(url: str, model: str, kind: str) -> dict[str, Any]:
    config = APIServerConfig(
        server_type=kind, base_url=f"{url}/v1", model_name="tiny", tokenizer_name=model, api_key="none", timeout=60,
        health_check=kind == "vllm",  # the other's asks the model every second
    )  # fmt: skip
    manager = ServerManager([config])
    sampling = {"max_tokens": TOKENS, "temperature": 1.0}
    async with manager.managed_server() as managed:
        await managed.chat_completion(messages=FIRST, n=3, **sampling)
        several = [node.model_dump() for node in managed.get_state()["nodes"]]
    async with manager.managed_server() as managed:
        said = (await managed.completion(prompt="word", **sampling)).choices[0].text
        await managed.completion(prompt=f"word{said} and", **sampling)
        turns = [node.model_dump() for node in managed.get_state()["nodes"]]
    (server,) = manager.servers
    plain = await server.completion(prompt="word", n=2, **sampling)
    told = {
        "several": several,
        "turns": turns,
        "plain": [one.text for one in plain.choices],
        "healthy": server.server_healthy,
    }
    if kind == "vllm":
        told["scored"] = await server.get_logprobs(input_ids=several[0]["tokens"])
    return told


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(talked(*sys.argv[1:]))))
