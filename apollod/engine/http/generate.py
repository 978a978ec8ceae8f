"""POST /generate for environments of trainers: token ids in, sampled token ids and their log-probabilities out.

Two kinds of client post here, with bodies that have no field in common: Atropos with `prompt` (VLLMServer, atroposlib
0.4.0), SGLang's with `input_ids` or `text` (srt/managers/io_struct.py, 0.5). Either becomes a request to vLLM's own
POST /v1/completions, whose errors are passed on. Nothing is taken from generation_config.json: the log-probabilities
are those of the whole distribution at temperature 1, and an environment has to sample from that.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from apollod.engine.capture import ID_HEADER
from apollod.engine.http.request_body import Message
from apollod.engine.http.spans import Sampled, Sampling
from apollod.errors import RecordRefused
from apollod.wire.engine_terms import PLAIN, ROLLOUT_PRIORITY

COMPLETIONS = "/v1/completions"
DEFAULTS: Mapping[str, Any] = {
    "temperature": 1.0, "top_p": 1.0, **PLAIN, "return_token_ids": True, "return_tokens_as_token_ids": True,
}  # fmt: skip
SAMPLING = {
    name: name
    for name in (
        "n", "temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "ignore_eos", "repetition_penalty",
        "presence_penalty", "frequency_penalty", "skip_special_tokens", "spaces_between_special_tokens", "logit_bias",
    )
}  # fmt: skip
"""sampling parameters of the client: name of vLLM's"""
ATROPOS = {**SAMPLING, **{name: name for name in ("max_tokens", "min_tokens", "seed", "logprobs", "prompt_logprobs")}}
SGLANG = {**SAMPLING, "max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
SGLANG_MAX_TOKENS = 128
"""where a client of SGLang gives none"""


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float] | None] = []


class _Logprob(msgspec.Struct):
    logprob: float


class _Choice(msgspec.Struct):
    index: int
    text: str
    token_ids: list[int]
    finish_reason: str
    prompt_token_ids: list[int]
    stop_reason: int | str | None = None
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[str, _Logprob] | None] | None = None


class Completion(msgspec.Struct):
    """vLLM's answer; all else in it is ignored. Source: vllm/entrypoints/openai/completion/protocol.py, 0.26 to
    0.32."""

    id: str
    choices: list[_Choice]


class Asked(NamedTuple):
    """A request to vLLM, and how its answer is told, with the versions of the weights that gave it."""

    completion: dict[str, Any]
    told: Callable[[Completion, Sampling], Any]


def asked(body: bytes) -> Asked:
    """The request in a body of either kind. Raises RecordRefused."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordRefused(f"the body is not a JSON object ({error})", 'send {"input_ids": [...]}') from error
    if fields.pop("stream", False):
        raise RecordRefused("/generate does not stream", 'leave out "stream"')
    if "prompt" in fields:
        return _of_atropos(fields)
    if "input_ids" in fields or "text" in fields:
        return _of_sglang(fields)
    raise RecordRefused(
        "the body has neither prompt nor input_ids nor text", 'send {"prompt": {"prompt_token_ids": [...]}}'
    )


async def completed(request: Request, completion: dict[str, Any], by_priority: bool) -> tuple[int, bytes]:
    """vLLM's answer: status and body. Goes to its routes directly: the middlewares have seen the request already. The
    id that answers are captured by is left out, so this one is not."""
    if by_priority:
        completion = {**completion, "priority": ROLLOUT_PRIORITY}
    body: Message | None = {"type": "http.request", "body": msgspec.json.encode(completion), "more_body": False}
    status, parts = 500, list[bytes]()

    async def receive() -> Message:
        nonlocal body
        given, body = body, None
        return given or await request.receive()  # its end, if the client leaves

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    scope = dict(request.scope)
    scope["path"] = scope.get("root_path", "") + COMPLETIONS
    scope["raw_path"] = scope["path"].encode()
    scope["headers"] = [each for each in scope["headers"] if each[0] not in (ID_HEADER, b"content-length")]
    await request.app.router(scope, receive, send)
    return status, b"".join(parts)


def _sampling(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Parameters in vLLM's words; null is as good as none. A parameter that is not known might change the distribution:
    raises RecordRefused."""
    given = {name: value for name, value in fields.items() if value is not None}
    if unknown := sorted(given.keys() - names.keys()):
        raise RecordRefused(
            f"/generate does not know {', '.join(unknown)[:200]}", f"leave it out; known: {', '.join(names)}"
        )
    return {names[name]: value for name, value in given.items()}


