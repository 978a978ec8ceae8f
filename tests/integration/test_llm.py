"""What every `Llm` has to keep to: over real HTTP, against an endpoint that misbehaves, and against our engine."""

import logging
import math
import subprocess
import sys
import traceback
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from support import llm_server as behave
from support.daemon import Daemon
from support.llm_server import LlmServer, serving

from apollod.adapters.llm import client
from apollod.adapters.llm.client import HttpLlm, Llm, backoff_s, retry_after_s
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.openai_api import Completion, Sampling, Versions
from apollod.errors import ConfigError, LlmError, LlmNonsense, LlmRefused, LlmTimedOut, LlmUnreachable

MESSAGES = [{"role": "user", "content": "hello"}]
KEY = "sk-very-secret"
ALL = Sampling(n=2, logprobs=True, token_ids=True)


def talk(
    *script: behave.Behaviour, ask: Callable[[Llm, LlmServer], Awaitable[Any]] | None = None, **limits: Any
) -> tuple[Any, LlmServer]:
    """What `ask` (else a completion) returned or raised, and the server. Waits between attempts are short."""

    async def main() -> tuple[Any, LlmServer]:
        async with serving(*script) as server:
            async with HttpLlm(Endpoint(server.url, "m", KEY, **limits), jitter=lambda: 1.0) as llm:
                try:
                    result = await (ask(llm, server) if ask else llm.complete([1, 2], Sampling()))
                except LlmError as error:
                    assert KEY not in "".join(traceback.format_exception(error)) + repr(error) + error.line()
                    result = error
                with anyio.fail_after(120):  # nothing that was given up is still being answered
                    while server.active:
                        await anyio.sleep(0.01)
            return result, server

    return anyio.run(main)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BACKOFF_FIRST_S", 0.02)


