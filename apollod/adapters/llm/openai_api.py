"""Requests to an OpenAI-compatible endpoint, and its answers. Pure: strict about the fields in use, ignores all others.

An answer that lacks requested fields is LlmNonsense: an incomplete answer could end up in training.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from apollod.core.settings import Thinking
from apollod.errors import LlmNonsense
from apollod.wire.thoughts import Said, opens_thought, split

T = TypeVar("T")

BLANK = "\u0120\u010a\u010d\u0109\u2581 \t\r\n"
"""white space, also as byte-level and sentencepiece vocabularies write it"""
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


# --- answers ----------------------------------------------------------------------------------------------------------


class Versions(NamedTuple):
    """Versions of the weights that produced an answer: all from `first` to `last`, mostly one."""

    first: int
    last: int


class Choice(msgspec.Struct, frozen=True):
    """One answer."""

    text: str
    """without the reasoning before it; empty if the model did not get that far"""
    finish_reason: str
    """`stop`, `length`, ...; empty where none is given"""
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    """natural logarithms, one per token of the answer, the end-of-turn token included where it was sampled"""
    pieces: tuple[bytes, ...] = ()
    """text of each of these tokens in UTF-8; empty if the endpoint does not give it"""
    likeliest: tuple[tuple[tuple[str, float], ...], ...] = ()
    """at each position the likeliest tokens (two ids may have one text) with their log-probabilities, if requested"""
    reasoning: str = ""
    """reasoning before the text: separated by the endpoint's reasoning parser, or found between tags in the text"""
    unfinished: bool = False
    """it ends within its reasoning"""

    @property
    def cut(self) -> bool:
        """True if the answer is incomplete, or has not begun."""
        return self.finish_reason == "length" or self.unfinished


class Completion(msgspec.Struct, frozen=True):
    """`n` answers to one prompt."""

    choices: tuple[Choice, ...]
    prompt_ids: tuple[int, ...] | None
    prompt_tokens: int
    completion_tokens: int
    """over all choices"""
    versions: Versions | None
    """None if the endpoint is not our engine"""
    id: str
    model: str


class Scores(msgspec.Struct, frozen=True):
    """Log-probabilities of given ids at temperature 1, whatever the sampler's settings are."""

    logprobs: tuple[float, ...]
    """of ids 1.. given the ids before; the first has none"""
    top: tuple[dict[int, float], ...]
    """at the same positions: of the token itself and, if requested, of the most likely ones"""
    versions: Versions | None


class Tokenised(msgspec.Struct, frozen=True):
    """A text as token ids, and each token as the vocabulary writes it. `max_model_len`: the endpoint's limit."""

    tokens: tuple[int, ...]
    token_strs: tuple[str, ...]
    max_model_len: int

    @property
    def opens_thought(self) -> bool:
        """True if it is a prompt that ends within a thought."""
        return opens_thought("".join(self.token_strs).rstrip(BLANK))


class _Detokenised(msgspec.Struct):
    prompt: str


class _Logprob(msgspec.Struct):
    logprob: float


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Likely(msgspec.Struct):
    token: str
    logprob: float


class _ChatLogprob(_Logprob):
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None
    top_logprobs: list[_Likely] = []


class _ChatLogprobs(msgspec.Struct):
    content: list[_ChatLogprob] | None = None


class _TextLogprobs(msgspec.Struct):
    token_logprobs: list[float | None]


class _ChatChoice(msgspec.Struct):
    message: _Message
    index: int = 0
    finish_reason: str | None = None
    logprobs: _ChatLogprobs | None = None
    token_ids: list[int] | None = None


class _TextChoice(msgspec.Struct):
    text: str
    index: int = 0
    finish_reason: str | None = None
    logprobs: _TextLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Chat(msgspec.Struct):
    choices: list[_ChatChoice]
    id: str = ""
    model: str = ""
    usage: _Usage | None = None
    prompt_token_ids: list[int] | None = None


class _Text(msgspec.Struct):
    choices: list[_TextChoice]
    id: str = ""
    model: str = ""
    usage: _Usage | None = None


class _ScoredChoice(msgspec.Struct):
    prompt_logprobs: list[dict[int, _Logprob] | None]


class _Scored(msgspec.Struct):
    choices: list[_ScoredChoice]


