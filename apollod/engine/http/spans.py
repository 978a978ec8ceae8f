"""Notes which version of the weights sampled each token of an answer that /generate and /score give.

vLLM 0.32 labels every model step with the version that was announced last (`RequestOutput.outputs[].weight_versions`),
and leaves that out of its OpenAI answers. `note_spans` reads it from the last output of each prompt, in front of its
client's `generate`. vLLM 0.26 has no such label.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import msgspec

from apollod.engine.http.versions import Names


class Span(msgspec.Struct, frozen=True):
    """Tokens [start, end) of an answer were sampled by one version of the weights."""

    version: int
    start: int
    end: int


Spans = Sequence[Span]
Prompt = dict[int, Spans | None]
"""of each choice, by its index"""


class Noted:
    """The spans of one request, in the order of its prompts."""

    def __init__(self) -> None:
        self._prompts: list[Prompt] = []

    def prompt(self) -> Prompt:
        """A place for the next prompt."""
        self._prompts.append({})
        return self._prompts[-1]

    def choices(self, count: int) -> list[Spans | None]:
        """The spans of each of `count` choices; None where vLLM does not tell them."""
        found = [prompt[index] for prompt in self._prompts for index in sorted(prompt)]
        return found if len(found) == count else [None] * count


class Sampled(NamedTuple):
    """Which weights gave a choice: `version` is the trainer's name of those that ended it, else their number or two
    numbers; `spans` are the versions of its tokens in the form of vLLM's own token endpoint, None if not known."""

    version: str
    spans: list[dict[str, Any]] | None = None


class Sampling(NamedTuple):
    """The same of a whole request, and of each of its choices in order."""

    version: str
    choices: list[Sampled]


def sampling(names: Names, first: int, last: int, choices: Sequence[Spans | None]) -> Sampling:
    """Versions that an answer tells. `first`, `last`: those at its beginning and its end."""
    whole = names.of_answer(first, last)
    return Sampling(whole, [_sampled(names, spans, whole) for spans in choices])


def _sampled(names: Names, spans: Spans | None, whole: str) -> Sampled:
    if spans is None:
        return Sampled(whole)
    version = names.of_answer(spans[0].version, spans[-1].version) if spans else whole
    told = [{"version": names.of(one.version), "start": one.start, "end": one.end} for one in spans]
    return Sampled(version, told)


_noting: ContextVar[Noted | None] = ContextVar("noting", default=None)


@contextmanager
def noting() -> Iterator[Noted]:
    """Note the spans of what is generated within."""
    token = _noting.set(noted := Noted())
    try:
        yield noted
    finally:
        _noting.reset(token)


def note_spans(client: Any) -> None:
    """Have vLLM's EngineClient note them. Source: vllm/engine/protocol.py, 0.26 to 0.32."""
    inner = client.generate

    def generate(*args: Any, **kwargs: Any) -> Any:
        noted = _noting.get()
        outputs = inner(*args, **kwargs)
        return outputs if noted is None else _watched(outputs, noted.prompt())

    client.generate = generate


async def _watched(outputs: AsyncGenerator[Any, None], prompt: Prompt) -> AsyncGenerator[Any, None]:
    async with aclosing(outputs):  # a client that leaves ends the request
        async for output in outputs:
            for one in output.outputs:
                if one.finish_reason is not None:
                    prompt[one.index] = spans_of(getattr(one, "weight_versions", None))
            yield output


def spans_of(told: Sequence[Any] | None) -> Spans | None:
    """vLLM's spans; None if it does not tell them, or if one is of no version of ours."""
    if told is None or not all(one.version.isascii() and one.version.isdecimal() for one in told):
        return None
    return [Span(int(one.version), one.start, one.end) for one in told]
