"""An engine without vLLM: `python -m apollod.testing.stub_engine`, with the arguments and the environment of
`apollod.engine`.

It follows the protocol, and starts in a fraction of a second: it reserves memory, loads the checkpoint into it
(`stub_weights`), sends a true manifest, answers /health, refreshes, pauses, resumes and compares. It has no model:
requests for tokens or log-probabilities get 501, which the daemon records as a comparison that could not be made
(`alignment.failed`). With APOLLOD_STUB_OBEYS=1 it answers chat completions like a model that only follows instructions:
with its system message, or if a JSON schema is requested, with a scenario that differs from every other one. So it can
be used for dreams.

For tests of journal, recovery, settings and processes; set APOLLOD_ENGINE_MODULE to it.
tests/integration/test_engine_conformance.py runs on both engines, and keeps their common behaviour the same.
"""

import argparse
import json
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from apollod.adapters.ipc.channel import Link
from apollod.adapters.system.model_dir import check_model_dir
from apollod.adapters.system.own_process import die_with_parent
from apollod.bridges.memory_file import map_memory
from apollod.errors import ApolloError, LinkClosed, ModelRefused, ShareRefused
from apollod.failpoints import failpoint
from apollod.testing.stub_weights import Layout, Weights, stored_tensors
from apollod.wire import messages as msg

EXIT_REFUSED = 2
OBEYS = "APOLLOD_STUB_OBEYS"
VERSIONS = {"stub": "1"}
HEADER = "X-Apollod-Weights-Version"


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM; returns 0 then, 2 if the model is refused."""
    if supervisor := os.environ.get("APOLLOD_PARENT_PID"):
        die_with_parent(lambda: os.getppid() == int(supervisor))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    args = _parse(arguments)
    path = os.environ["APOLLOD_SOCKET"]
    try:
        worker = Link.connect(path)
        worker.send(msg.Hello("engine-worker", os.getpid(), versions=VERSIONS))
        weights = load(worker, Path(args.model))
        api = Link.connect(path)
    except ApolloError as error:
        sys.stderr.write(f"stub engine: {error.line()}\n")
        return EXIT_REFUSED
    fence = Fence(lambda seconds, active: api.send(msg.EngineResumeReport(seconds, True, active)))
    api.send(msg.Hello("engine-api", os.getpid(), versions=VERSIONS))
    threading.Thread(target=answer_orders, args=(api, weights, fence), daemon=True).start()
    with ThreadingHTTPServer((args.host, args.port), handler_of(args.served_model_name, fence)) as server:
        server.daemon_threads = True
        server.serve_forever()
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse those of vLLM's arguments that apply here; the others are ignored."""
    parser = argparse.ArgumentParser(prog="apollod.testing.stub_engine")
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", default="stub")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_known_args(arguments)[0]


def load(link: Link, model_dir: Path) -> Weights:
    """Get memory from the supervisor, load the checkpoint into it, send the manifest. Raises ModelRefused for a model
    that cannot be shared, after telling the supervisor."""
    started = time.monotonic()
    try:
        check_model_dir(model_dir)
        tensors = stored_tensors(model_dir)
        layout = Layout(model_dir, tensors)
        weights = Weights(memoryview(map_memory(link.reserve(layout.size), layout.size)), layout.manifest())
    except (ModelRefused, ShareRefused) as refused:
        link.send(msg.LoadRefused(str(refused), refused.hint))
        raise
    weights.manifest.check()
    weights.load(tensors)
    failpoint("engine.weights-loaded")
    link.send(msg.Loaded(weights.manifest, time.monotonic() - started))
    return weights


