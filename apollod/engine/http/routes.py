"""HTTP on the engine's port, as vLLM's endpoint plugin `apollod`: POST /train, GET /train/status, POST /checkpoint,
POST /feedback, GET /feedback/ID, POST /lessons, GET /lessons/ID, GET /apollod/status, GET /apollod/quality. Each is one
control request to the supervisor, except GET /apollod/users/next, by which the supervisor waits for the next request of
a user. Bodies and errors are JSON, errors with a hint. vLLM's GET /metrics also shows the numbers of the status."""

import asyncio
import os
from argparse import Namespace
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from apollod.adapters.ipc.channel import Link
from apollod.engine.capture import CapturingClient, OwnIds
from apollod.engine.http.bodies import feedback_of, lines_of, question_of, taught_of
from apollod.engine.http.callers import Callers, Connections
from apollod.engine.http.guard import Guard
from apollod.engine.http.metrics import AppendedMetrics, Figures, quieten_access_log
from apollod.engine.http.user_requests import Arrivals, UserRequests
from apollod.engine.http.versions import Served, VersionLabels
from apollod.engine.refresh import Refresher
from apollod.errors import ApolloError, ConfigError, DaemonUnreachable, LinkClosed, RecordRefused
from apollod.wire.control_messages import SUBMIT_LINES
from apollod.wire.engine_terms import NEXT_USER, capture_terms
from apollod.wire.messages import (
    CheckpointRequest,
    Failure,
    LessonQuestion,
    Reply,
    StatusRequest,
    SubmitRequest,
    TeachDocumentRequest,
)
from apollod.wire.messages import Request as ControlRequest
from apollod.wire.status import Status, read, read_quality, read_train_status

BODY_BYTES_MAX = 16 << 20
ANSWER_S = 60.0
DOCUMENT_S = 3600.0
"""a document is given to an imagination section by section"""
CAPTURED_S = 2.0  # wait until the latest answer is stored; usually milliseconds
CHECKPOINT_S = 3600.0  # a large model takes minutes to write
NEXT_USER_S = 60.0  # longest wait of one request for the next user
SCRAPE_S = 2.0  # well below the 10 s that Prometheus waits by default
STATUS_THREADS, LONG_THREADS, THREADS = 4, 8, 16
"""threads that wait for the supervisor: for its status, for long requests (a checkpoint, a document), for all else.
Separate pools, so that none blocks another one or vLLM."""
SOURCE = "http"
IN_PARTS = "send it in parts, or drop a file into the inbox"
NAMES = "APOLLOD_HTTP_NAMES"  # environment variable: `[engine] names`, with commas between them
KEY_FILE = "APOLLOD_KEY_FILE"  # environment variable: file with a key for our routes, if it exists
HTTP_STATUS = {2: 400, 3: 503, 4: 403}
"""exit code of a Failure -> status; any other is 503 if the same request may succeed later, else 409"""

Handler = Callable[[Request], Awaitable[JSONResponse]]
T = TypeVar("T")


