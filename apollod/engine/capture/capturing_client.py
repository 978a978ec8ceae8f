"""vLLM's engine client for its HTTP handlers, which passes every finished answer to a keeper, too.

vLLM's servers use `EngineClient` (vllm/engine/protocol.py), whichever engine is behind it; this one forwards everything
to the real one. Chat completions, completions, messages and responses, streamed or not, all call `generate`, and all
name their answer after the request id that they pass: one of ours (`own_ids`).
"""

import logging
import time
from array import array
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from apollod.engine.capture.own_ids import own_id

logger = logging.getLogger("vllm.apollod")


class Finished(NamedTuple):
    """An answer from the engine. `final`: see `Answer`."""

    response: str
    choice: int
    at_ns: int
    version: str
    finish: str
    final: int
    prompt_ids: "array[int]"
    answer_ids: "array[int]"


class CapturingClient:
    """Wraps `generate`; all other attributes are the client's own."""

    def __init__(
        self,
        client: Any,
        keep: Callable[[Finished], None],
        settle: Callable[[float], None] = lambda timeout_s: None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._client = client
        self._keep = keep
        self._now_ns = now_ns
        self.settle_captures = settle
        """waits until all answers so far can be found, at most so many seconds; blocks"""
        self.captured_version: Callable[[], int | None] = lambda: None
        """version of the weights being served"""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def generate(self, prompt: Any, sampling_params: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the client's own `generate`. Source: vllm/engine/protocol.py, 0.26 to 0.32."""
        outputs = self._client.generate(prompt, sampling_params, request_id, *args, **kwargs)
        named = response_of(request_id, own_id.get())
        if named is None or getattr(sampling_params, "prompt_logprobs", None) is not None:  # a measurement
            return outputs
        response, prompt_number = named
        first = prompt_number * (getattr(sampling_params, "n", 1) or 1)
        return self._watched(outputs, _Taking(response, first, self.captured_version()))

    async def _watched(self, outputs: AsyncGenerator[Any, None], taking: "_Taking") -> AsyncGenerator[Any, None]:
        async with aclosing(outputs):  # a client that leaves ends the request
            async for output in outputs:
                try:
                    for finished in taking.see(output, self.captured_version, self._now_ns):
                        self._keep(finished)
                except Exception:  # capture never costs an answer
                    logger.warning("an answer could not be kept", exc_info=True)
                yield output


def response_of(request_id: str, own: str) -> tuple[str, int] | None:
    """The id of the response as its client sees it, and the number of the prompt in its request. None if the id does
    not belong to an answer, or is not made of `own`: a client may have chosen it."""
    if own and request_id in (f"chatcmpl-{own}", f"resp_{own}"):
        return request_id, 0
    response, completion = f"resp_{own}_", f"cmpl-{own}-"
    if own and request_id.startswith((response, completion)):
        number = request_id.removeprefix(response).removeprefix(completion)
        if number.isdecimal():  # one a turn (openai/responses/serving.py), one a prompt (openai/completion/serving.py)
            turn = request_id.startswith(response)
            return (f"resp_{own}", 0) if turn else (f"cmpl-{own}", int(number))
    return None


class _Taking:
    """The tokens of one request so far. An output holds all tokens of a choice, or only new ones."""

    def __init__(self, response: str, first: int, version: int | None) -> None:
        self._response = response
        self._first = first
        self._version = version
        self._prompt = array("I")
        self._answers: dict[int, array[int]] = {}

    def see(self, output: Any, version: Callable[[], int | None], now_ns: Callable[[], int]) -> list[Finished]:
        """The choices that this output finishes."""
        if not self._prompt and output.prompt_token_ids:
            self._prompt = array("I", output.prompt_token_ids)
        finished = []
        for one in output.outputs:
            ids = self._answers.setdefault(one.index, array("I"))
            ids.extend(one.token_ids)
            if ids and one.finish_reason not in (None, "abort", "error"):
                del self._answers[one.index]
                finished.append(self._finished(one, ids, version(), now_ns()))
        return finished

    def _finished(self, one: Any, ids: "array[int]", version: int | None, at_ns: int) -> Finished:
        ended = one.finish_reason == "stop" and not isinstance(one.stop_reason, str)
        span = "" if self._version is None else f"{self._version}"
        if span and version not in (None, self._version):
            span = f"{span}-{version}"
        return Finished(
            self._response, self._first + one.index, at_ns, span, one.finish_reason, ids[-1] if ended else -1,
            self._prompt, ids,
        )  # fmt: skip
