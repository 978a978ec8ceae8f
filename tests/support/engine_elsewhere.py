"""An engine elsewhere, for the gateway: a server with the routes for weights of vLLM and SGLang, which loads the
directories that it is told to and says by its fingerprint what it has. It has no model: a completion is the fingerprint
of its weights, or the one that the record of the named adapter has."""

import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from apollod.engine.gateway.bridges import RECORD
from apollod.store.fingerprint import directory_fingerprint


def batched(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


class EngineElsewhere:
    """Serves from its creation on. `end` and `serve` take it away and bring it back, with the weights of its start."""

    def __init__(self, model: Path, name: str = "there") -> None:
        self.model, self.name = model, name
        self.port = 0
        self.calls: list[str] = []
        self.refuses: set[str] = set()
        """paths that are answered with 500"""
        self.adapters: dict[str, Path] | None = None
        """directories of loaded adapters by name; None: it loads none while it runs"""
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
            case "/v1/load_lora_adapter" | "/load_lora_adapter" if self.adapters is not None:
                self.adapters[body["lora_name"]] = Path(body["lora_path"])
            case "/v1/unload_lora_adapter" | "/unload_lora_adapter" if self.adapters is not None:
                if self.adapters.pop(body["lora_name"], None) is None:
                    return 404, {"error": {"message": "cannot be found", "code": 404}}
            case "/started_with":  # what a command does that starts it anew
                self.adapters = {body["lora_name"]: Path(body["lora_path"])}
            case "/v1/completions" | "/v1/chat/completions":
                self.bodies.append(body)
                directory = (self.adapters or {}).get(body.get("lora_path", body["model"]))
                while self.paused:  # as an engine holds it
                    time.sleep(0.01)
                text = json.loads((directory / RECORD).read_text())["fingerprint"] if directory else self.fingerprint
                return 200, {"id": "c", "choices": [{"index": 0, "text": text}], "model": body["model"]}
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
                        names = [engine.name, *(engine.adapters or {})]
                        self._told(200, {"object": "list", "data": [{"id": name} for name in names]})
                    case path if path in engine.tells:
                        self._told(200, engine.tells[path])
                    case _:
                        self._told(404, {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                status, told = engine.answer(self.path.partition("?")[0], body)
                (self._streamed if body.get("stream") else self._told)(status, told)

            def _streamed(self, status: int, body: Any) -> None:
                """The same as two events, in chunks that end anywhere."""
                event = f"data: {json.dumps(body)}\n\n".encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in batched(2 * event + b"data: [DONE]\n\n", 7):
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

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
