"""Random requests to a daemon: over HTTP, through the routes in vLLM's server, and to its socket. A function of the
seed."""

import asyncio
import json
import random
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from apollod.engine.http.routes import Routes
from apollod.supervisor.control import HANDLERS
from apollod.testing.daemon import chat_line, free_port
from apollod.wire import messages as msg
from apollod.wire.framing import encode_frame
from apollod.wire.records import parse_line

ROUTES = (
    "/train", "/train/status", "/checkpoint", "/feedback", "/feedback/r", "/lessons", "/lessons/L1", "/apollod/status",
    "/apollod/quality", "/metrics",
)  # fmt: skip
FIELDS = (
    "messages", "examples", "text", "prompt", "completion", "role", "content", "statement", "question", "answer",
    "replaces", "document", "name", "questions", "instruction", "check_regex", "rubric", "response_id", "rating",
    "correction", "comment", "choice", "tier", "tools", "tool_calls", "chosen", "rejected", "weight",
)  # fmt: skip
TYPES = ("application/json", "application/json; charset=utf-16", "text/plain", "", "multipart/form-data", "\xff")
LEFT_OUT = (msg.BootstrapRequest, msg.ResumeRequest, msg.SubmitRequest)
"""left out because they read a named path, resume training, and submit lines that `good` would not count"""
SILENT = 30
"""simultaneous connections that send nothing, or too little; the socket serves 64"""
ANSWER_S = 30.0
LEAVES_S = 1.0
UNREAD_BYTES = 1 << 16

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(
    ["user", "assistant", "good", "bad", "direct", "", "\0", "\ud800", "L1", "r" * 5000, -1, 2**70, 1e308]
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner, max_size=5),
    max_leaves=12,
)
bodies = (
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=6).map(json.dumps).map(str.encode)
    | values.map(json.dumps).map(str.encode)
    | st.binary(max_size=300)
    | st.integers(1, 100_000).map(lambda deep: b"[" * deep)
    | st.integers(1, 20_000).map(lambda deep: b'{"messages":' * deep + b"1" + b"}" * deep)
    | st.integers(0, 1 << 21).map(lambda size: b'{"text":"' + b"\xc3\xa9" * size + b'"}')
)


def frames(left_out: tuple[type[Any], ...]) -> st.SearchStrategy[bytes]:
    """Bytes for the socket: random ones, and requests of all kinds except these with values of all types."""
    packed = st.sampled_from([kind for kind in HANDLERS if kind not in left_out]).flatmap(
        lambda kind: st.fixed_dictionaries(
            {"type": st.just(kind.__struct_config__.tag)},
            optional={field.encode_name: values for field in msgspec.structs.fields(kind)},
        )
    )
    return (
        st.binary(max_size=300)
        | st.binary(max_size=300).map(encode_frame)
        | packed.map(lambda one: encode_frame(_packed(one)))
        | st.integers(1, 200_000).map(
            lambda deep: encode_frame(b"\x82\xa4type\xa6status\xa1x" + b"\x91" * deep + b"\xc0")
        )
        | st.just(encode_frame(b"\x82\xa4type\xa6forget\xa8examples\x91\xa2\xff\xfe"))
        | st.integers(0, 2**32 - 1).map(lambda length: struct.pack(">I", length) + b"x" * 10)
    )


def _packed(value: Any) -> bytes:
    """A value as msgpack, including text that is not UTF-8 and numbers that msgpack lacks."""

    def plain(one: Any) -> Any:
        if isinstance(one, dict):
            return {plain(k): plain(v) for k, v in one.items()}
        if isinstance(one, list):
            return [plain(each) for each in one]
        if isinstance(one, str):
            return one.encode("utf-8", "replace").decode()
        return str(one) if isinstance(one, int) and not -(2**63) <= one < 2**64 else one

    return msgspec.msgpack.encode(plain(value))


def drawn(strategy: st.SearchStrategy[bytes], number: int, count: int) -> list[bytes]:
    """`count` values of a strategy, the same for the same `number`."""
    found: list[bytes] = []

    @seed(number)
    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: bytes) -> None:
        found.append(value)

    collect()
    return found


