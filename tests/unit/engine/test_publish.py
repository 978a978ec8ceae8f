"""The engine's side of publishing, with stand-ins for vLLM's client and app where a real engine could not be made to
fail."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apollod.engine import refresh
from apollod.engine.http.versions import Served, VersionLabels, with_salt
from apollod.engine.refresh import Fence, Prefixes
from apollod.errors import ApolloError


class Client:
    """vLLM's EngineClient: `hangs` before it is idle, `fails` with this error; `resets` are the answers to resets."""

    def __init__(self) -> None:
        self.hangs_s = 0.0
        self.fails: Exception | None = None
        self.resets: list[bool | Exception] = []
        self.calls: list[Any] = []

    async def pause_generation(self, *, mode: str = "abort", clear_cache: bool = True) -> None:
        self.calls.append(("pause", mode, clear_cache))
        await asyncio.sleep(self.hangs_s)
        if self.fails:
            raise self.fails

    async def resume_generation(self) -> None:
        self.calls.append("resume")

    async def collective_rpc(self, method: str) -> list[None]:
        self.calls.append(method)
        return [None]

    async def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        self.calls.append("force" if reset_running_requests else "reset")
        answer = self.resets.pop(0) if self.resets else True
        if isinstance(answer, Exception):
            raise answer
        return answer or reset_running_requests


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())  # type: ignore[arg-type]


def test_a_pause_keeps_requests_and_waits_for_the_device() -> None:
    client, told = Client(), []

    async def work() -> None:
        made = Fence(client, told.append)
        await made.pause(clear=False, at_most_s=30)
        assert client.calls == [("pause", "keep", False), "apollod_synchronize"]
        assert await made.resume() > 0 and await made.resume() == 0
        assert client.calls[2:] == ["resume"] and not told

    run(work)


def test_a_pause_that_fails_or_hangs_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "PAUSE_S", 0.05)

    async def work() -> None:
        for fails, hangs_s, expected in ((RuntimeError("no"), 0.0, RuntimeError), (None, 10.0, TimeoutError)):
            client = Client()
            client.fails, client.hangs_s = fails, hangs_s
            made = Fence(client, lambda seconds: None)
            with pytest.raises(expected):
                await made.pause(clear=True, at_most_s=30)
            assert client.calls[-1] == "resume" and await made.resume() == 0

    run(work)


def test_a_pause_ends_after_its_longest_time_and_only_then() -> None:
    client, told = Client(), []

    async def work() -> None:
        made = Fence(client, told.append)
        await made.pause(clear=False, at_most_s=0.05)
        await asyncio.sleep(0.2)
        assert client.calls[-1] == "resume" and len(told) == 1 and told[0] >= 0.05
        await made.pause(clear=False, at_most_s=0.05)
        await made.resume()
        await asyncio.sleep(0.1)
        assert len(told) == 1

    run(work)


def test_a_vllm_without_mode_keep_is_named() -> None:
    class Old(Client):
        async def pause_generation(self, *, wait_for_inflight_requests: bool = False, clear_cache: bool = True) -> None:  # type: ignore[override]
            raise AssertionError("it must not be asked")

    async def work() -> None:
        with pytest.raises(ApolloError, match="mode keep") as caught:
            await Fence(Old(), lambda seconds: None).pause(clear=False, at_most_s=1)
        assert "hogwild" in caught.value.hint

    run(work)


def test_a_server_that_is_never_idle_is_made_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "RETRY_S", 0.02)
    monkeypatch.setattr(refresh, "FORCE_AFTER_S", 0.1)
    monkeypatch.setattr(refresh, "FORCE_AFTER_MAX_S", 0.3)
    client = Client()
    client.resets = [False] * 1000

    async def work() -> None:
        made = Prefixes(client)
        await made.forget()
        await made.forget()  # one at a time
        took = []
        for _ in range(3):
            began = time.monotonic()
            await made.forget()
            while client.calls[-1] != "force":
                await asyncio.sleep(0.005)
            took.append(time.monotonic() - began)
            client.calls.append("forgotten")
            await asyncio.sleep(0)
        assert took[1] > 0.18 and took[2] > 0.28, "requests need longer and longer stretches: 0.1, 0.2, at most 0.3 s"
        client.resets = []
        await made.forget()
        assert client.calls[-1] == "reset"

    run(work)


