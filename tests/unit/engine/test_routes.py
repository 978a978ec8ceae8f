"""HTTP routes and refreshing, with a stand-in supervisor on a real socket and a stand-in engine; no model."""

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from support.engine_host import Host

from apollod.engine import prefixes
from apollod.engine.routes import BODY_BYTES_MAX, Routes, plugin
from apollod.errors import ConfigError
from apollod.wire import messages as msg

RECORD = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
KEY = {"Authorization": "Bearer secret"}


class Engine:
    """What vLLM's EngineClient is asked for; `busy` prefix-cache resets fail first."""

    def __init__(self) -> None:
        self.busy = 0
        self.broken = False
        self.calls: list[Any] = []

    async def collective_rpc(self, method: str) -> list[int]:
        if self.broken:
            raise RuntimeError("engine core died")
        self.calls.append(method)
        return [3]

    async def update_weight_version(self, version: str) -> None:
        self.calls.append(version)

    async def reset_prefix_cache(self) -> bool:
        self.calls.append("reset")
        self.busy -= 1
        return self.busy < 0


class Server:
    def __init__(self, directory: Path, api_key: list[str] | None) -> None:
        self.host = Host(directory)
        self.engine = Engine()
        self.routes = Routes(str(self.host.path))
        self.app = FastAPI()
        self.routes.attach_router(self.app)
        self.client = TestClient(self.app)
        self.args = Namespace(api_key=api_key)


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(tmp_path, getattr(request, "param", None))
    with made.client as client:
        assert client.portal is not None
        client.portal.call(made.routes.init_state, made.engine, made.app.state, made.args)
        yield made
    made.host.close()


def submitted(server: Server) -> list[bytes]:
    last = server.host.requests[-1]
    assert isinstance(last, msg.SubmitRequest) and last.source == "http"
    return last.lines


def test_train_takes_one_record_or_several(server: Server) -> None:
    server.host.answerer = lambda request: msg.Reply({"examples": ["i"], "duplicates": 0, "rejected": []})
    answer = server.client.post("/train", json=RECORD)
    assert (answer.status_code, answer.json()) == (202, {"examples": ["i"], "duplicates": 0, "rejected": []})
    assert len(submitted(server)) == 1
    server.client.post("/train", json={"examples": [RECORD, {"prompt": "x", "completion": "ü"}]})
    assert submitted(server)[1] == '{"prompt":"x","completion":"ü"}'.encode()


def test_all_rejected_is_400_some_rejected_is_202(server: Server) -> None:
    body = {"examples": [], "duplicates": 0, "rejected": [{"line": 0, "reason": "no assistant turn"}]}
    server.host.answerer = lambda request: msg.Reply(body)
    answer = server.client.post("/train", json={"messages": []})
    assert answer.status_code == 400
    assert "no assistant turn" in answer.json()["error"] and answer.json()["hint"] and answer.json()["rejected"]
    for better in ({"examples": ["i"]}, {"duplicates": 1}):
        server.host.answerer = lambda request, better=better: msg.Reply({**body, **better})
        assert server.client.post("/train", json=RECORD).status_code == 202


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[]", b'{"examples":[]}', b'{"examples":7}', b""])
def test_a_body_that_is_no_record_is_400(server: Server, body: bytes) -> None:
    answer = server.client.post("/train", content=body)
    assert answer.status_code == 400 and set(answer.json()) == {"error", "hint"}
    assert not server.host.requests


def test_a_body_over_the_limit_is_413(server: Server) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(BODY_BYTES_MAX // (1 << 20) + 1):
            yield b" " * (1 << 20)

    answer = server.client.post("/train", content=chunks())
    assert answer.status_code == 413 and answer.json()["hint"]


@pytest.mark.parametrize(("code", "status"), [(1, 409), (2, 400), (3, 503), (4, 403), (5, 409)])
def test_a_refusal_keeps_its_hint(server: Server, code: int, status: int) -> None:
    server.host.answerer = lambda request: msg.Failure("no", "do this", code)
    for answer in (server.client.post("/checkpoint"), server.client.get("/apollod/status"), server.client.get("/train/status")):
        assert (answer.status_code, answer.json()) == (status, {"error": "no", "hint": "do this"})


def test_what_may_be_granted_later_is_503(server: Server) -> None:
    server.host.answerer = lambda request: msg.Failure("the disk is full", "free some", retryable=True)
    assert server.client.post("/train", json={"text": "t"}).status_code == 503


def test_no_supervisor_is_503(server: Server) -> None:
    server.host.path.unlink()
    answer = server.client.get("/apollod/status")
    assert answer.status_code == 503 and "apollod run" in answer.json()["hint"]


@pytest.mark.parametrize("server", [["other", "secret"]], indirect=True)
def test_the_engines_key_is_asked_for(server: Server) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}, {"Authorization": "secret"}):
        for method, path in (("POST", "/train"), ("POST", "/checkpoint"), ("GET", "/train/status"), ("GET", "/apollod/status")):
            answer = server.client.request(method, path, headers=headers)
            assert answer.status_code == 401 and set(answer.json()) == {"error", "hint"}
    assert not server.host.requests
    assert server.client.get("/apollod/status", headers=KEY).status_code == 200


def test_the_key_of_the_environment_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    server = Server(tmp_path, None)
    with server.client as client:
        assert client.portal is not None
        client.portal.call(server.routes.init_state, server.engine, server.app.state, server.args)
        assert client.get("/apollod/status").status_code == 401
        assert client.get("/apollod/status", headers=KEY).status_code == 200
    server.host.close()


def test_refresh_rederives_labels_and_forgets(server: Server) -> None:
    answer = server.host.refresh(5)
    assert (answer.version, answer.rederived, answer.error) == (5, 3, "")
    assert server.engine.calls == ["apollod_rederive", "5", "reset"]


def test_a_busy_prefix_cache_is_reset_later(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "RETRY_S", 0.01)
    server.engine.busy = 3
    assert server.host.refresh(1).error == ""
    deadline = time.monotonic() + 5
    while server.engine.calls.count("reset") < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.engine.calls.count("reset") == 4
    server.host.refresh(2)
    assert server.engine.calls.count("reset") == 5


def test_a_failed_refresh_is_reported_and_the_next_one_works(server: Server) -> None:
    server.engine.broken = True
    assert server.host.refresh(1).error == "RuntimeError: engine core died"
    server.engine.broken = False
    assert server.host.refresh(2).error == ""


def test_the_plugin_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("APOLLOD_SOCKET", raising=False)
    with pytest.raises(ConfigError, match="APOLLOD_SOCKET"):
        plugin()
    monkeypatch.setenv("APOLLOD_SOCKET", "/x")
    assert plugin().name == "apollod"
