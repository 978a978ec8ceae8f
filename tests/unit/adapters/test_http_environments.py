"""An environment that answers over HTTP: a score, or an error that says what the server did. Servers here are real."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest
from support.llm_server import LlmServer, answers, closes_mid_body, never_ends, serving, slow_body

from apollod.adapters.environments.environment_interface import Score
from apollod.adapters.environments.http_environment import HttpEnvironment
from apollod.errors import ConfigError, EnvironmentFailed

ResultT = TypeVar("ResultT")

USER = [{"role": "user", "content": "What is 7 + 1?"}]


def over_http(
    behaviour: Any, use: Callable[[HttpEnvironment], Awaitable[ResultT]], **given: Any
) -> tuple[ResultT, LlmServer]:
    async def main() -> tuple[ResultT, LlmServer]:
        async with serving() as server:
            server.otherwise = behaviour
            environment = HttpEnvironment(f"http://127.0.0.1:{server.port}/sums/", **given)
            try:
                return await use(environment), server
            finally:
                await environment.close()

    return anyio.run(main)


def refused(behaviour: Any, use: Callable[[HttpEnvironment], Awaitable[object]] | None = None, **given: Any) -> str:
    async def caught(it: HttpEnvironment) -> str:
        with pytest.raises(EnvironmentFailed) as error:
            await (use or (lambda one: one.prompt(7)))(it)
        return re.sub(r"127\.0\.0\.1:\d+", "HOST", error.value.line())

    return over_http(behaviour, caught, **given)[0]


def two(it: HttpEnvironment) -> Awaitable[list[Score]]:
    return it.score(7, USER, ["8", "9"])


def test_a_server_gives_prompts_and_scores() -> None:
    found, server = over_http(answers({"messages": USER}), lambda it: it.prompt(7), api_key="secret")
    assert found == USER
    assert server.requests[0].path == "/sums/prompt" and server.requests[0].body == {"number": 7}
    assert server.requests[0].headers["authorization"] == "Bearer secret"
    assert over_http(answers({"prompt": "What is 7 + 1?"}), lambda it: it.prompt(7))[0] == USER

    found_scores, server = over_http(answers({"scores": [1, 0.5]}), two)
    assert found_scores == [Score(1.0, ""), Score(0.5, "")]
    assert server.requests[0].path == "/sums/score" and "authorization" not in server.requests[0].headers
    assert server.requests[0].body == {"number": 7, "messages": USER, "answers": ["8", "9"]}


def test_a_server_may_leave_answers_without_a_score() -> None:
    body = b'{"scores": [1, null, NaN, Infinity, true, "0.5", [], 1e999, 0]}'
    found, _ = over_http(answers(body), lambda it: it.score(7, USER, ["x"] * 9))
    assert [one.value for one in found] == [1.0, *[None] * 7, 0.0]
    assert all(one.why for one in found[1:-1])


@pytest.mark.parametrize(
    ("behaviour", "line"),
    [
        (answers({"detail": "no such task"}, 500), "answered 500: no such task; look at what it logs"),
        (answers(b"", 404), "answered 404: nothing; let it answer POST /prompt and POST /score with JSON objects"),
        (answers({"error": "who?"}, 401), "answered 401: who?; check its API key"),
        (answers(b"", 307, Location="/elsewhere"),
         "answered 307: nothing, and redirects are not followed; give the URL that it leads to"),
        (answers(b"<html>\x1b"), "answered POST /prompt with no JSON object: <html>\ufffd;"),
        (answers(b"\xff"), "answered POST /prompt with no JSON object: "),
        (answers(b"[1]"), "answered POST /prompt with no JSON object: [1];"),
        (answers({"messages": None}), 'gave no prompt 7; answer {"messages": [...]} to POST /prompt'),
        (answers({"messages": [{"role": "assistant", "content": "x"}]}), "its last turn has the role assistant"),
        (answers({"prompt": "x" * (10 << 20)}), "sent more than 1048576 bytes; shorten what it answers"),
        (never_ends, "sent more than 1048576 bytes"),
        (closes_mid_body, "did not answer (RemoteProtocolError: "),
    ],
)  # fmt: skip
def test_a_server_that_gives_no_prompt(behaviour: Any, line: str) -> None:
    found = refused(behaviour)
    assert found.startswith("the environment http://HOST/sums/ ") and line in found and "; " in found


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        ({"scores": [1]}, "gave 1 scores for 2 answers; answer one number or null for each answer, in their order"),
        ({"scores": [1, 2, 3]}, "gave 3 scores for 2 answers"),
        ({"scores": 1}, "answered POST /score without a list of scores"),
        ({}, "answered POST /score without a list of scores"),
    ],
)
def test_a_server_that_gives_other_scores(reply: dict[str, Any], line: str) -> None:
    assert line in refused(answers(reply), two)


def test_a_server_that_takes_too_long_or_is_not_there() -> None:
    line = refused(slow_body, timeout_s=0.3)
    assert "gave no whole answer within 0.3 s; make it faster, or allow it more time" in line
    with pytest.raises(EnvironmentFailed) as caught:
        anyio.run(HttpEnvironment("http://127.0.0.1:9").prompt, 7)
    line = caught.value.line()
    assert caught.value.outside
    assert line.startswith("the environment http://127.0.0.1:9 did not answer (ConnectError: ")
    assert line.endswith("; look whether it runs, and at its URL")


def test_nothing_is_asked_twice() -> None:
    async def use(it: HttpEnvironment) -> None:
        with pytest.raises(EnvironmentFailed):
            await it.prompt(7)

    assert len(over_http(answers(b"", 503), use)[1].requests) == 1


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError):
        HttpEnvironment("file:///etc")


def test_a_closed_one_can_be_asked_again() -> None:
    async def use(it: HttpEnvironment) -> list[object]:
        await it.close()
        found = [await it.prompt(7)]
        await it.close()
        return [*found, await it.prompt(7)]

    assert over_http(answers({"messages": USER}), use)[0][0] == USER


def test_errors_do_not_name_the_key() -> None:
    assert "secret" not in refused(answers({"error": "the key secret is wrong"}, 403), api_key="secret")