class Front:
    """apollod's routes for a running daemon, behind a server like vLLM's; in a thread."""

    def __init__(self, supervisor: Path) -> None:
        app = FastAPI()
        Routes(str(supervisor)).attach_router(app)
        self.port = free_port()
        self.failures: list[str] = []
        """tracebacks of the server"""
        self._server = uvicorn.Server(uvicorn.Config(self._watched(app), "127.0.0.1", self.port, log_level="critical"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def _watched(self, app: FastAPI) -> Any:
        async def watched(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.failures.append(f"{scope.get('method')} {scope.get('path')}: {error!r}")
                raise

        return watched

    def __enter__(self) -> "Front":
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(30)


class Requests:
    """Throws requests at apollod's routes on a port and at the daemon's socket. `good`: id of each line whose
    acceptance was confirmed."""

    LEFT_OUT = LEFT_OUT

    def __init__(self, port: int, supervisor: Path) -> None:
        self.good: dict[str, bytes] = {}
        self._port = port
        self._frames_of_all = frames(self.LEFT_OUT)
        self._supervisor = str(supervisor)
        self._open: list[socket.socket] = []
        self._threads = ThreadPoolExecutor(40)

    KINDS = ("bodies", "bodies", "train", "many", "truncated", "slow", "frames", "frames", "silent", "left")

    def throw(self, chance: random.Random) -> str:
        """Throw several requests of one kind; returns the kind."""
        kind = chance.choice(self.KINDS)
        getattr(self, f"_{kind}")(chance)
        return kind

    def settle(self) -> None:
        """Close all open connections."""
        for one in self._open:
            one.close()
        self._open = []

    def close(self) -> None:
        self.settle()
        self._threads.shutdown()

    # --- over HTTP ----------------------------------------------------------------------------------------------------

    def _head(self, method: str, path: str, type_: str, *more: str) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self._port}", f"Content-Type: {type_}", *more]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _said(self, content: bytes) -> tuple[int, bytes]:
        """Send `content`; returns status (0: hung up) and body of the answer."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_S) as end:
            answer = b""
            try:
                end.sendall(content)
                while piece := end.recv(1 << 16):
                    answer += piece
            except (ConnectionResetError, BrokenPipeError):
                pass  # the server may have read enough
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/") else 0, body

    def _whole(self, method: str, path: str, body: bytes, type_: str = TYPES[0]) -> tuple[int, bytes]:
        return self._said(self._head(method, path, type_, f"Content-Length: {len(body)}", "Connection: close") + body)

    def _bodies(self, chance: random.Random) -> None:
        for body in drawn(bodies, chance.getrandbits(32), 12):
            path, method = chance.choice(ROUTES), chance.choice(["POST"] * 4 + ["GET", "PUT", "DELETE", "HEAD"])
            status, answer = self._whole(method, path, body, chance.choice(TYPES[:1] * 4 + TYPES))
            assert status not in (500, 502, 504), (method, path, body[:200], status, answer[:300])
            # a server that refuses a long body without reading it may close the connection without an answer
            assert status or len(body) > UNREAD_BYTES, (method, path, body[:200])
            if status in (400, 409, 413, 415, 503) and method == "POST":
                assert {"error", "hint"} <= set(json.loads(answer)), (path, answer)

    def _train(self, chance: random.Random) -> None:
        words = [(chance.getrandbits(96), chance.getrandbits(96)) for _ in range(chance.randint(1, 20))]
        lines = [chat_line(f"{asked:x}?", f"{said:x}.") for asked, said in words]
        status, answer = self._whole("POST", "/train", b'{"examples":[%s]}' % ",".join(lines).encode())
        assert status in (202, 503), (status, answer)
        if status == 202:
            assert len(json.loads(answer)["examples"]) == len(lines)
            self.good |= {parse_line(line.encode()).id: line.encode() for line in lines}

    def _many(self, chance: random.Random) -> None:
        """Many requests at once."""
        given = [(chance.choice(["GET", "POST"]), chance.choice(ROUTES)) for _ in range(60)]
        for (method, path), answer in zip(
            given, self._threads.map(lambda one: self._whole(*one, b"{}"), given), strict=True
        ):
            assert answer[0] not in (0, 500), (method, path, answer)

    def _truncated(self, chance: random.Random) -> None:
        """Requests that end in the middle of their body, or are not HTTP."""
        chunked = self._head("POST", "/train", TYPES[0], "Transfer-Encoding: chunked")
        for content in (
            chunked + b"5\r\n{\"te", chunked + b"zz\r\nx\r\n", chunked + b"ffffffffffffffff\r\n" + b"x" * 1000,
            chunked + b"1\r\n{\r\n" * 500, self._head("POST", "/train", TYPES[0], "Content-Length: 1000") + b"{",
            self._head("POST", "/train", TYPES[0], "Content-Length: -1"), b"\x16\x03\x01" + chance.randbytes(200),
            self._head("POST", "/train", TYPES[0], *(f"X-{n}: y" for n in range(2000))), b"GET " + b"/" * 100_000,
        ):  # fmt: skip
            with socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_S) as end:
                end.sendall(content)
                if chance.random() < 0.5:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _slow(self, chance: random.Random) -> None:
        """Senders that begin, and stay unfinished for the rest of the round."""
        for _ in range(SILENT):
            end = socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_S)
            end.sendall(self._head("POST", "/train", TYPES[0], "Content-Length: 1000")[: chance.randint(1, 200)])
            self._open.append(end)

    # --- into the socket ----------------------------------------------------------------------------------------------

    def _connected(self) -> socket.socket:
        end = socket.socket(socket.AF_UNIX)
        end.settimeout(ANSWER_S)
        end.connect(self._supervisor)
        return end

    def _frames(self, chance: random.Random) -> None:
        for frame in drawn(self._frames_of_all, chance.getrandbits(32), 12):
            with self._connected() as end:
                end.sendall(frame)
                if chance.random() < 0.3:
                    end.shutdown(socket.SHUT_WR)
                    end.settimeout(LEAVES_S)
                    with suppress(TimeoutError):  # some requests wait for a model, so no answer is fine
                        end.recv(1 << 16)

    def _silent(self, chance: random.Random) -> None:
        for _ in range(SILENT):
            self._open.append(self._connected())
            self._open[-1].sendall(struct.pack(">I", 1000)[: chance.randint(0, 4)])

    def _left(self, chance: random.Random) -> None:
        """Requests whose sender does not wait for the answer."""
        for _ in range(SILENT):
            with self._connected() as end:
                end.sendall(encode_frame(msg.encode(msg.StatusRequest())))
