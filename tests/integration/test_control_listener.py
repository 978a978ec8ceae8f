"""An address of their own for the routes by which trainers write the weights: `[control] listen`, as a port and as a
Unix socket, beside the engine's port. No model."""

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from support.other_user import NOBODY, needs_root, open_place
from support.served_routes import Served

from apollod.adapters.ipc import listening
from apollod.adapters.system.web_address import ListenAddress, listen_address
from apollod.engine.http.weights.control_listener import ControlRoute
from apollod.engine.http.weights.control_terms import ControlTerms
from apollod.errors import ConfigError
from apollod.testing.daemon import free_port

JSON = {"Content-Type": "application/json"}
ASKING = """
import encodings.idna, http.client, json, os, socket, sys
uid, path, port, requests, more = json.loads(sys.argv[1])
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
answers = []
for method, route in requests:
    connection = http.client.HTTPConnection("127.0.0.1", port or 80, timeout=30)
    if path:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(path)
    connection.request(method, route, b"{}" if method == "POST" else None, more if method == "POST" else {})
    answer = connection.getresponse()
    answers.append([answer.status, answer.read().decode()])
    connection.close()
print(json.dumps(answers))
"""


class Control:
    """Routes served at two addresses. `ask` asks the second one."""

    def __init__(self, directory: Path, address: ListenAddress, **options: Any) -> None:
        self.address = address
        self.served = Served(directory, terms=ControlTerms(60.0, listen=address), **options)
        routes = [route for route in self.served.app.routes if isinstance(route, APIRoute)]
        self.apart = [(m, one.path) for one in routes if isinstance(one, ControlRoute) for m in one.methods]
        self.both = [(m, one.path) for one in routes if not isinstance(one, ControlRoute) for m in one.methods]
        deadline = time.monotonic() + 20
        while not self._reached():
            assert time.monotonic() < deadline, "nobody listens"
            time.sleep(0.01)

    def ask(self, method: str, route: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and body."""
        connection = HTTPConnection(self.address.host, self.address.port or 80, timeout=30)
        if self.address.path:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self.address.path)
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection.request(method, route, data, {**(JSON if body is not None else {}), **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()

    def ask_as(self, uid: int, *requests: tuple[str, str]) -> list[tuple[int, str]]:
        """The same of several methods and routes by a process of that user, each on a connection of its own; where it
        fails, its error."""
        told = [uid, self.address.path, self.address.port, requests, JSON]
        done = subprocess.run(
            [sys.executable, "-c", ASKING, json.dumps(told)], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            return [(0, done.stderr)]
        return [(status, text) for status, text in json.loads(done.stdout)]

    def _reached(self) -> bool:
        try:
            return self.ask("GET", "/weight_info")[0] in (200, 401)
        except OSError:
            return False


def address_of(kind: str, directory: Path) -> ListenAddress:
    return listen_address(f"unix:{directory}/c.sock" if kind == "unix" else f"127.0.0.1:{free_port()}")


@pytest.fixture(params=["port", "unix"])
def control(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Control]:
    made = Control(tmp_path, address_of(request.param, tmp_path))
    yield made
    made.served.close()


# --- where what is served -------------------------------------------------------------------------------------------


def test_every_route_for_weights_is_served_there_alone_and_all_others_at_both(control: Control) -> None:
    assert len(control.apart) == 40
    assert {("POST", "/update_weights"), ("POST", "/pause"), ("GET", "/server_info")} <= set(control.apart)
    needed = {("POST", "/v1/completions"), ("POST", "/generate"), ("POST", "/score"), ("GET", "/apollod/status")}
    assert needed <= set(control.both)
    for method, path in control.apart:
        public = control.served.post if method == "POST" else control.served.get
        assert public(path).status_code == 404, path
        assert control.served.get(path).status_code == 404, f"GET {path} tells that it is there"
        assert control.ask(method, path, {} if method == "POST" else None)[0] != 404, path
    for method, path in control.both:
        if "{" in path or path == "/apollod/users/next":
            continue
        public = control.served.post(path, {}) if method == "POST" else control.served.get(path)
        assert public.status_code == control.ask(method, path, {} if method == "POST" else None)[0] != 404, path
    assert not {path for _, path in control.apart} & set(control.served.get("/openapi.json").json()["paths"])


def test_a_trainer_needs_no_other_address(control: Control) -> None:
    """What vLLM's client sends, and a completion between."""
    joining = {"master_address": "127.0.0.1", "master_port": 51216, "rank_offset": 1, "world_size": 2}
    info = {"names": ["a", "b"], "dtype_names": ["bfloat16"] * 2, "shapes": [[16, 8], [8]]}
    for path, body in (
        ("init_weight_transfer_engine", {"init_info": joining}), ("start_weight_update", {}),
        ("update_weights", {"update_info": info}), ("finish_weight_update", {"weight_version": "v1"}),
    ):  # fmt: skip
        assert control.ask("POST", f"/{path}", body)[0] == 200, path
    asked = {"model": "tiny", "prompt": [1], "max_tokens": 1}
    assert control.ask("POST", "/v1/completions", asked)[1]["choices"][0]["token_ids"] == [1]
    assert control.ask("GET", "/weight_info")[1] == {"weight_version": "v1"}
    assert control.served.supervisor.kinds() == ["join", "open", "receive", "commit"]


# --- who may --------------------------------------------------------------------------------------------------------


@needs_root
def test_another_user_is_refused_at_a_port(tmp_path: Path) -> None:
    """Although the engine's port is open to everybody who reaches it."""
    control = Control(tmp_path, address_of("port", tmp_path), host="0.0.0.0")
    for (_, path), (status, text) in zip(control.apart, control.ask_as(NOBODY, *control.apart), strict=True):
        assert status == 403 and f"uid {os.getuid()}" in text, path
    assert control.ask_as(os.getuid(), ("GET", "/weight_info"))[0][0] == 200
    assert control.served.supervisor.kinds() == []
    control.served.close()


@needs_root
def test_another_user_is_refused_at_a_socket_twice(tmp_path: Path) -> None:
    """By its mode, and where somebody has changed that, by who asks; also on vLLM's own routes."""
    with open_place() as place:
        control = Control(tmp_path, address_of("unix", place))
        assert stat.S_IMODE(os.stat(control.address.path).st_mode) == 0o600
        assert "PermissionError" in control.ask_as(NOBODY, ("GET", "/weight_info"))[0][1]
        os.chmod(control.address.path, 0o666)
        routes = [*control.apart, ("POST", "/v1/completions"), ("GET", "/apollod/status")]
        for (_, path), (status, text) in zip(routes, control.ask_as(NOBODY, *routes), strict=True):
            assert status == 403 and f"uid {NOBODY}" in text, (path, text)
        assert control.ask_as(os.getuid(), ("GET", "/weight_info"))[0][0] == 200
        assert control.served.supervisor.kinds() == [] and not control.served.completions
        control.served.close()
        assert not Path(control.address.path).exists()


@pytest.mark.parametrize("kind", ["port", "unix"])
def test_with_a_key_it_is_asked_for(tmp_path: Path, kind: str) -> None:
    control = Control(tmp_path, address_of(kind, tmp_path), api_key=["secret"])
    for method, path in control.apart:
        for wrong in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic c2VjcmV0"}):
            assert control.ask(method, path, {} if method == "POST" else None, wrong)[0] == 401, path
    for right in ("Bearer secret", "Basic eDpzZWNyZXQ="):
        assert control.ask("GET", "/weight_info", headers={"Authorization": right})[0] == 200
    assert control.served.supervisor.kinds() == []
    control.served.close()


def test_no_page_may_ask_and_no_body_is_too_long(control: Control) -> None:
    for method, path in control.apart:
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            assert control.ask(method, path, {} if method == "POST" else None, headers)[0] == 403, path
        if method == "POST":
            assert control.ask(method, path, b"{}", {"Content-Type": "text/plain"})[0] == 415, path
    assert control.served.supervisor.kinds() == []
    status, text = control.ask("POST", "/init_weight_transfer_engine", b" " * ((16 << 20) + 1))
    assert status == 413 and "16777216" in text["error"]["message"]


# --- the address ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "8001", "127.0.0.1", "127.0.0.1:", ":8001", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", "::1:8001",
     "[::1]", "unix:", "unix:run/c.sock", "unix:/a\0b", "http://127.0.0.1:8001"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it as"):
        listen_address(text)


@pytest.mark.parametrize(
    ("text", "address", "local"),
    [
        ("127.0.0.1:8001", ListenAddress("127.0.0.1", 8001), True),
        ("localhost:1", ListenAddress("localhost", 1), True),
        ("[::1]:8001", ListenAddress("::1", 8001), True),
        ("0.0.0.0:8001", ListenAddress("0.0.0.0", 8001), False),
        ("box.lan:8001", ListenAddress("box.lan", 8001), False),
        ("unix:/run/c.sock", ListenAddress("localhost", 0, "/run/c.sock"), True),
    ],
)
def test_addresses(text: str, address: ListenAddress, local: bool) -> None:
    assert listen_address(text) == address and str(address) == text and address.local == local


def test_a_stale_socket_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    address = listen_address(f"unix:{tmp_path}/c.sock")
    first = listening.bound(address)
    first.listen()
    with pytest.raises(ConfigError, match="another process listens on unix:"):
        listening.try_out(address)
    first.close()
    assert Path(address.path).exists()
    with listening.bound(address):
        assert stat.S_IMODE(os.stat(address.path).st_mode) == 0o600
    listening.try_out(address)
    assert not Path(address.path).exists()


def test_an_address_that_cannot_be_had_is_named_with_the_way_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for text, words in (
            (f"127.0.0.1:{port}", "Address already in use"), ("192.0.2.1:80", "Cannot assign"),
            (f"unix:{tmp_path}/file", "is no socket"), (f"unix:{tmp_path}/open/c", "others may write there"),
            (f"unix:{tmp_path}/{'x' * 108}", "the system's limit is 107"), (f"unix:{tmp_path}/file/c", "file"),
        ):  # fmt: skip
            with pytest.raises(ConfigError, match=words) as caught:
                listening.try_out(listen_address(text))
            assert "[control] listen" in caught.value.hint or caught.value.hint == "remove it", text
    assert (tmp_path / "file").read_text() == "mine"
