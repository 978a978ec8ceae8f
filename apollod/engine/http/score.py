"""POST /score: how probable given texts or token ids are under the served weights, token by token.

    {"input_ids": [[1, 2, 3], ...]}   or   {"text": ["...", ...]}; one instead of a list counts as a list of one

Each becomes a prompt of vLLM's own POST /v1/completions with `prompt_logprobs`: natural logarithms at temperature 1 of
the whole distribution. The first token has none. `start` leaves out the tokens before it, such as those of a context.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from apollod.engine.http.generate import Completion
from apollod.engine.http.spans import Sampling
from apollod.errors import RecordRefused
from apollod.wire.engine_terms import PLAIN

HINT = 'send {"input_ids": [[1, 2, 3]], "start": 1}, or {"text": ["..."]}'
MISSING = -9000.0
"""vLLM writes NaN and infinite values as -9999"""
Ids = list[int]


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    input_ids: list[Any] | None = None
    text: list[str] | str | None = None
    start: Annotated[int, Meta(ge=1)] = 1
    cache_salt: str | None = None


class Wanted(NamedTuple):
    """A request to vLLM, and the first token of each text that is told."""

    completion: dict[str, Any]
    start: int

    def told(self, answer: Completion, sampled: Sampling) -> dict[str, Any]:
        """The answer of this route."""
        each = sorted(answer.choices, key=lambda one: one.index)
        return {"scores": [_score(one, self.start) for one in each], "weight_version": sampled.version}


def wanted(body: bytes) -> Wanted:
    """The request in a body. Raises RecordRefused."""
    try:
        given = msgspec.json.decode(body, type=_Body)
        ids = None if given.input_ids is None else _ids(given.input_ids)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordRefused(f"the body is not a request to score ({error})", HINT) from error
    if (ids is None) == (given.text is None):
        raise RecordRefused("it has to have either input_ids or text", HINT)
    prompt: Sequence[Any] = ids if ids is not None else _list(given.text or "")
    if not prompt or not all(prompt):
        raise RecordRefused("a text is empty", HINT)
    completion = {
        **PLAIN, "prompt": prompt, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "return_token_ids": True,
        "cache_salt": given.cache_salt,
    }  # fmt: skip
    return Wanted(completion, given.start)


def _list(text: Sequence[str] | str) -> list[str]:
    return [text] if isinstance(text, str) else list(text)


def _ids(given: list[Any]) -> list[Ids]:
    """Token ids of each text. Raises msgspec.ValidationError."""
    several = bool(given) and isinstance(given[0], list)
    return msgspec.convert(given, list[Ids]) if several else [msgspec.convert(given, Ids)]


def _score(one: Any, start: int) -> dict[str, Any]:
    """Token ids of a text from `start` on, and their log-probabilities; null for one that is not finite."""
    ids = one.prompt_token_ids
    if start >= len(ids):
        raise RecordRefused(f"start is {start}, and a text has {len(ids)} tokens", "send the first token to score")
    found = [
        value if (value := tops[str(token)].logprob) > MISSING else None
        for token, tops in zip(ids[start:], one.prompt_logprobs[start:], strict=True)
    ]
    known = [value for value in found if value is not None]
    total = sum(known) if len(known) == len(found) else None
    return {"token_ids": ids[start:], "logprobs": found, "sum": total}
