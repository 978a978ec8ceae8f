"""The imagination and the judge of this world as an OpenAI-compatible endpoint over real HTTP on this machine."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from apollod.curation.judge_question import PROMPT
from apollod.demo.world.roles import Imagination, Judge, Misbehaviour

SCENARIO = "scenario"
"""Title or name of the JSON schema for answers of the imagination."""


class Acting:
    """`with Acting() as acting`: serves at `acting.url` until the end of the block.

    `imagined`, `judged`: requests answered so far.
    """

    def __init__(self, seed: int = 0, misbehave: Misbehaviour | None = None) -> None:
        self._imagination, self._judge = Imagination(seed, misbehave), Judge(misbehave)
        self._one_at_a_time = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.acting = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True, name="acting")
        self.imagined = 0
        self.judged = 0

    @property
    def url(self) -> str:
        """Base URL, up to and including /v1."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "Acting":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The assistant's answer to a chat completion, as an object; None if it is meant for neither imagination nor
        judge."""
        messages = body.get("messages") or [{}]
        asked = str(messages[-1].get("content"))
        form = (body.get("response_format") or {}).get("json_schema") or {}
        with self._one_at_a_time:
            if messages[0].get("content") == PROMPT:
                self.judged += 1
                return self._judge.answer(asked)
            if SCENARIO in (form.get("name"), (form.get("schema") or {}).get("title")):
                self.imagined += 1
                return self._imagination.answer(asked)
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    acting: Acting


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(text)
        except ValueError:
            body = {}
        said = self.server.acting.answer(body) if self.path.endswith("/chat/completions") else None
        if said is None:
            self._send(400, {"error": {"message": "this is neither for the imagination nor for the judge"}})
            return
        content = json.dumps(said)
        words = sum(len(str(message.get("content")).split()) for message in body["messages"])
        self._send(200, {
            "id": "acted", "object": "chat.completion", "created": 0, "model": str(body.get("model")),
            "choices": [{
                "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content},
            }],
            "usage": {
                "prompt_tokens": words, "completion_tokens": len(content.split()),
                "total_tokens": words + len(content.split()),
            },
        })  # fmt: skip

    def _send(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: it would go to stderr, in the middle of the progress."""