def test_what_was_taken_back_is_dropped_at_once_also_on_a_busy_server() -> None:
    client = Client()
    client.resets = [False] * 1000

    async def work() -> None:
        await Prefixes(client).forget(at_once=True)
        assert client.calls == ["force"]

    run(work)


def test_a_drop_at_once_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "RETRY_S", 0.01)
    client = Client()
    client.resets = [RuntimeError("remote KV transfer"), False, True]

    async def work() -> None:
        await Prefixes(client).forget(at_once=True)
        await asyncio.sleep(0.05)
        assert client.calls == ["force", "reset", "reset"]

    run(work)


def test_a_drop_that_newer_weights_overtook_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "RETRY_S", 0.01)

    class Slow(Client):
        async def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
            done = await super().reset_prefix_cache(reset_running_requests)
            await asyncio.sleep(0.1)  # it was done; the answer is on its way
            return done

    client = Slow()
    client.resets = [False]

    async def work() -> None:
        made = Prefixes(client)
        await made.forget()
        await asyncio.sleep(0.05)
        await made.forget()
        await asyncio.sleep(0.3)
        assert client.calls == ["reset", "reset", "reset"]

    run(work)


def test_a_reset_that_fails_does_not_stop_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "RETRY_S", 0.01)
    client = Client()
    client.resets = [False, RuntimeError("remote KV transfer")]

    async def work() -> None:
        made = Prefixes(client)
        await made.forget()
        await asyncio.sleep(0.05)
        await made.forget()
        assert client.calls.count("reset") >= 3

    run(work)


# --- salts ---------------------------------------------------------------------------------------------------------


def test_a_body_keeps_every_other_byte() -> None:
    body = b'{"prompt": [1, 2], "temperature": 0.10, "big": 12345678901234567890, "x": "\\u00e9"}'
    salted = with_salt(body, "w3")
    assert json.loads(salted) == {**json.loads(body), "cache_salt": "w3"}
    for kept in (b"0.10", b"12345678901234567890", b'"\\u00e9"', b"[1, 2]"):
        assert kept in salted


@pytest.mark.parametrize(("own", "expected"), [(None, "w3"), ("alice", "alice.w3"), ("a" * 100, "a" * 100 + ".w3")])
def test_a_salt_of_ones_own_gets_the_version_too(own: str | None, expected: str) -> None:
    assert json.loads(with_salt(json.dumps({"cache_salt": own}).encode(), "w3"))["cache_salt"] == expected


def test_a_long_salt_of_ones_own_is_shortened_to_what_vllm_takes() -> None:
    salts = {
        json.loads(with_salt(json.dumps({"cache_salt": letter * 128}).encode(), "w3"))["cache_salt"] for letter in "ab"
    }
    assert len(salts) == 2 and max(map(len, salts)) <= 128


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"7", b"\xff\xfe", b'{"cache_salt": 7}', b'{"cache_salt": ""}', b"\x1f\x8b\x08",
        b'{"a": NaN, "cache_salt": 7}', b'{"a": NaN, "cache_salt": ""}', "[]".encode("utf-16"), b"[" * 100_000,
        b'{"a":' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_request_is_left_for_vllm_to_refuse(body: bytes) -> None:
    assert with_salt(body, "w3") == body


@pytest.mark.parametrize(
    "body",
    ['{"prompt": "é"}'.encode("utf-16"), '{"prompt": "é"}'.encode("utf-32-le"), b'{"n": NaN}', b'{"a": "\\ud800"}'],
)
def test_whatever_vllm_would_read_is_salted(body: bytes) -> None:
    """It reads bodies with Python's json, which takes more than JSON."""
    was, salted = json.loads(body), json.loads(with_salt(body, "w3"))
    assert salted.pop("cache_salt") == "w3" and str(salted) == str(was)


# --- the middleware ------------------------------------------------------------------------------------------------


