"""Our routes behind uvicorn, with the supervisor's rules on a real control socket, and without a model."""

import asyncio
import socket
import threading
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import requests
import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse
from support.engine_host import Host
from support.updating_supervisor import RecordingEngine, UpdatingSupervisor

from apollod.engine.http.routes import Routes
from apollod.engine.http.weights.control_terms import ControlTerms
from apollod.wire import control_messages as msg


class Server(uvicorn.Server):
    """One that looks a hundred times a second, and not ten times, whether it is to end: each test waits for that."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await asyncio.sleep(0.01)


class Served:
    """The app with our plugin's routes, served. `completions` are bodies that vLLM's own route was given."""

    def __init__(
        self,
        directory: Path,
        api_key: list[str] | None = None,
        terms: ControlTerms | None = None,
        supervisor: UpdatingSupervisor | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.supervisor = supervisor or UpdatingSupervisor()
        self.host = Host(directory)
        self.host.answerer = self.supervisor
        self.engine = RecordingEngine()
        self.completions: list[Any] = []
        self._session = requests.Session()
        self._session.trust_env = False  # neither proxies nor passwords are looked for
        routes = Routes(str(self.host.path), directory / "key", terms or ControlTerms(60.0))

        @asynccontextmanager
        async def started(app: FastAPI) -> AsyncIterator[None]:
            await routes.init_state(self.engine, app.state, args)
            yield

        self.app = FastAPI(lifespan=started)
        self.app.add_api_route("/v1/completions", self._complete, methods=["POST"])
        routes.attach_router(self.app)
        args = Namespace(
            api_key=api_key, host=host, scheduling_policy="fcfs", model="/models/tiny", dtype="bfloat16",
            served_model_name=["tiny"], max_model_len=512, logprobs_mode="processed_logprobs", tokenizer=None,
        )  # fmt: skip
        self._server = Server(uvicorn.Config(self.app, log_level="warning", lifespan="on"))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 30
        while not (self._server.started and self.supervisor.asked) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.supervisor.asked == [msg.LeaseRequest()], "the name of the weights, which an engine before knew"
        self.supervisor.asked.clear()

    async def _complete(self, request: Request) -> JSONResponse:
        self.completions.append((dict(request.headers).get("content-type"), await request.json()))
        choice = {"index": 0, "text": "a", "token_ids": [1], "finish_reason": "length", "prompt_token_ids": [5]}
        return JSONResponse({"id": "cmpl-1", "choices": [choice]})

    def post(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return self.ask("POST", path, json=body, **options)

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.ask("GET", path, **options)

    def ask(self, method: str, path: str, **options: Any) -> requests.Response:
        """On connections that are kept, which takes a third of the time of one for each request."""
        return self._session.request(method, f"{self.url}{path}", timeout=30, **options)

    def refused(self, answer: requests.Response, status: int, *words: str) -> None:
        assert answer.status_code == status, answer.text
        assert all(word in answer.text for word in words), answer.text

    def close(self) -> None:
        self._session.close()
        self._server.should_exit = True
        self._thread.join(10)
        self.host.close()
