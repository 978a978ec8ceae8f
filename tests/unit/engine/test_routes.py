"""HTTP routes and refreshing, with a stand-in supervisor on a real socket and a stand-in engine; no model."""

import os
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.routing import Route
from support.engine_host import Host

from apollod.core.facts.quality.sequential import Baseline
from apollod.core.facts.quality.state import Incident, QualityState
from apollod.core.settings import Check, PatternSettings
from apollod.core.state import State
from apollod.engine import refresh
from apollod.engine.http.exchange import BODY_BYTES_MAX
from apollod.engine.http.guard import Guard
from apollod.engine.http.routes import Routes, plugin
from apollod.errors import ConfigError
from apollod.supervisor.status_view import status_view
from apollod.wire import messages as msg
from apollod.wire import status as st
from apollod.wire.status import Journal

RECORD = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
KEY = {"Authorization": "Bearer secret"}
JSON = {"Content-Type": "application/json"}
COMPLETIONS = "/v1/completions"
CHANGES = ("POST", "PUT", "PATCH", "DELETE")


class Engine:
    """What vLLM's EngineClient is asked for; `busy` prefix-cache resets fail first."""

    def __init__(self) -> None:
        self.busy = 0
        self.broken = False
        self.derived = 3
        self.calls: list[Any] = []

    def generate(self, *arguments: Any) -> Any:
        raise AssertionError("the stand-in of vLLM's route does not ask its engine")

    async def collective_rpc(self, method: str) -> list[int]:
        if self.broken:
            raise RuntimeError("engine core died")
        self.calls.append(method)
        return [self.derived]

    async def update_weight_version(self, version: str) -> None:
        self.calls.append(version)

    async def reset_prefix_cache(self) -> bool:
        self.calls.append("reset")
        self.busy -= 1
        return self.busy < 0


async def echo(body: dict[str, Any]) -> dict[str, Any]:
    """In the place of a route of vLLM's."""
    return body


class Server:
    def __init__(self, directory: Path, api_key: list[str] | None) -> None:
        self.host = Host(directory)
        self.engine = Engine()
        self.routes = Routes(str(self.host.path), directory / "key")
        self.app = FastAPI()
        self.routes.attach_router(self.app)
        self.app.add_api_route(COMPLETIONS, echo, methods=["POST"])
        self.client = TestClient(self.app, base_url="http://127.0.0.1:8000")
        if not (api_key or os.environ.get("VLLM_API_KEY")):  # without a connection it is nobody's process
            (directory / "key").touch(0o600)
            (directory / "key").write_text("of the file")
            self.client.headers["Authorization"] = "Bearer of the file"
        self.args = Namespace(api_key=api_key, host="127.0.0.1", scheduling_policy="priority")


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


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b"[]", b'{"examples":[]}', b'{"examples":7}', b"", b"[" * 100_000, b'{"a":' * 100_000]
)
def test_a_body_that_is_no_record_is_400(server: Server, body: bytes) -> None:
    answer = server.client.post("/train", content=body, headers=JSON)
    assert answer.status_code == 400 and set(answer.json()) == {"error", "hint"}
    assert not server.host.requests


