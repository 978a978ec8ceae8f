"""Queries a served model over HTTP: answers to questions, and log-probabilities of given answers."""

import json
import math
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from apollod.errors import ApolloError
from apollod.testing.daemon import Daemon

ANSWER_TOKENS = 48


def data(name: str) -> list[str]:
    """Lines of a shipped file."""
    return (resources.files("apollod") / "data" / name).read_text(encoding="utf-8").splitlines()


def post(daemon: Daemon, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a POST of JSON. Raises ApolloError for any status but 200."""
    try:
        status, answer = daemon.post(path, body)
    except (OSError, ValueError) as error:
        raise ApolloError(f"POST {path} failed: {error}", "see the engine's log") from error
    if status != 200:
        raise ApolloError(f"POST {path} was answered with {status}: {answer}", "see the engine's log")
    return dict(answer)


def chat(daemon: Daemon, model: str, question: str) -> str:
    """The greedy answer to a question, at most `ANSWER_TOKENS` long."""
    messages = [{"role": "user", "content": question}]
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": ANSWER_TOKENS}
    return str(post(daemon, "/v1/chat/completions", body)["choices"][0]["message"]["content"]).strip()


def mean_logprob(daemon: Daemon, model: str, directory: Path, records: Iterable[Mapping[str, Any]]) -> float:
    """Mean log-probability per token of the last turns of conversations (natural logarithm).

    Computed by the engine with `prompt_logprobs`, which never reads the prefix cache. Counts the tokens behind the
    prompt up to the end of the turn, which are the learned ones.
    """
    end = json.loads((directory / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    total = count = 0.0
    for record in records:
        messages = record["messages"]
        prompt = _tokens(daemon, model, messages[:-1], True)
        full = _tokens(daemon, model, messages, False)
        full = full[: len(full) - full[::-1].index(end)]
        body = {"model": model, "prompt": full, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
        scored = post(daemon, "/v1/completions", body)["choices"][0]["prompt_logprobs"]
        for token, choices in zip(full[len(prompt) :], scored[len(prompt) :], strict=True):
            value = choices[str(token)]["logprob"]
            total += value if math.isfinite(value) else -100.0
            count += 1
    return total / count


def _tokens(daemon: Daemon, model: str, messages: list[Any], prompt: bool) -> list[int]:
    body = {"model": model, "messages": messages, "add_generation_prompt": prompt}
    return list(post(daemon, "/tokenize", body)["tokens"])