async def call(
    served: Served, path: str = "/v1/completions", chunks: tuple[bytes, ...] = (b'{"prompt":', b'"x"}'),
    stream: bool = False,
    meanwhile: Callable[[], None] = lambda: None, method: str = "POST",
) -> tuple[bytes, dict[bytes, bytes], list[dict[str, Any]]]:  # fmt: skip
    """(body that the app got, headers that the app got, messages that the client got)"""
    got = {"body": b"", "headers": {}}
    sent: list[dict[str, Any]] = []
    pending = [{"type": "http.request", "body": c, "more_body": i + 1 < len(chunks)} for i, c in enumerate(chunks)]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            got["body"] += message["body"]
            more = message["more_body"]
        got["headers"] = dict(scope["headers"])
        assert (await receive())["type"] == "http.disconnect"
        kind = b"text/event-stream; charset=utf-8" if stream else b"application/json"
        if stream:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
            assert len(sent) == 2, "it was held back"
        meanwhile()
        if not stream:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": b"" if stream else b"{}"})

    async def receive() -> dict[str, Any]:
        return pending.pop(0) if pending else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    size = str(sum(map(len, chunks))).encode()
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": [(b"content-length", size)]}
    await VersionLabels(app, served)(scope, receive, send)
    return got["body"], got["headers"], sent


def served(version: int | None, salt: str = "") -> Served:
    made = Served()
    made.version, made.salt = version, salt
    return made


def labels(sent: list[dict[str, Any]]) -> list[bytes]:
    return [v for k, v in sent[0]["headers"] if k == b"x-apollod-weights-version"]


def test_an_answer_carries_the_versions_from_its_begin_to_its_end() -> None:
    state = served(12)
    sent = asyncio.run(call(state))[2]
    assert labels(sent) == [b"12"] and [m["body"] for m in sent[1:]] == [b"{}"]
    assert labels(asyncio.run(call(state, meanwhile=lambda: setattr(state, "version", 14)))[2]) == [b"12-14"]


def test_a_stream_is_passed_on_as_it_comes_and_ends_with_a_comment() -> None:
    state = served(12)
    sent = asyncio.run(call(state, stream=True, meanwhile=lambda: setattr(state, "version", 13)))[2]
    assert labels(sent) == [b"12"]
    assert [m.get("body") for m in sent[1:]] == [b"data: 1\n\n", b": apollod-weights-version 12-13\n\n"]


def test_requests_are_counted_while_they_run() -> None:
    state, seen = served(12), []
    asyncio.run(call(state, meanwhile=lambda: seen.append(state.active)))
    assert seen == [1] and state.active == 0


def test_no_salt_comes_twice_also_where_a_version_does() -> None:
    state, salts = Served(), []
    for version in (6, 7, 6, 6, 7):
        state.announce(version, salted=True)
        salts.append(json.loads(asyncio.run(call(state))[0])["cache_salt"])
    assert len(set(salts)) == 5 and max(map(len, salts)) < 28
    state.announce(8, salted=False)
    assert state.version == 8 and json.loads(asyncio.run(call(state))[0])["cache_salt"] == salts[-1]


def test_a_body_that_takes_its_time_gets_what_is_served_when_it_has_come() -> None:
    state = Served()
    state.announce(12, salted=True)
    seen: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        if state.version == 12:
            state.announce(6, salted=True)  # a rollback, in the middle of the body
            return {"type": "http.request", "body": b'{"prompt":', "more_body": True}
        return {"type": "http.request", "body": b'"x"}'}

    async def send(message: dict[str, Any]) -> None:
        assert message["headers"] == [(b"x-apollod-weights-version", b"6")]

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    asyncio.run(VersionLabels(app, state)(scope, receive, send))
    assert json.loads(seen[0])["cache_salt"] == state.salt


@pytest.mark.parametrize("path", ["/invocations", "/generative_scoring", "/v1/systemone", "/v1/messages"])
def test_other_doors_to_the_same_model_are_salted_and_labelled_too(path: str) -> None:
    body, _, sent = asyncio.run(call(served(3, "w3"), path))
    assert json.loads(body)["cache_salt"] == "w3" and labels(sent) == [b"3"]


def test_a_salted_body_has_its_own_length() -> None:
    body, headers, _ = asyncio.run(call(served(3, "w3")))
    assert (
        json.loads(body) == {"prompt": "x", "cache_salt": "w3"}
        and headers[b"content-length"] == str(len(body)).encode()
    )


@pytest.mark.parametrize(
    ("state", "path", "method"),
    [
        (served(None, "w1"), "/v1/completions", "POST"),
        (served(1, "w1"), "/train", "POST"),
        (served(1, "w1"), "/v1/models", "GET"),
        (served(1, "w1"), "/v1/completions/render", "POST"),
    ],
)
def test_everything_else_passes_untouched(state: Served, path: str, method: str) -> None:
    body, _, sent = asyncio.run(call(state, path, method=method))
    assert body == b'{"prompt":"x"}' and not labels(sent)
