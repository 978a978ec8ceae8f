"""An engine elsewhere, for the gateway: a server with the routes for weights of vLLM and SGLang, which loads the
directories that it is told to and says by its fingerprint what it has. It has no model: a completion is the fingerprint
of its weights."""

import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from apollod.store.fingerprint import directory_fingerprint


class EngineElsewhere:
    """Serves from its creation on. `end` and `serve` take it away and bring it back, with the weights of its start."""

    def __init__(self, model: Path, name: str = "there") -> None:
        self.model, self.name = model, name
        self.port = 0
        self.calls: list[str] = []
        self.refuses: set[str] = set()
        """paths that are answered with 500"""
        self.tells: dict[str, Any] = {}
        """answers to other GETs, by path"""
        self.paused = False
        self.bodies: list[dict[str, Any]] = []
        self.serve()

    def serve(self) -> None:
        self._load(self.model)
        self.label = ""
        self._connections: list[socket.socket] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:  # as when a process ends
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _load(self, directory: Path) -> None:
        self.loaded = directory / "model.safetensors"
        self.fingerprint = directory_fingerprint(directory)

    def read(self) -> bytes:
        """The bytes of its weights, one tensor after another, as they lie in the file that it loaded."""
        data = self.loaded.read_bytes()
        return data[8 + int.from_bytes(data[:8], "little") :]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.calls.append(path)
        if path in self.refuses:
            return 500, {"error": {"message": "out of memory", "code": 500}}
        match path:
            case "/pause" | "/pause_generation":
                self.paused = True
            case "/resume" | "/continue_generation":
                self.paused = False
            case "/collective_rpc":
                assert body["method"] == "reload_weights"
                self._load(Path(body["kwargs"]["weights_path"]))
            case "/update_weights_from_disk":
                self._load(Path(body["model_path"]))
                self.label = body["weight_version"]
            case "/update_weight_version":
                self.label = body["new_version"]
            case "/v1/completions" | "/v1/chat/completions":
                self.bodies.append(body)
                while self.paused:  # as an engine holds it
                    time.sleep(0.01)
                return 200, {"id": "c", "choices": [{"index": 0, "text": self.fingerprint}], "model": body["model"]}
            case "/reset_prefix_cache":
                return 200, {"success": True}
            case _:
                return 404, {"detail": "Not Found"}
        return 200, {"success": True}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                engine._connections.append(self.connection)

            def do_GET(self) -> None:
                match self.path:
                    case "/health":
                        self._told(200, {})
                    case "/v1/models":
                        self._told(200, {"object": "list", "data": [{"id": engine.name}]})
                    case path if path in engine.tells:
                        self._told(200, engine.tells[path])
                    case _:
                        self._told(404, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._told(*engine.answer(self.path.partition("?")[0], json.loads(body or b"{}")))

            def _told(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        return Handler
