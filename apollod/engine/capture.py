"""Captures the engine's answers token by token: `[capture]`, docs/decisions/0017.

`CapturingClient` stands between vLLM's HTTP handlers and vLLM's engine, so that it covers all endpoints and changes
nothing for HTTP clients. vLLM's servers use `EngineClient` (vllm/engine/protocol.py), whichever engine is behind it;
this one forwards everything to the real one and passes every finished answer on, to a thread that does everything that
takes time (`Keeper`). Chat completions, completions, messages and responses, streamed or not, all call
`generate`, and all name their answer after the request id that they pass.

`OwnIds` makes that an id of our own, an ASGI middleware that our plugin adds if answers are kept. vLLM names a response
after the header X-Request-Id or the field `request_id`, if a client sends one. Two clients may send the same, or one of
them the same twice, so that an id would name an answer that its client never saw. So every request gets an id of our
own in place of the client's, and only answers under that id are kept.
"""

import copy
import logging
import re
import sqlite3
import threading
import time
import uuid
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from apollod.adapters.answer_store import Answer, AnswerWriter
from apollod.curation.redaction import redact, use
from apollod.engine.http.request_body import App, Receive, Scope, Send, route_of, with_body
from apollod.wire.engine_terms import CaptureTerms

logger = logging.getLogger("vllm.apollod")

ID_HEADER = b"x-request-id"  # vllm/entrypoints/serve/engine/serving.py, `_base_request_id`: it precedes the body's
RESPONSES = "/v1/responses"  # takes its id from the body alone (vllm/entrypoints/openai/responses/protocol.py)

own_id: ContextVar[str] = ContextVar("own_id", default="")
"""Id of the HTTP request being handled; empty outside of a request."""


class OwnIds:
    """The middleware. Other readers of X-Request-Id, such as vLLM's own middleware that echoes it, run before this one
    and see the client's id."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        own = uuid.uuid4().hex
        others = [(name, value) for name, value in scope["headers"] if name.lower() != ID_HEADER]
        scope = {**scope, "headers": [*others, (ID_HEADER, own.encode())]}
        if route_of(scope) == RESPONSES:
            scope, receive = await with_body(scope, receive, lambda body: with_request_id(body, f"resp_{own}"))
        token = own_id.set(own)
        try:
            await self._app(scope, receive, send)
        finally:
            own_id.reset(token)


def with_request_id(body: bytes, request_id: str) -> bytes:
    """The JSON object `body` with this `request_id`; all other values keep their bytes. A body that msgspec cannot read
    is returned unchanged, and its answer is not kept."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    fields["request_id"] = msgspec.Raw(msgspec.json.encode(request_id))
    return msgspec.json.encode(fields)


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


# --- the thread that stores them: requests only put into a queue; errors are logged once and cost no answer -----------

WAITING_MAX = 1024  # answers in the queue; more would come only while the disk or the processor is stalled
_PLACEHOLDER = re.compile(r"\[redacted [^\]\[]{1,64}\]")


class Tokenizer:
    """A tokenizer of its own: vLLM's may not be used by two threads at once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)

    def text(self, ids: Sequence[int], told: bool = False) -> str:
        """The text of tokens; `told`: as the client gets it, without tokens such as the end of a turn."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=told))

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


