"""Who may ask routes of ours over a loopback address: real processes of several users, and the server that vLLM has."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from support.engine_host import Host
from support.other_user import NOBODY, needs_root, open_place

from apollod.adapters.system.web_address import is_loopback
from apollod.engine.http import callers
from apollod.engine.http.callers import Callers, key_in
from apollod.engine.http.routes import Routes
from apollod.testing.daemon import free_port
from apollod.wire import messages as msg

ROUTES = [
    ("POST", "/train"), ("GET", "/train/status"), ("POST", "/checkpoint"), ("POST", "/feedback"),
    ("GET", "/feedback/r"), ("POST", "/lessons"), ("GET", "/lessons/L1"), ("GET", "/apollod/status"),
    ("GET", "/apollod/quality"), ("GET", "/apollod/users/next"), ("POST", "/generate"), ("POST", "/score"),
]  # fmt: skip
KEY = "the key of the file"
OWNER = 4242

ASKING = """
import encodings.idna, http.client, json, os, socket, struct, sys
uid, port, requests, headers, leaving = json.loads(sys.argv[1])
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
answers = []
for method, path in requests:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = b'{"text": "t", "statement": "s"}' if method == "POST" else None
    connection.request(method, path, body, {**({"Content-Type": "application/json"} if body else {}), **headers})
    if leaving == "reset":
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if leaving:
        connection.sock.close()
        continue
    answer = connection.getresponse()
    answers.append([answer.status, json.loads(answer.read())])
    connection.close()
print(json.dumps(answers))
"""


def all_asked(
    uid: int,
    port: int,
    requests: list[tuple[str, str]],
    headers: dict[str, str] = {},  # noqa: B006
    leaving: str = "",
) -> list[Any]:
    """Status and body of each request by a process of that user, one connection after the other; nothing where it
    leaves without waiting for them."""
    arguments = json.dumps([uid, port, requests, headers, leaving])
    done = subprocess.run([sys.executable, "-c", ASKING, arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


def asked(uid: int, port: int, method: str, path: str, headers: dict[str, str] = {}) -> Any:  # noqa: B006
    """Status and body of one."""
    (answer,) = all_asked(uid, port, [(method, path)], headers)
    return answer


class Server:
    """Our routes behind uvicorn, in a thread."""

    def __init__(self, directory: Path, host: str = "127.0.0.1", loop: str = "uvloop", http: str = "httptools") -> None:
        self.host = Host(directory)
        self.host.answerer = lambda request: msg.Reply({"examples": ["i"], "duplicates": 0, "rejected": []})
        self.key = directory / "key"
        self.app = FastAPI()
        self.port = free_port()
        routes = Routes(str(self.host.path), self.key)
        routes.attach_router(self.app)
        asyncio.run(
            routes.init_state(
                Engine(), self.app.state, Namespace(api_key=None, host=host, scheduling_policy="priority")
            )
        )
        config = uvicorn.Config(self.app, host, self.port, loop=loop, http=http, log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self) -> "Server":
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.host.close()

    def ask(self, uid: int, method: str, path: str, headers: dict[str, str] = {}) -> Any:  # noqa: B006
        return asked(uid, self.port, method, path, headers)


class Engine:
    """In the place of vLLM's client, which these routes do not ask."""

    def generate(self, *arguments: Any) -> Any:
        raise AssertionError("nothing is generated here")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as made:
        yield made


@pytest.mark.parametrize(("loop", "http"), [("uvloop", "httptools"), ("asyncio", "h11")])
def test_the_daemons_own_user_needs_no_key(tmp_path: Path, loop: str, http: str) -> None:
    with Server(tmp_path, loop=loop, http=http) as server:
        assert server.ask(os.getuid(), "POST", "/train")[0] == 202
        assert server.ask(os.getuid(), "POST", "/train", {"Authorization": "Bearer EMPTY"})[0] == 202
        assert len(server.host.requests) == 2


@needs_root
def test_another_user_is_refused_on_every_route_of_ours_with_the_way_out(server: Server) -> None:
    for (_, path), (status, body) in zip(ROUTES, all_asked(NOBODY, server.port, ROUTES), strict=True):
        assert status == 403 and set(body) == {"error", "hint"}, path
        assert "uid 0" in body["error"] and "api_key" in body["hint"] and "`key`" in body["hint"]
    ours = {route.path for route in server.app.routes} - {route.path for route in FastAPI().routes}  # type: ignore[attr-defined]
    assert len(ours) == len(ROUTES), "a route is missing here"
    assert not server.host.requests


@needs_root
@pytest.mark.parametrize("leaving", ["closed", "reset"])
def test_another_user_who_leaves_at_once_is_refused_too(server: Server, leaving: str) -> None:
    """The system's table has uid 0 for the other end of a connection that was closed."""
    assert all_asked(NOBODY, server.port, [("POST", "/train")] * 10, leaving=leaving) == []
    assert server.ask(NOBODY, "POST", "/train")[0] == 403
    assert not server.host.requests