class Fence:
    """Requests wait while it is closed. It opens by itself after a time limit, and then calls `expired(seconds,
    requests that waited)`."""

    def __init__(self, expired: Callable[[float, int], None]) -> None:
        self.version: int | None = None
        """version of the last announced weights"""
        self.waiting = 0
        self._expired = expired
        self._since: float | None = None
        self._limit: threading.Timer | None = None
        self._opened = threading.Condition()

    def pause(self, at_most_s: float) -> float:
        """Close it; returns the seconds that took."""
        self.resume()
        with self._opened:
            self._since = time.monotonic()
            self._limit = threading.Timer(at_most_s, self._end)
            self._limit.daemon = True
            self._limit.start()
            return time.monotonic() - self._since

    def resume(self) -> float:
        """Open it; returns the seconds that it was closed, 0 if it was not."""
        with self._opened:
            since, self._since = self._since, None
            if self._limit is not None:
                self._limit.cancel()
                self._limit = None
            self._opened.notify_all()
            return 0.0 if since is None else time.monotonic() - since

    def pass_(self) -> None:
        """Return when it is open."""
        with self._opened:
            self.waiting += 1
            self._opened.wait_for(lambda: self._since is None)
            self.waiting -= 1

    def _end(self) -> None:
        if (seconds := self.resume()) > 0:
            self._expired(seconds, self.waiting)


def answer_orders(link: Link, weights: Weights, fence: Fence) -> None:
    """Answer the supervisor's orders, one after another, until it hangs up; then open the fence."""
    try:
        while True:
            link.send(answer_of(link.receive(), weights, fence))
    except LinkClosed:
        fence.resume()


def answer_of(order: msg.FromSupervisor, weights: Weights, fence: Fence) -> msgspec.Struct:
    """Carry out an order; returns the answer."""
    match order:
        case msg.RefreshEngine(version=version):
            started = time.monotonic()
            rederived = weights.rederive()
            fence.version = version
            return msg.Refreshed(version, rederived, time.monotonic() - started)
        case msg.Pause(at_most_s=at_most_s):
            return msg.Paused(fence.pause(at_most_s))
        case msg.ResumeEngine():
            return msg.EngineResumeReport(fence.resume(), active=fence.waiting)
        case msg.CompareWeights(step=step, digests=digests):
            return msg.Compared(step, weights.differing(digests))
    raise ApolloError(f"the supervisor sent {type(order).__name__}", "use one version of apollod everywhere")


def obeyed(model: str, asked: dict[str, Any]) -> dict[str, Any]:
    """A chat completion of a model that repeats its instructions."""
    if "response_format" in asked:
        words = os.urandom(40).hex()
        said = json.dumps({"messages": [{"role": "user", "content": " ".join(textwrap.wrap(words, 8))}]})
    else:
        first, last = asked["messages"][0], asked["messages"][-1]
        said = f"{first['content'] if first['role'] == 'system' else 'Well.'} {last['content'][:20]}"
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
    if asked.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": word, "logprob": -0.5} for word in said.split()]}
    usage = {"prompt_tokens": 10, "completion_tokens": len(said.split())}
    return {"id": "stub", "object": "chat.completion", "model": model, "choices": [choice], "usage": usage}


def handler_of(model: str, fence: Fence) -> type[BaseHTTPRequestHandler]:
    """The routes: /health, /v1/models, and for everything that needs a model 501, once requests may pass."""

    class Handler(BaseHTTPRequestHandler):
        """One connection."""

        def do_GET(self) -> None:
            """Source: http.server's naming."""
            if self.path == "/health":
                self._answer(200, None)
            elif self.path == "/v1/models":
                self._answer(200, {"object": "list", "data": [{"id": model, "object": "model"}]})
            else:
                self._answer(404, {"error": f"no route {self.path}", "hint": "this is the stub engine"})

        def do_POST(self) -> None:
            """Labelled like the real engine's answers: the version served when the request came, and the last one."""
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            first = fence.version
            fence.pass_()
            span = f"{first}" if first == fence.version else f"{first}-{fence.version}"
            headers = {} if first is None else {HEADER: span}
            if self.path == "/v1/chat/completions" and os.environ.get(OBEYS):
                return self._answer(200, obeyed(model, json.loads(body)), headers)
            self._answer(501, {"error": "the stub engine has no model", "hint": "unset APOLLOD_ENGINE_MODULE"}, headers)

        def _answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
            data = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **(headers or {}),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: lines for health requests would hide the others."""

    return Handler


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