class Keeper:
    """Takes answers from any thread and stores them."""

    def __init__(self, terms: CaptureTerms, tokenizer: Tokenizer, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._terms = terms
        self._tokenizer = tokenizer
        self._now_ns = now_ns
        self._waiting: deque[Finished] = deque()
        self._more = threading.Condition()
        self._busy = False
        self._closed = False
        self._failed = ""
        self._thread = threading.Thread(target=self._run, name="apollod-capture", daemon=True)
        self._thread.start()

    def keep(self, finished: Finished) -> None:
        """Queue an answer; does not wait."""
        with self._more:
            if len(self._waiting) < WAITING_MAX:
                self._waiting.append(finished)
            self._more.notify_all()

    def settle(self, timeout_s: float) -> None:
        """Wait until everything given so far is stored, at most `timeout_s`. Blocks."""
        with self._more:
            self._more.wait_for(lambda: not self._waiting and not self._busy, timeout_s)

    def close(self) -> None:
        """Store the queued answers, and end."""
        with self._more:
            self._closed = True
            self._more.notify_all()
        self._thread.join(5.0)

    def _run(self) -> None:
        writer: AnswerWriter | None = None
        while True:
            with self._more:
                self._busy = False
                self._more.notify_all()
                self._more.wait_for(lambda: bool(self._waiting) or self._closed)
                if not self._waiting:
                    break
                self._busy = True
                taken, self._waiting = list(self._waiting), deque()
            try:
                writer = writer or AnswerWriter(Path(self._terms.path), self._terms.max_bytes, self._terms.keep_s)
                answers = [answer for one in taken if (answer := readable(one, self._tokenizer)) is not None]
                writer.put(answers, self._now_ns())
            except Exception as error:  # noqa: BLE001 - whatever a disk or tokenizer raises: the next answers are tried again
                self._say(error)
                if writer is not None and isinstance(error, sqlite3.Error):
                    writer.close()
                    writer = None
        if writer is not None:
            writer.close()

    def _say(self, error: Exception) -> None:
        """Log an error once, as long as it stays the same."""
        if self._failed != str(error):
            self._failed = str(error)
            logger.warning("answers are not kept in %s: %s", self._terms.path, error)


def started(terms: CaptureTerms, client: Any) -> Keeper | None:
    """A keeper with the tokenizer of vLLM's engine client; None, with a warning, if there is no usable one: serving has
    priority."""
    try:
        use(terms.personal)
        return Keeper(terms, Tokenizer(client.get_tokenizer()))
    except Exception:
        logger.warning("answers are not kept: there is no tokenizer for it", exc_info=True)
        return None


def readable(one: Finished, tokenizer: Tokenizer) -> Answer | None:
    """The answer with its texts, without secrets; None if they cannot be removed from its tokens."""
    prompt, answer = clean(one.prompt_ids, tokenizer), clean(one.answer_ids, tokenizer)
    if prompt is None or answer is None:
        return None
    (prompt_ids, prompt_text, one_found), (answer_ids, _, other_found) = prompt, answer
    told = tokenizer.text(answer_ids, told=True)
    if without_secrets(told) != told:
        return None
    return Answer(
        one.response, one.choice, one.at_ns, one.version, one.finish, one.final, prompt_ids, answer_ids, prompt_text,
        told, one_found or other_found,
    )  # fmt: skip


def clean(ids: "array[int]", tokenizer: Tokenizer) -> "tuple[array[int], str, bool] | None":
    """(tokens, their text, true if secrets were in it), with placeholders for secrets in both.

    Tokens that contain part of a secret are replaced by those of its placeholder and of the rest of their text; all
    others stay.
    """
    text = tokenizer.text(ids)
    redacted = without_secrets(text)
    if redacted == text:
        return ids, text, False
    pieces, at = array("I"), 0
    for start, end, placeholder in replaced(text, redacted):
        first, begins = _before(ids, start, tokenizer)
        behind, ends = _behind(ids, end, tokenizer)
        if first < at:  # two secrets in one token
            return None
        pieces.extend(ids[at:first])
        pieces.extend(tokenizer.ids(text[begins:start] + placeholder + text[end:ends]))
        at = behind
    pieces.extend(ids[at:])
    return (pieces, redacted, True) if tokenizer.text(pieces) == redacted else None


def without_secrets(text: str) -> str:
    """The text redacted as in a log, which is JSON."""
    return str(msgspec.json.decode(redact(msgspec.json.encode(text))[0]))


def replaced(text: str, redacted: str) -> list[tuple[int, int, str]]:
    """The spans of `text` that the placeholders of `redacted` replace: characters [start, end), and the placeholder."""
    found, at, read = [], 0, 0
    for match in _PLACEHOLDER.finditer(redacted):
        start = at + match.start() - read
        following = _PLACEHOLDER.search(redacted, match.end())
        literal = redacted[match.end() : following.start() if following else len(redacted)]
        if literal and not following:
            end = len(text) - len(literal)
        else:
            end = text.find(literal, start + 1) if literal else len(text)
        found.append((start, end, match[0]))
        at, read = end, match.end()
    return found


def _before(ids: "array[int]", place: int, tokenizer: Tokenizer) -> tuple[int, int]:
    """The number of tokens that end at or before a character, and their length in characters."""
    count = bisect_right(range(len(ids) + 1), place, key=lambda n: len(tokenizer.text(ids[:n]))) - 1
    return count, len(tokenizer.text(ids[:count]))


def _behind(ids: "array[int]", place: int, tokenizer: Tokenizer) -> tuple[int, int]:
    """The number of tokens that reach at least up to a character, and their length in characters."""
    count = bisect_left(range(len(ids) + 1), place, key=lambda n: len(tokenizer.text(ids[:n])))
    return count, len(tokenizer.text(ids[:count]))