def read_completion(body: bytes, version: str, chat: bool, asked: Sampling, opened: bool = False) -> Completion:
    """Parse an answer to `completion_request`; `version`: value of the version header; `opened`: its prompt ends within
    a thought. Raises LlmNonsense."""
    answer: _Chat | _Text = _decoded(body, _Chat) if chat else _decoded(body, _Text)
    given: Sequence[_ChatChoice | _TextChoice] = answer.choices
    choices = tuple(_choice(each, asked, opened) for each in sorted(given, key=lambda each: each.index))
    if len(choices) != asked.n:
        raise LlmNonsense(f"{asked.n} answers were asked for and {len(choices)} came")
    ids = answer.prompt_token_ids if isinstance(answer, _Chat) else answer.choices[0].prompt_token_ids
    if asked.token_ids and ids is None:
        raise LlmNonsense("the ids of the prompt were asked for and did not come")
    usage = answer.usage or _Usage()
    return Completion(
        choices,
        None if ids is None else tuple(ids),
        usage.prompt_tokens,
        usage.completion_tokens or 0,
        _versions(version),
        answer.id,
        answer.model,
    )


def read_scores(body: bytes, version: str, ids: Sequence[int]) -> Scores:
    """Parse an answer to `scoring_request`. Raises LlmNonsense."""
    choices = _decoded(body, _Scored).choices
    given = choices[0].prompt_logprobs[1:] if choices else []
    if len(given) != max(0, len(ids) - 1):
        raise LlmNonsense(f"log-probabilities of {len(ids) - 1} tokens were asked for and {len(given)} came")
    top = tuple({token: _finite(each.logprob) for token, each in (place or {}).items()} for place in given)
    try:
        return Scores(tuple(place[token] for token, place in zip(ids[1:], top, strict=True)), top, _versions(version))
    except KeyError as error:
        raise LlmNonsense(f"the log-probability of token {error} is not among those that came") from error


def read_tokenised(body: bytes) -> Tokenised:
    """Parse an answer to `tokenising_request`. Raises LlmNonsense."""
    found = _decoded(body, Tokenised)
    if len(found.tokens) != len(found.token_strs):
        raise LlmNonsense(f"{len(found.tokens)} tokens came with the texts of {len(found.token_strs)}")
    return found


def read_text(body: bytes) -> str:
    """Parse an answer to `detokenising_request`. Raises LlmNonsense."""
    return _decoded(body, _Detokenised).prompt


def _choice(choice: _ChatChoice | _TextChoice, asked: Sampling, opened: bool) -> Choice:
    found: list[float | None] | None = None
    pieces: tuple[bytes, ...] = ()
    likeliest: tuple[tuple[tuple[str, float], ...], ...] = ()
    if isinstance(choice, _TextChoice):
        said = Said("", choice.text)
        found = None if choice.logprobs is None else choice.logprobs.token_logprobs
    else:
        message = choice.message
        said = split(message.content or "", message.reasoning or message.reasoning_content or "", opened)
        if choice.logprobs is not None and choice.logprobs.content is not None:
            found = [each.logprob for each in choice.logprobs.content]
            given = [bytes(each.bytes) for each in choice.logprobs.content if each.bytes is not None]
            pieces = tuple(given) if len(given) == len(found) else ()
            if asked.top:
                likeliest = tuple(_likeliest(each) for each in choice.logprobs.content)
    if asked.logprobs and found is None:
        raise LlmNonsense("log-probabilities were asked for and did not come")
    if asked.top and not (likeliest and all(likeliest)):
        raise LlmNonsense("the likeliest tokens were asked for and did not come")
    if asked.token_ids and choice.token_ids is None:
        raise LlmNonsense("token ids were asked for and did not come")
    logprobs = tuple(_finite(each) for each in found) if asked.logprobs and found is not None else None
    ids = None if choice.token_ids is None else tuple(choice.token_ids)
    if logprobs is not None and ids is not None and len(logprobs) != len(ids):
        raise LlmNonsense(f"{len(ids)} token ids and {len(logprobs)} log-probabilities came for one answer")
    return Choice(
        said.answer, choice.finish_reason or "", ids, logprobs, pieces, likeliest, said.thought, said.unfinished
    )


def _likeliest(place: _ChatLogprob) -> tuple[tuple[str, float], ...]:
    return tuple((one.token, _finite(one.logprob)) for one in place.top_logprobs)


def _finite(value: float | None) -> float:
    if value is None or not math.isfinite(value):
        raise LlmNonsense(f"a log-probability is {value}")
    return value


def _versions(header: str) -> Versions | None:
    """Parse `12`, or `12-14`; None without a header."""
    if not header:
        return None
    found = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", header)
    if found is None:
        raise LlmNonsense(f"the header says that the weights have version {header[:60]!r}")
    first, last = found.groups()
    return Versions(int(first), int(last or first))


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        beginning = body[:80].decode("utf-8", "replace")
        raise LlmNonsense(f"the answer is not what was asked for ({error}); it begins with {beginning!r}") from error