@needs_root
def test_another_user_who_names_a_connection_of_ours_in_a_header_is_refused(server: Server) -> None:
    with closing(socket.create_connection(("127.0.0.1", server.port))) as own:
        name = "{}:{}".format(*own.getsockname())
        assert server.ask(NOBODY, "POST", "/train", {"X-Forwarded-For": name})[0] == 403
    assert not server.host.requests


@needs_root
def test_the_key_of_the_file_opens_every_route_to_another_user(server: Server) -> None:
    def train(key: str) -> int:
        return int(server.ask(NOBODY, "POST", "/train", {"Authorization": f"Bearer {key}"})[0])

    assert train(KEY) == train("") == 403
    server.key.write_text(f"{KEY}\n")
    server.key.chmod(0o644)
    assert train(KEY) == 403, "others could have read it"
    server.key.chmod(0o600)
    assert (train(KEY), train("wrong"), train("")) == (202, 403, 403)
    server.key.write_text("\n")
    assert train("") == train(KEY) == 403, "an empty file is no key"


@needs_root
def test_a_daemon_of_another_user_serves_that_user_and_root() -> None:
    """Whoever is let in gets 503: there is no supervisor."""
    serving = f"""
import asyncio, os, sys
from argparse import Namespace
import uvicorn
from uvicorn.protocols.http import httptools_impl
from fastapi import FastAPI
from apollod.engine.http.routes import Routes
from support.fork_server import said
os.setgroups([]); os.setgid({OWNER}); os.setuid({OWNER})
app, routes = FastAPI(), Routes("/nonexistent")
routes.attach_router(app)

class Unreachable:
    generate = None

try:
    args = Namespace(api_key=None, host="127.0.0.1", scheduling_policy="priority")
    asyncio.run(routes.init_state(Unreachable(), app.state, args))
except Exception as error:
    assert "no apollod answers" in str(error), error
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", loop="asyncio")
"""
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with open_place() as place:
        process = subprocess.Popen([sys.executable, "-c", serving, str(port)], env=environment, cwd=place)
        try:
            while True:
                assert process.poll() is None
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    continue
            found = {uid: asked(uid, port, "POST", "/train") for uid in (OWNER, 0, NOBODY)}
        finally:
            process.kill()
            process.wait()
    assert {uid: status for uid, (status, _) in found.items()} == {OWNER: 503, 0: 503, NOBODY: 403}
    assert f"uid {OWNER}" in found[NOBODY][1]["error"]


def test_where_the_connection_is_hidden_only_a_key_opens(tmp_path: Path) -> None:
    """As by a middleware of starlette's that reads bodies ahead, if one is named in [engine] args."""
    server = Server(tmp_path)

    @server.app.middleware("http")
    async def between(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    with server:
        assert server.ask(os.getuid(), "POST", "/train")[0] == 403
        server.key.touch(0o600)
        server.key.write_text(KEY)
        assert server.ask(os.getuid(), "POST", "/train", {"Authorization": f"Bearer {KEY}"})[0] == 202


@needs_root
@pytest.mark.parametrize("why", ["an address that others reach", "no table"])
def test_where_users_are_not_told_apart_it_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "no table":
        monkeypatch.setattr(callers, "TABLES", (tmp_path / "none", tmp_path / "none either"))
    with Server(tmp_path, "127.0.0.1" if why == "no table" else "0.0.0.0") as server:
        assert server.ask(NOBODY, "POST", "/train")[0] == 202


@pytest.mark.parametrize(
    ("host", "is_one"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("localhost", True), ("::1", True), ("[::1]", True), ("", False),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("gpu-box", False)],
)  # fmt: skip
def test_loopback_addresses(host: str, is_one: bool) -> None:
    assert is_loopback(host) == is_one


def test_a_configured_key_is_asked_of_everybody_and_the_file_opens_as_well(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_text(KEY)
    callers = Callers("127.0.0.1", ["configured"], file)

    def status(authorization: str) -> int:
        refused = asyncio.run(callers.refusal({}, authorization))
        return refused.status if refused else 0

    assert [status(f"Bearer {key}") for key in ("configured", KEY, "other", "")] == [0, 0, 401, 401]
    assert [status(given) for given in ("", KEY, f"Basic {KEY}", "bearer configured")] == [401, 401, 401, 0]


def test_what_is_no_key_file_has_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "directory").mkdir(0o700)
    (tmp_path / "binary").touch(0o600)
    (tmp_path / "binary").write_bytes(b"\xff" * 10_000)
    assert [key_in(path) for path in (None, tmp_path / "none", tmp_path / "pipe", tmp_path / "directory")] == [""] * 4
    assert len(key_in(tmp_path / "binary")) == 4096
    if os.getuid() == 0:
        os.chown(tmp_path / "binary", NOBODY, -1)
        assert key_in(tmp_path / "binary") == "", "whoever made it knows it"
    assert stat.S_IMODE((tmp_path / "binary").stat().st_mode) == 0o600
