"""Between the client of verifiers and an engine, over real HTTP: what is asked of the engine, and what the client is
told."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from aiohttp import ClientSession
from support import llm_server as behave
from support.llm_server import LlmServer, Request, serving

from apollod.adapters.environments.sampling_relay import SamplingRelay

ASKED = {
    "model": "m", "token_ids": [1, 2],
    "sampling_params": {"logprobs": 1, "stop_token_ids": [9], "temperature": 0.1, "top_p": 0.5, "max_tokens": 7},
}  # fmt: skip
FIELDS = {"temperature": 1.0, "top_p": 1.0, "logprobs": 0, "return_token_ids": True, "priority": 20}


MODELS = behave.listing(40)


def relayed(
    use: Callable[[SamplingRelay, Callable[..., Awaitable[Any]], LlmServer], Awaitable[Any]],
    *script: behave.Behaviour, room: int = 64, port: int = 0,
) -> Any:  # fmt: skip
    """What `use` returns, given the relay, a question to it (body, headers) -> (status, answer), and the engine."""

    async def run() -> Any:
        async with serving(*script) as server:
            server.otherwise = MODELS
            relay = SamplingRelay({
                "url": f"http://127.0.0.1:{port or server.port}/v1", "headers": {"x-apollod-daemon": "1"}, "model": "m",
                "fields": FIELDS, "max_tokens": 16, "room": room,
            })  # fmt: skip
            await relay.start()
            async with ClientSession() as client:

                async def ask(body: Any = ASKED, **headers: str) -> tuple[int, Any]:
                    given = {"Authorization": f"Bearer {relay.key}"} | headers
                    async with client.post(f"{relay.url}/inference/v1/generate", json=body, headers=given) as answer:
                        return answer.status, await answer.json()

                try:
                    return await use(relay, ask, server)
                finally:
                    await relay.close()

    return anyio.run(run)


def test_a_request_is_sampled_as_the_daemon_samples_and_answered_with_ids_and_log_probabilities() -> None:
    async def use(relay: SamplingRelay, ask: Any, server: LlmServer) -> Any:
        return await ask(), relay.versions_of(""), server.requests[-1]

    (status, told), versions, asked = relayed(use)
    assert status == 200 and versions == (12, 14)
    (choice,) = told["choices"]
    assert choice["token_ids"] == [7, 8, 9] and choice["finish_reason"] == "stop"
    content = choice["logprobs"]["content"]
    assert [one["token"] for one in content] == ["token_id:7", "token_id:8", "token_id:9"]
    assert {one["logprob"] for one in content} == {behave.LOGPROB}
    assert asked.path == "/v1/completions" and asked.headers["x-apollod-daemon"] == "1"
    assert asked.body == {
        **FIELDS, "model": "m", "prompt": [1, 2], "max_tokens": 7, "stop_token_ids": [9], "skip_special_tokens": False,
    }  # fmt: skip


def test_an_answer_is_so_short_that_the_conversation_fits_a_step_and_the_engine() -> None:
    async def use(relay: SamplingRelay, ask: Any, server: LlmServer) -> Any:
        free = {**ASKED, "sampling_params": {}}
        most = []
        for length in (2, 30, 39):
            await ask({**free, "token_ids": [1] * length})
            most.append(server.requests[-1].body["max_tokens"])
        async with (
            ClientSession(headers={"Authorization": f"Bearer {relay.key}"}) as client,
            client.get(f"{relay.url}/v1/models") as answer,
        ):
            told = await answer.json()
        return most, await ask({**free, "token_ids": [1] * 40}), told, relay.broken

    most, (status, refused), told, broken = relayed(use)
    assert most == [16, 10, 1] and told["data"] == [{"id": "m", "max_model_len": 39}]
    assert status == 400 and "40 tokens leaves no room" in refused["error"]["message"] and not broken
    most, (status, _), told, _ = relayed(use, room=32)
    assert most == [16, 2, 2] and status == 400 and told["data"][0]["max_model_len"] == 31


def test_versions_are_those_of_all_requests_of_a_rollout() -> None:
    def version(text: str) -> behave.Behaviour:
        answer = behave.good_answer(Request("/v1/completions", {}, FIELDS | {"model": "m"}))
        return behave.answers(answer, **({"X_Apollod_Weights_Version": text} if text else {}))

    async def use(relay: SamplingRelay, ask: Any, server: LlmServer) -> Any:
        for rollout in ("a", "b", "a", "a", "c", "c"):
            await ask(**{"X-Session-ID": rollout})
        found = [relay.versions_of(rollout) for rollout in "abcd"]
        relay.begin()
        return found, relay.versions_of("a")

    found, after = relayed(use, MODELS, *map(version, ("4", "6", "2-6", "5", "7", "")))
    assert found == [(2, 6), (6, 6), (-1, -1), (-1, -1)] and after == (-1, -1)


def test_nobody_else_on_the_machine_asks_through_it() -> None:
    async def use(relay: SamplingRelay, ask: Any, server: LlmServer) -> Any:
        async with ClientSession() as client, client.get(f"{relay.url}/v1/models") as answer:
            listed = answer.status
        return listed, (await ask(Authorization="Bearer x"))[0], (await ask(Authorization=""))[0], server.requests

    assert relayed(use) == (401, 401, 401, [])


@pytest.mark.parametrize(
    ("answer", "status", "said", "broken"),
    [
        (behave.answers(b'{"error": "too long"}', 400), 400, "the engine answered 400", False),
        (behave.answers(b"no", 401), 401, "the engine answered 401: no", True),
        (behave.answers(b"", 503), 503, "the engine answered 503", True),
        (behave.changed(lambda said: said["choices"][0].pop("logprobs")), 502, "KeyError: 'logprobs'", True),
        (behave.changed(lambda said: said["choices"][0].pop("token_ids")), 502, "KeyError: 'token_ids'", True),
        (behave.changed(lambda said: said["choices"][0]["token_ids"].pop()), 502, "ValueError", True),
        (behave.answers(b"[]"), 502, "no token ids or log-probabilities", True),
        (behave.closes_mid_body, 503, "cannot be reached", True),
    ],
)
def test_what_the_engine_refuses_is_told(answer: behave.Behaviour, status: int, said: str, broken: bool) -> None:
    async def use(relay: SamplingRelay, ask: Any, server: LlmServer) -> Any:
        return await ask(), relay.broken

    (found, told), reason = relayed(use, MODELS, answer)
    assert found == status and said in told["error"]["message"] and bool(reason) == broken, told


def test_a_rollout_that_ends_early_ends_its_request_at_the_engine() -> None:
    async def use(relay: SamplingRelay, ask: Any, server: LlmServer) -> int:
        with anyio.move_on_after(0.5):
            await ask()
        with anyio.fail_after(5.0):
            while not server.left:
                await anyio.sleep(0.02)
        return server.active

    assert relayed(use, MODELS, behave.slow_headers) == 0