def test_a_body_over_the_limit_is_413(server: Server) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(BODY_BYTES_MAX // (1 << 20) + 1):
            yield b" " * (1 << 20)

    answer = server.client.post("/train", content=chunks(), headers=JSON)
    assert answer.status_code == 413 and answer.json()["hint"]


@pytest.mark.parametrize("path", ["/train", "/feedback", "/lessons"])
def test_whoever_leaves_in_the_middle_of_a_body_is_no_error_of_the_server(server: Server, path: str) -> None:
    """The server would write a traceback into the engine's log each time."""
    parts = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        pass

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    headers += [(b"authorization", server.client.headers["authorization"].encode()), (b"content-length", b"100")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    assert server.client.portal is not None
    server.client.portal.call(server.app, scope, receive, send)
    assert not parts and not server.host.requests


@pytest.mark.parametrize("count", [1000, 1001, 100_000])
def test_as_many_records_as_a_command_gives_at_once_and_no_more(server: Server, count: int) -> None:
    server.host.answerer = lambda request: msg.Reply({"examples": ["i"], "duplicates": 0, "rejected": []})
    answer = server.client.post("/train", content=b'{"examples":[' + b",".join([b"{}"] * count) + b"]}", headers=JSON)
    assert answer.status_code == (202 if count == 1000 else 413), answer.json()
    assert len(server.host.requests) == (count == 1000)


def test_who_waits_for_the_status_or_a_checkpoint_keeps_nobody_else_waiting(server: Server) -> None:
    """Eighty of each wait for a supervisor that does not answer them."""
    answered = threading.Event()

    def answerer(request: msg.Request) -> msg.Answer:
        if isinstance(request, msg.StatusRequest | msg.CheckpointRequest):
            assert answered.wait(60)
        return msg.Reply({"examples": ["i"], "duplicates": 0, "rejected": []})

    server.host.answerer = answerer
    with ThreadPoolExecutor(160) as clients:
        waiting = [clients.submit(server.client.get, "/apollod/status") for _ in range(80)]
        waiting += [clients.submit(server.client.post, "/checkpoint") for _ in range(80)]
        while sum(isinstance(one, msg.StatusRequest | msg.CheckpointRequest) for one in server.host.requests) < 12:
            time.sleep(0.01)
        assert server.client.post("/train", json=RECORD).status_code == 202
        assert not any(one.done() for one in waiting)
        answered.set()
        assert {one.result().status_code for one in waiting} == {200}


@pytest.mark.parametrize(("code", "status"), [(1, 409), (2, 400), (3, 503), (4, 403), (5, 409)])
def test_a_refusal_keeps_its_hint(server: Server, code: int, status: int) -> None:
    server.host.answerer = lambda request: msg.Failure("no", "do this", code)
    for answer in (
        server.client.post("/checkpoint"),
        server.client.get("/apollod/status"),
        server.client.get("/apollod/quality"),
        server.client.get("/train/status"),
    ):
        assert (answer.status_code, answer.json()) == (status, {"error": "no", "hint": "do this"})


def test_what_may_be_granted_later_is_503(server: Server) -> None:
    server.host.answerer = lambda request: msg.Failure("the disk is full", "free some", retryable=True)
    assert server.client.post("/train", json={"text": "t"}).status_code == 503


def test_no_supervisor_is_503(server: Server) -> None:
    server.host.path.unlink()
    for path in ("/apollod/status", "/apollod/quality"):
        answer = server.client.get(path)
        assert answer.status_code == 503 and "apollod run" in answer.json()["hint"]


def test_quality_is_that_of_the_status_and_costs_one_question(server: Server) -> None:
    own = QualityState(number=4, baseline={"facts.passed": Baseline({"a": 1.0}, 0.0)}, at=0, incidents=2)
    own.last, own.incident = {"facts.passed": {"a": 0.0}}, Incident(2, 9, 3, ("facts.passed",), "searching")
    status = status_view(State(quality=own), 0, Journal(seq=0, bytes=0, head_hash=""))
    server.host.answerer = lambda request: msg.Reply(status)
    answer = server.client.get("/apollod/quality")
    assert answer.status_code == 200 and server.host.requests == [msg.StatusRequest()]
    told = answer.json()
    assert told == {"schema_version": st.SCHEMA_VERSION, **st.plain(status)["quality"]}
    assert (told["incidents"], told["incident"]["number"], told["incident"]["phase"]) == (2, 2, "searching")
    (metric,) = told["metrics"]
    assert set(metric) == {"name", "value", "baseline", "drop", "low", "high", "margin", "alarmed"}
    assert metric["name"] == "facts.passed" and metric["value"] == 0.0 and metric["alarmed"]
    server.host.answerer = lambda request: msg.Reply({"none": 1})
    assert server.client.get("/apollod/quality").status_code == 500
    assert server.client.post("/apollod/quality").status_code == 405


@pytest.mark.parametrize("server", [["other", "secret"]], indirect=True)
def test_the_engines_key_is_asked_for(server: Server) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic secret"},
        {"Authorization": "secret"},
    ):
        for method, path in (
            ("POST", "/train"),
            ("POST", "/checkpoint"),
            ("POST", "/generate"),
            ("GET", "/train/status"),
            ("GET", "/apollod/status"),
            ("GET", "/apollod/quality"),
        ):
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


# --- what a web page could send ------------------------------------------------------------------------------------


def changing(server: Server) -> list[tuple[str, str]]:
    """(method, path) of every route of ours that changes something, read off the app itself."""
    others = {COMPLETIONS, *(route.path for route in FastAPI().routes if isinstance(route, Route))}
    ours = [route for route in server.app.routes if isinstance(route, Route) and route.path not in others]
    return [(method, route.path) for route in ours for method in sorted(route.methods or ()) if method in CHANGES]


@pytest.mark.parametrize(
    ("headers", "status", "named"),
    [
        ({"Content-Type": "text/plain"}, 415, "text/plain"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "urlencoded"),
        ({**JSON, "Origin": "https://evil.example"}, 403, "evil.example"),
        ({**JSON, "Origin": "null"}, 403, "null"),
        ({**JSON, "Origin": "http://127.0.0.1:3000"}, 403, "127.0.0.1:3000"),
        ({**JSON, "Host": "evil.example:8000", "Origin": "http://evil.example:8000"}, 403, "evil.example"),
        ({**JSON, "Host": "127.0.0.1.evil.example"}, 403, "evil.example"),
    ],
)
def test_no_route_of_ours_lets_a_web_page_change_anything(
    server: Server, headers: dict[str, str], status: int, named: str
) -> None:
    assert {("POST", "/train"), ("POST", "/checkpoint"), ("POST", "/generate")} <= set(changing(server))
    for method, path in changing(server):
        answer = server.client.request(method, path, content=b'{"text": "t"}', headers=headers)
        assert (answer.status_code, set(answer.json())) == (status, {"error", "hint"}), path
        assert named in answer.json()["error"] and answer.json()["hint"]
    assert not server.host.requests


def test_no_route_of_ours_tells_a_web_page_anything(server: Server) -> None:
    reads = [
        route.path for route in server.app.routes
        if isinstance(route, Route) and route.path.startswith(("/apollod", "/train", "/feedback", "/lessons"))
        and "GET" in (route.methods or ())
    ]  # fmt: skip
    assert {"/train/status", "/apollod/status", "/apollod/quality", "/lessons/{lesson}"} <= set(reads)
    for path in reads:
        for headers in ({"Host": "evil.example:8000"}, {"Origin": "https://evil.example"}):
            answer = server.client.get(path, headers=headers)
            assert answer.status_code == 403 and "evil.example" in answer.json()["error"], path
    assert not server.host.requests
    assert server.client.get("/apollod/status", headers={"Origin": "http://127.0.0.1:8000"}).status_code == 200


@pytest.mark.parametrize(
    ("within_s", "status"), [("0", 200), ("0.01", 200), ("nan", 400), ("-1", 400), ("61", 400), ("x", 400)]
)
def test_whoever_waits_for_a_user_says_for_how_long(server: Server, within_s: str, status: int) -> None:
    answer = server.client.get("/apollod/users/next", params={"within_s": within_s})
    assert answer.status_code == status
    assert answer.json() == {"came": False} if status == 200 else set(answer.json()) == {"error", "hint"}


def test_a_body_of_no_type_is_415(server: Server) -> None:
    assert server.client.post("/train", content=b'{"text": "t"}').status_code == 415
    assert not server.host.requests


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:9000", "LOCALHOST.", "[::1]:8000", "[::1]"])
def test_the_servers_own_addresses_and_pages_may_train(server: Server, host: str) -> None:
    server.host.answerer = lambda request: msg.Reply({"examples": ["i"], "duplicates": 0, "rejected": []})
    for more in ({}, {"Origin": f"http://{host}"}):
        answer = server.client.post("/train", json=RECORD, headers={"Host": host, **more})
        assert answer.status_code == 202, answer.json()


def test_the_names_of_the_configuration_may_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APOLLOD_HTTP_NAMES", "Apollo.lan,web.lan:3000")
    server = Server(tmp_path, None)
    server.host.answerer = lambda request: msg.Reply({"examples": ["i"], "duplicates": 0, "rejected": []})
    with server.client as client:
        assert client.portal is not None
        client.portal.call(server.routes.init_state, server.engine, server.app.state, server.args)
        for host, origin, status in (
            ("apollo.lan:8000", "https://apollo.lan", 202),
            ("127.0.0.1:8000", "http://web.lan:3000", 202),
            ("127.0.0.1:8000", "http://web.lan:3001", 403),
            ("other.lan:8000", "https://apollo.lan", 403),
        ):
            headers = {"Host": host, "Origin": origin}
            assert client.post("/train", json=RECORD, headers=headers).status_code == status, headers
    server.host.close()


@pytest.mark.parametrize("server", [["secret"]], indirect=True)
def test_with_a_key_a_proxy_may_leave_its_name_and_pages_from_elsewhere_still_may_not(server: Server) -> None:
    server.host.answerer = lambda request: msg.Reply({"examples": ["i"], "duplicates": 0, "rejected": []})
    named = {**KEY, "Host": "apollo.example"}
    assert server.client.post("/train", json=RECORD, headers=named).status_code == 202
    assert server.client.post("/train", json=RECORD, headers={**named, "Origin": "http://x.example"}).status_code == 403
    assert (
        server.client.post("/train", content=b"{}", headers={**named, "Content-Type": "text/plain"}).status_code == 415
    )


@pytest.mark.parametrize(
    ("listener", "host", "open_"),
    [
        ("0.0.0.0", "192.168.1.7:8000", True),
        ("::", "[fe80::1]:8000", True),
        ("0.0.0.0", "gpu-box:8000", False),
        ("192.168.1.7", "192.168.1.7", True),
        ("192.168.1.7", "192.168.1.8", False),
        ("::1", "[::1]:8000", True),
        ("gpu-box", "gpu-box:8000", True),
        ("127.0.0.1", "", False),
    ],
)
def test_the_host_is_an_address_of_the_listener(listener: str, host: str, open_: bool) -> None:
    headers = [(b"host", host.encode()), (b"content-type", b"application/json; charset=utf-8")]
    assert (Guard(listener).refusal("POST", headers) is None) == open_
    assert (Guard(listener).refusal("GET", headers[:1]) is None) == open_
    assert Guard(listener).refusal("OPTIONS", headers) is None


def test_two_hosts_or_none_are_no_host_of_ours() -> None:
    json = (b"content-type", b"application/json")
    assert Guard("127.0.0.1").refusal("POST", [json])
    assert Guard("127.0.0.1").refusal("POST", [json, (b"host", b"127.0.0.1"), (b"host", b"evil.example")])


# --- refreshes -----------------------------------------------------------------------------------------------------


def test_refresh_rederives_labels_and_forgets(server: Server) -> None:
    answer = server.host.refresh(5)
    assert (answer.version, answer.rederived, answer.error) == (5, 3, "")
    assert server.engine.calls == ["apollod_rederive", "5", "reset"]


def test_an_engine_that_derives_nothing_is_asked_once(server: Server) -> None:
    """A step costs no call of the worker then; what is derived is settled at loading."""
    server.engine.derived = 0
    assert [server.host.refresh(version).rederived for version in (1, 2)] == [0, 0]
    assert server.engine.calls == ["apollod_rederive", "1", "reset", "2", "reset"]


def test_a_busy_prefix_cache_is_reset_later(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "RETRY_S", 0.01)
    server.engine.busy = 3
    assert server.host.refresh(1).error == ""
    deadline = time.monotonic() + 5
    while server.engine.calls.count("reset") < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.engine.calls.count("reset") == 4
    server.host.refresh(2)
    assert server.engine.calls.count("reset") == 5


def salt(server: Server) -> str:
    """What a request that comes now is given."""
    return str(server.client.post("/v1/completions", json={"prompt": "p"}).json().get("cache_salt", ""))


@pytest.mark.parametrize("forget", ["reset", "salt"])
def test_on_a_busy_server_no_request_finds_a_prefix_of_before_from_the_announcement_on(
    server: Server, forget: Literal["reset", "salt"]
) -> None:
    """Version 2 comes, then 1 comes back by a rollback: each is announced before vLLM has dropped anything."""
    server.engine.busy = 1000
    salts = [salt(server)]
    for version in (1, 2, 1):
        server.host.refresh(version, forget)
        salts.append(salt(server))
    assert salts[0] == "" and len(set(salts)) == 4
    assert salt(server) == salts[-1], "prefixes of the same weights are shared"
    server.host.refresh(2, "keep")
    assert salt(server) == salts[-1]


def test_after_a_refresh_that_failed_nothing_of_before_is_found_either(server: Server) -> None:
    server.host.refresh(1, "reset")
    was = salt(server)
    server.engine.broken = True
    assert server.host.refresh(2, "reset").error
    assert salt(server) != was


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


def test_feedback_is_one_request_and_its_answer(server: Server) -> None:
    server.host.answerer = lambda request: msg.Reply({"rating": "bad"})
    body = {"response_id": "chatcmpl-1", "rating": "bad", "correction": "so", "comment": None, "choice": 1}
    answer = server.client.post("/feedback", json=body)
    assert (answer.status_code, answer.json()) == (200, {"rating": "bad"})
    assert server.host.requests[-1] == msg.FeedbackRequest("chatcmpl-1", "bad", "so", "", 1, by="http")
    assert server.client.get("/feedback/my/own id?choice=2").status_code == 200
    assert server.host.requests[-1] == msg.FeedbackQuestion("my/own id", 2)


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"{}", b'{"response_id":1,"rating":"good"}', b'{"response_id":"r","rating":"fine"}',
     b'{"response_id":"r","rating":"good","corection":"x"}', b"\xff"],
)  # fmt: skip
def test_what_is_no_feedback_is_400_with_what_to_send(server: Server, body: bytes) -> None:
    answer = server.client.post("/feedback", content=body, headers=JSON)
    assert answer.status_code == 400 and "response_id" in answer.json()["hint"]
    assert server.client.get("/feedback/r?choice=first").status_code == 400
    assert not server.host.requests