# --- Atropos ----------------------------------------------------------------------------------------------------------


def _of_atropos(fields: dict[str, Any]) -> Asked:
    prompt, salt = fields.pop("prompt"), fields.pop("cache_salt", None)
    fields.pop("model", None)
    if isinstance(prompt, dict):
        prompt = prompt.get("prompt_token_ids", prompt.get("prompt"))
    return Asked({**DEFAULTS, **_sampling(fields, ATROPOS), "prompt": prompt, "cache_salt": salt}, _to_atropos)


def _to_atropos(completion: Completion, sampled: Sampling) -> dict[str, Any]:
    """Source: example_trainer/vllm_api_server.py, `_generate`. Each token has a dictionary of its own, the sampled
    token first."""
    choices = sorted(completion.choices, key=lambda one: one.index)
    told = {
        "text": [one.text for one in choices],
        "finish_reasons": [one.finish_reason for one in choices],
        "prompt_token_ids": choices[0].prompt_token_ids,
        "token_ids": [one.token_ids for one in choices],
        "weight_version": sampled.version,
    }
    if all(one.spans is not None for one in sampled.choices):
        told["weight_versions"] = [one.spans for one in sampled.choices]
    if choices[0].logprobs is not None:
        told["logprobs"] = [[[each] for each in _tops(one)] for one in choices]
    if choices[0].prompt_logprobs is not None:
        told["prompt_logprobs"] = [
            None if each is None else {token: one.logprob for token, one in each.items()}
            for each in choices[0].prompt_logprobs
        ]
    return told


def _tops(one: _Choice) -> list[dict[str, float]]:
    assert one.logprobs is not None
    both = zip(one.token_ids, one.logprobs.token_logprobs, one.logprobs.top_logprobs, strict=True)
    return [
        {str(token): value, **{name.removeprefix("token_id:"): each for name, each in (top or {}).items()}}
        for token, value, top in both
    ]


# --- SGLang -----------------------------------------------------------------------------------------------------------


def _of_sglang(fields: Mapping[str, Any]) -> Asked:
    sampling = fields.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise RecordRefused("sampling_params is no object", "send one for all prompts")
    for name, least in (("top_logprobs_num", 0), ("logprob_start_len", -1)):
        if (fields.get(name) or least) != least:
            raise RecordRefused(f"/generate has no {name}", "leave it out; POST /v1/completions has prompt_logprobs")
    prompt = fields["input_ids"] if fields.get("input_ids") is not None else fields.get("text")
    is_batch = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    completion = {
        **DEFAULTS, "max_tokens": SGLANG_MAX_TOKENS, **_sampling(sampling, SGLANG), "prompt": prompt,
        "cache_salt": fields.get("cache_salt"), "logprobs": 0 if fields.get("return_logprob") else None,
    }  # fmt: skip

    def told(answer: Completion, sampled: Sampling) -> Any:
        choices = sorted(answer.choices, key=lambda one: one.index)
        each = [_to_sglang(answer.id, *both) for both in zip(choices, sampled.choices, strict=True)]
        return each if is_batch or len(each) > 1 else each[0]

    return Asked(completion, told)


def _to_sglang(request: str, one: _Choice, sampled: Sampled) -> dict[str, Any]:
    """Source: srt/managers/tokenizer_manager.py, `_wait_one_response` and `add_logprob_to_meta_info`."""
    finish: dict[str, Any] = {"type": one.finish_reason}
    if one.finish_reason == "length":
        finish["length"] = len(one.token_ids)
    elif one.finish_reason == "stop":
        finish["matched"] = one.token_ids[-1] if one.stop_reason is None and one.token_ids else one.stop_reason
    meta = {
        "id": f"{request}-{one.index}", "finish_reason": finish, "weight_version": sampled.version,
        "prompt_tokens": len(one.prompt_token_ids), "completion_tokens": len(one.token_ids),
    }  # fmt: skip
    if sampled.spans is not None:
        meta["weight_versions"] = sampled.spans
    if one.logprobs is not None:
        both = zip(one.logprobs.token_logprobs, one.token_ids, strict=True)
        meta["output_token_logprobs"] = [[value, token, None] for value, token in both]
        meta["output_token_logprobs_length"] = len(one.token_ids)
    return {"text": one.text, "output_ids": one.token_ids, "meta_info": meta}