# --- good answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [MESSAGES, [1, 2], "text"], ids=["messages", "ids", "text"])
def test_everything_that_was_asked_for_comes(prompt: Any) -> None:
    answer, server = talk(ask=lambda llm, _: llm.complete(prompt, ALL))
    assert isinstance(answer, Completion)
    assert [choice.text for choice in answer.choices] == ["text 0", "text 1"]
    assert all(choice.token_ids == (7, 8, 9) and choice.logprobs == (behave.LOGPROB,) * 3 for choice in answer.choices)
    assert (answer.prompt_ids, answer.prompt_tokens, answer.completion_tokens) == ((1, 2), 2, 3)
    assert (answer.versions, answer.id, answer.model, answer.choices[0].finish_reason) == (
        Versions(12, 14),
        "cmpl-1",
        "m",
        "stop",
    )
    (request,) = server.requests
    assert request.path == ("/v1/chat/completions" if prompt is MESSAGES else "/v1/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_only_what_is_given_is_sent() -> None:
    _, server = talk()
    assert server.requests[0].body == {"model": "m", "prompt": [1, 2], "n": 1}
    sampling = Sampling(
        seed=3,
        temperature=0.0,
        max_tokens=5,
        top_p=0.9,
        stop=("x",),
        priority=2,
        schema={"type": "object"},
        extra={"cache_salt": "s"},
    )
    _, server = talk(ask=lambda llm, _: llm.complete(MESSAGES, sampling))
    assert server.requests[0].body == {
        "model": "m", "messages": MESSAGES, "n": 1, "seed": 3, "temperature": 0.0, "max_tokens": 5, "top_p": 0.9,
        "stop": ["x"], "priority": 2, "cache_salt": "s",
        "response_format": {
            "type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True}
        },
    }  # fmt: skip


def test_scores() -> None:
    scores, server = talk(ask=lambda llm, _: llm.score([5, 6, 7], top=3, priority=9))
    assert (scores.logprobs, scores.top, scores.versions) == ((-6.0, -7.0), ({6: -6.0}, {7: -7.0}), Versions(12, 14))
    assert server.requests[0].body == {
        "model": "m",
        "prompt": [5, 6, 7],
        "max_tokens": 1,
        "prompt_logprobs": 3,
        "temperature": 1.0,
        "priority": 9,
    }


def test_an_endpoint_elsewhere_has_no_weights_version_and_may_say_more_or_less() -> None:
    body = {
        "choices": [{"message": {"content": None, "reasoning": "hm", "new": 1}}],
        "usage": {"prompt_tokens": 1},
        "x": [1],
    }
    answer, _ = talk(behave.answers(body), ask=lambda llm, _: llm.complete(MESSAGES, Sampling()))
    assert (answer.versions, answer.choices[0].text, answer.choices[0].reasoning, answer.prompt_ids) == (
        None,
        "",
        "hm",
        None,
    )


# --- bad ones ---------------------------------------------------------------------------------------------------------


NONSENSE = {
    "prose": behave.answers(b"I am sorry, as a language model"),
    "nothing": behave.answers(b""),
    "other JSON": behave.answers({"object": "list", "data": []}),
    "wrong types": behave.changed(lambda a: a["choices"][0].update(text=17)),
    "n ignored": behave.changed(lambda a: a["choices"].pop()),
    "no choices": behave.changed(lambda a: a["choices"].clear()),
    "no ids": behave.changed(lambda a: a["choices"][0].pop("token_ids")),
    "no prompt ids": behave.changed(lambda a: [choice.pop("prompt_token_ids") for choice in a["choices"]]),
    "no log-probabilities": behave.changed(lambda a: a["choices"][0].pop("logprobs")),
    "a log-probability is null": behave.changed(
        lambda a: a["choices"][0]["logprobs"].update(token_logprobs=[None, -1.0, -1.0])
    ),
    "fewer log-probabilities than ids": behave.changed(lambda a: a["choices"][0]["logprobs"]["token_logprobs"].pop()),
    "not UTF-8": behave.answers(b'{"choices": [{"text": "\xff"}]}'),
    "deep": behave.answers(b"[" * 100_000),
    "a version that is none": behave.answers({"choices": []}, X_Apollod_Weights_Version="new"),
}


@pytest.mark.parametrize("behaviour", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_said_to_be_nonsense_and_not_asked_for_again(behaviour: behave.Behaviour) -> None:
    error, server = talk(behaviour, ask=lambda llm, _: llm.complete([1, 2], ALL))
    assert isinstance(error, LlmNonsense) and not error.retryable, error
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "places", [[None], [None, None, None], [None, {"5": {"logprob": -1.0}}, {"7": {"logprob": -1.0}}]]
)
def test_scores_of_other_tokens_are_nonsense(places: list[Any]) -> None:
    script = behave.changed(lambda a: a["choices"][0].update(prompt_logprobs=places))
    error, _ = talk(script, ask=lambda llm, _: llm.score([5, 6, 7]))
    assert isinstance(error, LlmNonsense)


def test_a_body_without_end_is_given_up() -> None:
    error, server = talk(behave.never_ends, answer_bytes_max=1 << 20)
    assert isinstance(error, LlmNonsense) and "longer than 1048576 bytes" in str(error)
    assert server.left == 1


BODIES: dict[str, tuple[Any, str]] = {
    "OpenAI": ({"error": {"message": f"no such model; key {KEY}"}}, "no such model; key [key]"),
    "text": ({"error": "too long"}, "too long"),
    "FastAPI": ({"detail": "Not Found"}, "Not Found"),
    "HTML": (b"<html>\n <b>Bad gateway", "<html> <b>Bad gateway"),
    "empty": (b"", "nothing"),
}


@pytest.mark.parametrize(("body", "said"), BODIES.values(), ids=BODIES)
def test_a_refusal_says_what_the_endpoint_said_and_is_not_repeated(body: Any, said: str) -> None:
    error, server = talk(behave.answers(body, 400))
    assert isinstance(error, LlmRefused) and error.status == 400 and str(error).endswith(f"answered 400: {said}")
    assert len(server.requests) == 1 and not error.retryable


def test_a_redirection_is_not_followed() -> None:
    error, server = talk(behave.answers(b"", 307, Location="http://127.0.0.1:1/v1"))
    assert isinstance(error, LlmRefused) and len(server.requests) == 1


@pytest.mark.parametrize(
    "behaviour",
    [
        behave.answers(b"busy", 429),
        behave.answers(b"oops", 500),
        behave.closes_mid_body,
        behave.closes_at_once,
        behave.not_http,
    ],
    ids=["429", "500", "closes-mid-body", "closes-at-once", "not-http"],
)
def test_what_may_pass_is_asked_again_and_not_for_ever(behaviour: behave.Behaviour) -> None:
    answer, server = talk(behaviour, behaviour)
    assert isinstance(answer, Completion) and len(server.requests) == 3
    error, server = talk(*[behaviour] * 9, attempts=3)
    assert isinstance(error, LlmRefused | LlmUnreachable) and error.retryable and len(server.requests) == 3


def test_retry_after_is_kept_to() -> None:
    async def ask(llm: Llm, server: LlmServer) -> float:
        began = anyio.current_time()
        await llm.complete("x", Sampling())
        return anyio.current_time() - began

    waited, _ = talk(behave.answers(b"", 429, Retry_After="1"), ask=ask)
    assert waited >= 1.0


def test_a_wait_that_would_outlast_the_question_is_not_begun() -> None:
    async def ask(llm: Llm, server: LlmServer) -> None:
        with anyio.fail_after(120):
            await llm.complete("x", Sampling())

    error, server = talk(behave.answers(b"", 429, Retry_After="3600"), ask=ask)
    assert isinstance(error, LlmRefused) and (error.retry_after_s, len(server.requests)) == (3600.0, 1)


@pytest.mark.parametrize("behaviour", [behave.slow_headers, behave.slow_body])
def test_an_attempt_that_takes_too_long_is_closed_and_repeated(behaviour: behave.Behaviour) -> None:
    answer, server = talk(behaviour, try_s=0.3)
    assert isinstance(answer, Completion) and (len(server.requests), server.left) == (2, 1)


def test_the_question_as_a_whole_has_a_limit() -> None:
    error, server = talk(*[behave.slow_headers] * 99, try_s=0.6, total_s=0.9, attempts=99)  # ends in the second try
    assert isinstance(error, LlmTimedOut) and "0.9 s" in str(error)
    assert len(server.requests) == 2


def test_nobody_there() -> None:
    async def main() -> None:
        async with serving() as server:
            url = server.url
        async with HttpLlm(Endpoint(url, "m", KEY, attempts=2)) as llm:
            with pytest.raises(LlmUnreachable, match=r"127\.0\.0\.1"):
                await llm.complete("x", Sampling())

    anyio.run(main)


# --- many at once, and no longer --------------------------------------------------------------------------------------


def test_cancelling_a_question_closes_its_request_and_frees_its_place() -> None:
    async def ask(llm: Llm, server: LlmServer) -> Completion:
        with anyio.move_on_after(0.3):
            await llm.complete("x", Sampling())
        with anyio.fail_after(120):
            while not server.left:
                await anyio.sleep(0.01)
            assert len(server.requests) == 1
            return await llm.complete("x", Sampling())

    answer, _ = talk(behave.slow_headers, ask=ask, concurrency=1)
    assert isinstance(answer, Completion)


def test_no_more_than_so_many_are_asked_at_one_time() -> None:
    async def slowly(server: LlmServer, stream: Any, request: behave.Request) -> None:
        await anyio.sleep(0.05)
        await behave.well(server, stream, request)

    async def ask(llm: Llm, server: LlmServer) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(llm.complete, "x", Sampling())

    _, server = talk(*[slowly] * 12, ask=ask, concurrency=3)
    assert (len(server.requests), server.most_active) == (12, 3)


# --- the key, the settings, the start ---------------------------------------------------------------------------------


def test_the_key_is_shown_nowhere(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint = Endpoint("http://127.0.0.1:1/v1", "m", KEY)
    assert KEY not in repr(endpoint) + str(endpoint)
    for script in (
        [behave.answers({"error": {"message": KEY}}, 500)],
        [behave.closes_mid_body],
        [behave.answers(b"", 401)],
    ):
        talk(*script)  # checks the errors
    out = capsys.readouterr()
    assert KEY not in caplog.text + out.out + out.err
    for bad in (f"{KEY}\n", f"{KEY}é"):
        with pytest.raises(ConfigError) as refused:
            Endpoint("http://127.0.0.1:1/v1", "m", bad)
        assert KEY not in refused.value.line()


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://h/v1", "http://user:password@h/v1", ""])
def test_a_base_url_that_cannot_be_one(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Endpoint(url, "m")
    assert "password" not in refused.value.line()


def test_waiting() -> None:
    assert [backoff_s(n, 0.0) / client.BACKOFF_FIRST_S for n in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert backoff_s(1, 1.0) == client.BACKOFF_FIRST_S / 2 and backoff_s(999, 0.0) == client.BACKOFF_MOST_S
    assert retry_after_s(" 7 ", 0) == 7.0
    assert retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", 20.0) == 40.0
    assert retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", 90.0) == 0.0
    assert [retry_after_s(text, 0) for text in ("", "soon", "-1", "١", "9" * 400)] == [
        None,
        None,
        None,
        None,
        999999999.0,
    ]


@pytest.mark.parametrize("module", ["apollod.supervisor.app", "apollod.cli.main"])
def test_httpx_is_not_loaded_before_a_question(module: str) -> None:
    code = f"import sys, {module}; sys.exit('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- our engine -------------------------------------------------------------------------------------------------------


@pytest.mark.engine
def test_our_engine(running: Daemon) -> None:
    """Texts, ids, log-probabilities and version fit together, and scoring the sampled ids gives what sampling said."""

    async def main() -> None:
        step = running.status()["step"]
        async with HttpLlm(Endpoint(f"{running.url}/v1", "tiny")) as llm:
            sampling = Sampling(n=2, seed=5, temperature=1.0, max_tokens=8, logprobs=True, token_ids=True)
            for prompt in (MESSAGES, [5, 6, 7, 8]):
                answer = await llm.complete(prompt, sampling)
                assert answer.versions == Versions(step, step) and answer.prompt_ids and len(answer.choices) == 2
                assert answer.prompt_tokens == len(answer.prompt_ids)
                assert answer.completion_tokens == sum(len(choice.token_ids or ()) for choice in answer.choices)
                for choice in answer.choices:
                    assert choice.token_ids and choice.logprobs and choice.finish_reason in ("stop", "length")
                    scores = await llm.score([*answer.prompt_ids, *choice.token_ids], top=2)
                    assert scores.versions == Versions(step, step) and all(len(place) >= 2 for place in scores.top)
                    again = scores.logprobs[-len(choice.token_ids) :]
                    assert max(abs(a - b) for a, b in zip(choice.logprobs, again, strict=True)) < 0.1
                    assert all(math.exp(value) <= 1 for value in scores.logprobs)
            # The first prompt fills the prefix cache: another kernel sums what comes from there, and last bits differ.
            # So they do where the daemon's own questions share the batch, by up to 0.01.
            same = [await llm.complete([5, 6, 7], sampling) for _ in range(3)][1:]
            assert [choice.token_ids for choice in same[0].choices] == [choice.token_ids for choice in same[1].choices]
            for one, other in zip(*(answer.choices for answer in same), strict=True):
                assert one.logprobs == pytest.approx(other.logprobs, abs=0.02)
            schema = {
                "type": "object",
                "properties": {"good": {"type": "boolean"}},
                "required": ["good"],
                "additionalProperties": False,
            }
            text = (await llm.complete(MESSAGES, Sampling(max_tokens=200, schema=schema))).choices[0].text
            assert text.lstrip().startswith("{")
            with pytest.raises(LlmRefused) as refused:
                await llm.complete(MESSAGES, Sampling(n=0))
            assert refused.value.status == 400
            before = _metric(running, "generation_tokens_total")
            long = Sampling(n=8, max_tokens=480, extra={"ignore_eos": True})
            with anyio.move_on_after(0.5) as scope:
                await llm.complete([5, 6, 7], long)
            assert scope.cancelled_caught
            with anyio.fail_after(120):
                while _metric(running, "num_requests_running"):
                    await anyio.sleep(0.1)
            assert _metric(running, "generation_tokens_total") - before < 8 * 480, "it was answered to the end"

    anyio.run(main)


def _metric(daemon: Daemon, name: str) -> float:
    """A figure of vLLM's, over all its labels."""
    with urllib.request.urlopen(f"{daemon.url}/metrics", timeout=30) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith(f"vllm:{name}{{")]
    assert lines, f"vLLM has no {name}"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)