def test_an_answer_that_is_not_kept_is_404(server: Server) -> None:
    server.host.answerer = lambda request: msg.Failure("no answer r is kept", "give the id", missing=True)
    answer = server.client.get("/feedback/r")
    assert (answer.status_code, answer.json()) == (404, {"error": "no answer r is kept", "hint": "give the id"})


@pytest.mark.parametrize("server", [["secret"]], indirect=True)
def test_feedback_asks_for_the_key(server: Server) -> None:
    assert server.client.post("/feedback", json={}).status_code == 401
    assert server.client.get("/feedback/r").status_code == 401


# --- lessons ----------------------------------------------------------------------------------------------------------


def test_a_lesson_is_one_request_and_202_with_its_id(server: Server) -> None:
    server.host.answerer = lambda request: msg.Reply({"lesson": "L3", "state": "waiting"})
    answer = server.client.post("/lessons", json={"question": "Where?", "answer": "There.", "replaces": "L1"})
    assert (answer.status_code, answer.json()) == (202, {"lesson": "L3", "state": "waiting"})
    assert server.host.requests[-1] == msg.TeachRequest("", "Where?", "There.", "L1", by="http")
    assert server.client.post("/lessons", json={"statement": "It is there."}).status_code == 202
    assert server.host.requests[-1] == msg.TeachRequest("It is there.", by="http")
    assert server.client.get("/lessons/L3").json() == {"lesson": "L3", "state": "waiting"}
    assert server.host.requests[-1] == msg.LessonQuestion("L3")