class Routes:
    """Endpoint plugin. Source: vllm/plugins/endpoint_plugins/interface.py, 0.26 to 0.32."""

    name = "apollod"
    required_tasks = ("generate",)

    def __init__(self, socket_path: str, key_file: Path | None = None) -> None:
        self._socket_path = socket_path
        self._key_file = key_file
        self._callers = Callers("127.0.0.1", [], key_file)
        self._guard = Guard("127.0.0.1")
        self._served = Served()
        self._refresher: Refresher | None = None
        self._arrivals = Arrivals()
        self._settle_captures: Callable[[float], None] | None = None
        self._for_status = ThreadPoolExecutor(STATUS_THREADS, "apollod-status")
        self._for_long = ThreadPoolExecutor(LONG_THREADS, "apollod-long")
        self._for_others = ThreadPoolExecutor(THREADS, "apollod-ask")

    def attach_router(self, app: FastAPI) -> None:
        """Add the routes, and the middlewares that count requests and label and extend vLLM's answers; vLLM's
        authentication is added after them (entrypoints/launchers/app.py) and so runs before them."""
        app.add_middleware(VersionLabels, served=self._served)
        if capture_terms() is not None:
            app.add_middleware(OwnIds)
        app.add_middleware(AppendedMetrics, figures=Figures(self._status_now))
        app.add_middleware(UserRequests, arrivals=self._arrivals)
        app.add_middleware(Connections)
        quieten_access_log()
        for method, path, handler in (
            ("POST", "/train", self._train),
            ("GET", "/train/status", self._train_status),
            ("POST", "/checkpoint", self._checkpoint),
            ("POST", "/feedback", self._feedback),
            ("GET", "/feedback/{response:path}", self._feedback_on),
            ("POST", "/lessons", self._teach),
            ("GET", "/lessons/{lesson}", self._lesson),
            ("GET", "/apollod/status", self._status),
            ("GET", "/apollod/quality", self._quality),
            ("GET", NEXT_USER, self._next_user),
        ):
            app.add_api_route(path, self._guarded(handler), methods=[method], response_model=None)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Learn the API keys and the server's names, and connect to the supervisor; raises DaemonUnreachable, which
        ends the start."""
        keys = [key for key in args.api_key or [os.environ.get("VLLM_API_KEY", "")] if key]
        self._callers = Callers(args.host or "", keys, self._key_file)
        names = os.environ.get(NAMES, "").split(",")
        self._guard = Guard(args.host or "", [name for name in names if name], keyed=bool(keys))
        if isinstance(engine_client, CapturingClient):
            engine_client.captured_version = lambda: self._served.version
            self._settle_captures = engine_client.settle_captures
        self._refresher = Refresher(engine_client, self._socket_path, self._served)

    def _guarded(self, handler: Handler) -> Handler:
        """The handler behind the rule for callers (vLLM's own middleware requires the API key on /v1 only) and the
        guard, with errors turned into JSON."""

        async def route(request: Request) -> JSONResponse:
            refused = await self._callers.refusal(request.scope, request.headers.get("authorization", ""))
            if refused := refused or self._guard.refusal(request.method, request.headers.raw):
                return _error(*refused)
            try:
                return await handler(request)
            except (DaemonUnreachable, LinkClosed) as error:
                return _error(503, str(error), error.hint or "try again")
            except RecordRefused as error:
                return _error(400, str(error), error.hint)
            except ApolloError as error:
                return _error(500, str(error), error.hint)
            except ClientDisconnect:
                return _error(400, "the client left before its request was whole", "send all of it")

        return route

    async def _train(self, request: Request) -> JSONResponse:
        body = await _read(request)
        if body is None:
            return _too_long(IN_PARTS)
        lines = lines_of(body)
        if len(lines) > SUBMIT_LINES:
            return _error(413, f"{len(lines)} records are more than {SUBMIT_LINES}", IN_PARTS)
        answer = await self._ask(SubmitRequest(lines, SOURCE), ANSWER_S)
        if isinstance(answer, JSONResponse):
            return answer
        rejected = answer.get("rejected", [])
        if rejected and not answer.get("examples") and not answer.get("duplicates"):
            reason = f"none of {len(lines)} records can be learned: {rejected[0].get('reason', '')}"
            return JSONResponse({"error": reason, "hint": "see `rejected` for each record", **answer}, 400)
        return JSONResponse(answer, 202)

    async def _train_status(self, request: Request) -> JSONResponse:
        answer = await self._ask(StatusRequest(), ANSWER_S)
        if isinstance(answer, JSONResponse):
            return answer
        return JSONResponse(msgspec.to_builtins(read_train_status(answer)))

    async def _checkpoint(self, request: Request) -> JSONResponse:
        answer = await self._ask(CheckpointRequest(), CHECKPOINT_S)
        return answer if isinstance(answer, JSONResponse) else JSONResponse(answer)

    async def _feedback(self, request: Request) -> JSONResponse:
        body = await _read(request)
        if body is None:
            return _too_long("shorten the correction")
        wanted = feedback_of(body)
        if self._settle_captures is not None:  # the answer may be very recent
            await self._in_thread(self._for_others, self._settle_captures, CAPTURED_S)
        answer = await self._ask(wanted, ANSWER_S)
        return answer if isinstance(answer, JSONResponse) else JSONResponse(answer)

    async def _feedback_on(self, request: Request) -> JSONResponse:
        wanted = question_of(request.path_params["response"], request.query_params.get("choice"))
        answer = await self._ask(wanted, ANSWER_S)
        return answer if isinstance(answer, JSONResponse) else JSONResponse(answer)

    async def _teach(self, request: Request) -> JSONResponse:
        body = await _read(request)
        if body is None:
            return _too_long("teach one fact at a time")
        wanted = taught_of(body)
        answer = await self._ask(wanted, DOCUMENT_S if isinstance(wanted, TeachDocumentRequest) else ANSWER_S)
        return answer if isinstance(answer, JSONResponse) else JSONResponse(answer, 202)

    async def _lesson(self, request: Request) -> JSONResponse:
        answer = await self._ask(LessonQuestion(request.path_params["lesson"]), ANSWER_S)
        return answer if isinstance(answer, JSONResponse) else JSONResponse(answer)

    async def _status(self, request: Request) -> JSONResponse:
        answer = await self._ask(StatusRequest(), ANSWER_S)
        return answer if isinstance(answer, JSONResponse) else JSONResponse(answer)

    async def _quality(self, request: Request) -> JSONResponse:
        answer = await self._ask(StatusRequest(), ANSWER_S)
        if isinstance(answer, JSONResponse):
            return answer
        told = read_quality(answer)
        return JSONResponse({"schema_version": told.schema_version, **msgspec.to_builtins(told.quality)})

    async def _next_user(self, request: Request) -> JSONResponse:
        try:
            within_s = float(request.query_params.get("within_s", NEXT_USER_S))
        except ValueError:
            within_s = -1.0
        if not 0.0 <= within_s <= NEXT_USER_S:  # also refuses NaN
            return _error(400, f"within_s has to be from 0 to {NEXT_USER_S:g}", "send how many seconds to wait")
        return JSONResponse({"came": await self._arrivals.next(within_s)})

    def _status_now(self) -> Status:
        """The status, within SCRAPE_S; raises ApolloError. Blocks."""
        answer = _exchange(self._socket_path, StatusRequest(), SCRAPE_S)
        if isinstance(answer, Failure):
            raise ApolloError(answer.error, answer.hint)
        return read(answer.body)

    async def _ask(self, message: ControlRequest, timeout_s: float) -> dict[str, Any] | JSONResponse:
        """The body of the supervisor's reply, or its refusal as a response. One connection a request."""
        threads = self._for_long if timeout_s > ANSWER_S else self._for_others
        if isinstance(message, StatusRequest):
            threads = self._for_status
        answer = await self._in_thread(threads, _exchange, self._socket_path, message, timeout_s)
        if isinstance(answer, Failure):
            status = 404 if answer.missing else HTTP_STATUS.get(answer.code, 503 if answer.retryable else 409)
            return _error(status, answer.error, answer.hint)
        body: dict[str, Any] = answer.body
        return body

    async def _in_thread(self, threads: ThreadPoolExecutor, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, work, *args)


def plugin() -> Routes:
    """Factory named in pyproject.toml. Raises ConfigError outside apollod."""
    path = os.environ.get("APOLLOD_SOCKET")
    if not path:
        raise ConfigError(
            "APOLLOD_SOCKET is not set", "start the engine with `apollod run`, or take apollod out of VLLM_PLUGINS"
        )
    key_file = os.environ.get(KEY_FILE)
    return Routes(path, Path(key_file) if key_file else None)


def _exchange(path: str, message: ControlRequest, timeout_s: float) -> Reply | Failure:
    link = Link.connect(path, timeout_s)
    try:
        link.send(message)
        answer = link.receive()
    finally:
        link.close()
    if not isinstance(answer, Reply | Failure):
        raise ConfigError(
            f"the supervisor answered with {type(answer).__name__}", "use one version of apollod everywhere"
        )
    return answer


async def _read(request: Request) -> bytes | None:
    """The body, or None when it is longer than BODY_BYTES_MAX; never holds more than that."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            return None
    return bytes(body)


def _too_long(hint: str) -> JSONResponse:
    return _error(413, f"the body is over {BODY_BYTES_MAX} bytes", hint)


def _error(status: int, error: str, hint: str) -> JSONResponse:
    return JSONResponse({"error": error, "hint": hint}, status)
