"""Builds the bodies of requests to an OpenAI-compatible endpoint. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from apollod.core.settings import Thinking

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]
"""Text, token ids, or the messages of a chat (which the endpoint renders by the model's template)."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of an answer. None leaves the choice to the endpoint."""

    n: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    """JSON schema that the text must follow"""
    logprobs: bool = False
    """return the log-probability of every sampled token"""
    top: int = 0
    """return this many of the likeliest tokens at each position of a chat's answer, too"""
    token_ids: bool = False
    """return the ids of prompt and answer (vLLM's `return_token_ids`; other endpoints may refuse it)"""
    priority: int | None = None
    """lower is served earlier; vLLM refuses any but 0 unless it is started with `--scheduling-policy priority`"""
    thinking: Thinking | None = None
    """for our own engine: whether it thinks before it answers a chat; None for another endpoint: not sent"""
    extra: Mapping[str, Any] = {}
    """further fields of the body, such as `tools`"""


def completion_request(model: str, prompt: Prompt, sampling: Sampling) -> tuple[str, dict[str, Any]]:
    """Path below the base URL, and body."""
    s, chat = sampling, is_chat(prompt)
    wanted: dict[str, Any] = {
        "n": s.n, "max_tokens": s.max_tokens, "temperature": s.temperature, "top_p": s.top_p, "seed": s.seed,
        "stop": list(s.stop) or None, "priority": s.priority, "return_token_ids": s.token_ids or None,
        # A completion returns the sampled token's log-probability even if none of the most likely are requested.
        "logprobs": (True if chat else 0) if s.logprobs else None,
        "top_logprobs": s.top or None,
    }  # fmt: skip
    if s.schema is not None:
        schema = {"name": "answer", "schema": s.schema, "strict": True}
        wanted["response_format"] = {"type": "json_schema", "json_schema": schema}
    if chat:
        wanted |= template_fields(s.thinking)
    given = {name: value for name, value in wanted.items() if value is not None}
    path, field = ("/chat/completions", "messages") if chat else ("/completions", "prompt")
    return path, {"model": model, field: prompt if isinstance(prompt, str) else list(prompt), **given, **s.extra}


def scoring_request(model: str, ids: Sequence[int], top: int, priority: int | None) -> tuple[str, dict[str, Any]]:
    """Path and body of a request for the log-probabilities of given tokens.

    They come from one prefill that reads no cached prefix: with `prompt_logprobs` vLLM sets skip_reading_prefix_cache
    itself (sampling_params.py, 0.26 to 0.32).
    """
    body = {"model": model, "prompt": list(ids), "max_tokens": 1, "prompt_logprobs": top, "temperature": 1.0}
    return "/completions", body if priority is None else {**body, "priority": priority}


def tokenising_request(
    model: str, prompt: str | Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], answer: bool,
    thinking: Thinking | None,
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Path and body of a request for the tokens of a text, or of a conversation; `answer`: with the generation
    prompt."""
    body = {"model": model, "return_token_strs": True}
    if isinstance(prompt, str):
        return "/tokenize", {**body, "prompt": prompt, "add_special_tokens": False}
    body |= {"messages": list(prompt), "add_generation_prompt": answer, **template_fields(thinking)}
    return "/tokenize", {**body, "tools": list(tools)} if tools else body


def template_fields(thinking: Thinking | None) -> dict[str, Any]:
    """Fields of a body that switch the model's thinking in a chat template; a template without such a switch ignores
    them."""
    told = thinking is not None and thinking != "template"
    return {"chat_template_kwargs": {"enable_thinking": thinking == "on"}} if told else {}


def detokenising_request(model: str, ids: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """Path and body of a request for the text of these tokens."""
    return "/detokenize", {"model": model, "tokens": list(ids)}


def is_chat(prompt: Prompt) -> bool:
    """True for messages, false for text or ids."""
    return not isinstance(prompt, str) and not (prompt and isinstance(prompt[0], int))
