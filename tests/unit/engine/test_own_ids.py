"""Every request of a client gets an id that the client did not choose."""

import asyncio
import json
from typing import Any

import pytest

from apollod.engine.capture import OwnIds, own_id, with_request_id


def asked(path: str, body: bytes = b"{}", headers: tuple[tuple[bytes, bytes], ...] = (), method: str = "POST") -> Any:
    """(header X-Request-Id, body, own id in a task of the handler) as the handler behind the middleware sees them."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ids = [value.decode() for name, value in scope["headers"] if name == b"x-request-id"]
        got = await receive()
        assert dict(scope["headers"]).get(b"content-length", str(len(got["body"])).encode()).decode() == str(
            len(got["body"])
        )
        seen.extend((ids, got["body"], await asyncio.create_task(of_a_task())))

    async def of_a_task() -> str:
        return own_id.get()

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    given = [*headers, (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "method": method, "path": path, "headers": given}
    asyncio.run(OwnIds(app)(scope, receive, lambda message: None))  # type: ignore[arg-type,return-value]
    assert scope["headers"] == given, "whoever comes before sees what the client sent"
    assert own_id.get() == ""
    return seen


SAME = ((b"X-Request-Id", b"session-1"), (b"accept", b"*/*"))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/invocations"])
def test_two_requests_with_one_id_of_their_clients_get_two_of_ours(path: str) -> None:
    body = b'{"request_id": "session-1", "n": 1.0}'
    (one, first, seen), (other, second, _) = asked(path, body, SAME), asked(path, body, SAME)
    assert len(one) == len(other) == 1 and one != other and "session-1" not in one + other
    assert seen == one[0] and first == second == body, "the header goes before the body's"


def test_responses_have_their_id_from_the_body() -> None:
    body = (
        b'{"request_id": "resp_mine", "input": "\\u00fc", "temperature": 1.50, "big": 123456789012345678901234567890}'
    )
    ids, changed, _ = asked("/v1/responses", body, SAME)
    assert json.loads(changed) == {**json.loads(body), "request_id": f"resp_{ids[0]}"}
    assert b'"\\u00fc"' in changed and b"1.50" in changed and b"123456789012345678901234567890" in changed
    assert json.loads(asked("/v1/responses", b'{"input": "x"}')[1])["request_id"].startswith("resp_")
    escaped = with_request_id(b'{"request\\u005fid": "resp_mine"}', "resp_1")
    assert json.loads(escaped) == {"request_id": "resp_1"}


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b"{", b'{"a": NaN}', '{"input": "x"}'.encode("utf-16"), b'{"a":' + b"[" * 100_000]
)
def test_what_is_no_json_object_reaches_vllm_as_it_is(body: bytes) -> None:
    assert asked("/v1/responses", body)[1] == body


def test_reading_has_no_id() -> None:
    assert asked("/v1/models", headers=SAME[:1], method="GET")[2] == ""