def test_a_document_is_one_request_and_202_with_its_lessons(server: Server) -> None:
    server.host.answerer = lambda request: msg.Reply({"document": "N.md", "given": ["L3"]})
    body = {"document": "It is so.", "name": "N.md", "questions": [{"question": "Q?", "answer": "A"}]}
    answer = server.client.post("/lessons", json=body)
    assert (answer.status_code, answer.json()) == (202, {"document": "N.md", "given": ["L3"]})
    assert server.host.requests[-1] == msg.TeachDocumentRequest("N.md", b"It is so.", [("Q?", "A")], by="http")
    server.client.post("/lessons", json={"document": "It is.", "forget_removed": True})
    assert server.host.requests[-1] == msg.TeachDocumentRequest("document.md", b"It is.", [], True, "http")
    assert server.client.post("/lessons", json={"document": "It is.", "statement": "It is."}).status_code == 400


def test_a_behaviour_is_one_request_and_202_with_its_name(server: Server) -> None:
    server.host.answerer = lambda request: msg.Reply({"lesson": "brief", "state": "waiting"})
    body = {"instruction": "Be brief.", "name": "brief", "check_regex": "^.{0,80}$"}
    answer = server.client.post("/lessons", json=body)
    assert (answer.status_code, answer.json()) == (202, {"lesson": "brief", "state": "waiting"})
    brief = PatternSettings("brief", "Be brief.", check=Check(regex="^.{0,80}$"))
    assert server.host.requests[-1] == msg.TeachRequest(by="http", pattern=brief)
    server.client.post("/lessons", json={"instruction": "Be brief.", "rubric": "names count"})
    judged = PatternSettings("", "Be brief.", check=Check(rubric="names count"))
    assert server.host.requests[-1] == msg.TeachRequest(by="http", pattern=judged)
    asked = len(server.host.requests)
    for more in ({"check": {"command": ["id"]}}, {"command": ["id"]}, {"seeds": ["/etc"]}, {"statement": "x"}):
        assert server.client.post("/lessons", json={"instruction": "Be brief.", **more}).status_code == 400
    assert len(server.host.requests) == asked, "over HTTP nothing is run, and no file is read"


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'{"statement":1}', b'{"instruction":1}', b'{"statment":"x"}', b'{"statement":null}', b"\xff", b""],
)
def test_what_is_no_lesson_is_400_with_what_to_send(server: Server, body: bytes) -> None:
    answer = server.client.post("/lessons", content=body, headers=JSON)
    assert answer.status_code == 400 and '{"statement": TEXT}' in answer.json()["hint"]
    assert not server.host.requests


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (msg.Failure("the lesson is empty", "give a statement", code=2), 400),
        (msg.Failure("there is no lesson L9", "see the list", missing=True), 404),
        (msg.Failure("lesson L1 was replaced by L2 already", "replace L2 instead"), 409),
    ],
)
def test_a_lesson_that_is_refused_says_why(server: Server, failure: msg.Failure, status: int) -> None:
    server.host.answerer = lambda request: failure
    for answer in (server.client.post("/lessons", json={}), server.client.get("/lessons/L9")):
        assert (answer.status_code, answer.json()) == (status, {"error": failure.error, "hint": failure.hint})


@pytest.mark.parametrize("server", [["secret"]], indirect=True)
def test_lessons_ask_for_the_key_and_for_a_name_of_the_server(server: Server) -> None:
    assert server.client.post("/lessons", json={}).status_code == 401
    assert server.client.get("/lessons/L1").status_code == 401
    page = {**KEY, "Origin": "http://x.example"}
    assert server.client.post("/lessons", json={"statement": "x"}, headers=page).status_code == 403
    assert not server.host.requests
