"""HTTP on the engine's port, as vLLM's endpoint plugin `apollod`: POST /train, GET /train/status, POST /checkpoint,
POST /feedback, GET /feedback/ID, POST /lessons, GET /lessons/ID, GET /apollod/status, GET /apollod/quality. Each is one
control request to the supervisor, except GET /apollod/users/next, by which the supervisor waits for the next request of
a user, POST /generate and POST /score, which vLLM answers, and the routes by which outside trainers write the weights
(`weights`). Bodies and errors are JSON, errors with a hint. vLLM's GET /metrics also shows the figures of the
status."""

import asyncio
import os
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from apollod.core.settings import Check, PatternSettings
from apollod.engine.capture import CapturingClient, OwnIds
from apollod.engine.http.callers import Callers, Connections
from apollod.engine.http.exchange import Refusal, exchange, read_body
from apollod.engine.http.generate import Asked, Completion, asked, completed
from apollod.engine.http.guard import Guard
from apollod.engine.http.metrics import AppendedMetrics, Figures, quieten_access_log
from apollod.engine.http.score import Wanted
from apollod.engine.http.score import wanted as scored
from apollod.engine.http.spans import note_spans, noting, sampling
from apollod.engine.http.user_requests import Arrivals, UserRequests
from apollod.engine.http.versions import Served, VersionLabels
from apollod.engine.http.weights.control_listener import ControlListener, ControlRoute, came_in_here
from apollod.engine.http.weights.control_terms import ControlTerms, control_terms
from apollod.engine.http.weights.route_table import weight_routes
from apollod.engine.http.weights.trainer_desk import Desk, Handler
from apollod.engine.refresh import Refresher
from apollod.errors import ApolloError, ConfigError, DaemonUnreachable, LinkClosed, RecordRefused
from apollod.wire import messages as msg
from apollod.wire.control_messages import SUBMIT_LINES
from apollod.wire.engine_terms import GENERATE, NEXT_USER, SCORE, capture_terms
from apollod.wire.status import Status, read, read_quality, read_train_status

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

T = TypeVar("T")


class Rules(NamedTuple):
    """Rules for requests that come in at one of the server's addresses: callers and pages that may ask."""

    callers: Callers
    guard: Guard


class Routes:
    """Endpoint plugin. Source: vllm/plugins/endpoint_plugins/interface.py, 0.26 to 0.32."""

    name = "apollod"
    required_tasks = ("generate",)

    def __init__(self, socket_path: str, key_file: Path | None = None, control: ControlTerms | None = None) -> None:
        """`control`: terms of the routes for weights; None if there are none."""
        self._socket_path = socket_path
        self._key_file = key_file
        self._rules = self._control_rules = self._rules_at("127.0.0.1", [])
        self._served = Served()
        self._by_priority = False
        self._refresher: Refresher | None = None
        self._arrivals = Arrivals()
        self._desk = Desk(control, self._answer, self._served) if control else None
        self._control_address = control.listen if control else None
        self._listener: ControlListener | None = None
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
            ("POST", GENERATE, self._generate),
            ("POST", SCORE, self._score),
        ):
            app.add_api_route(path, self._guarded(handler), methods=[method], response_model=None)
        apart = self._control_address is not None
        if self._control_address is not None:
            self._listener = ControlListener(app, self._control_address)
        for method, path, answered in weight_routes(self._desk) if self._desk else ():
            guarded = self._guarded(answered, for_trainers=True)
            app.router.add_api_route(
                path, guarded, methods=[method], response_model=None, include_in_schema=not apart,
                route_class_override=ControlRoute if apart else None,
            )  # fmt: skip

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Learn the API keys and the server's names, and connect to the supervisor; raises DaemonUnreachable, which
        ends the start."""
        keys = [key for key in args.api_key or [os.environ.get("VLLM_API_KEY", "")] if key]
        self.open_to(args.host or "", keys)
        if isinstance(engine_client, CapturingClient):
            engine_client.captured_version = lambda: self._served.version
            self._settle_captures = engine_client.settle_captures
        note_spans(engine_client)
        self._by_priority = args.scheduling_policy == "priority"
        self._refresher = Refresher(engine_client, self._socket_path, self._served)
        if self._desk:
            self._desk.attach(engine_client, self._refresher, args)
        if self._listener:
            self._listener.start()

    @property
    def served(self) -> Served:
        """The weights that answer requests now."""
        return self._served

    def open_to(self, host: str, keys: list[str]) -> None:
        """Set the server's address and the keys of its callers."""
        self._rules = self._control_rules = self._rules_at(host, keys)
        if self._control_address is not None:
            self._control_rules = self._rules_at(self._control_address.host, keys)

    def _rules_at(self, host: str, keys: list[str]) -> Rules:
        names = [name for name in os.environ.get(NAMES, "").split(",") if name]
        return Rules(Callers(host, keys, self._key_file), Guard(host, names, keyed=bool(keys)))

    def _guarded(self, handler: Handler, for_trainers: bool = False) -> Handler:
        """The handler behind the rule for callers (vLLM's own middleware requires the API key on /v1 only) and the
        guard, with errors turned into JSON. `for_trainers`: what their clients cannot send otherwise is accepted."""

        async def route(request: Request) -> Response:
            authorization = request.headers.get("authorization", "")
            rules = self._control_rules if came_in_here(request.scope) else self._rules
            refused = await rules.callers.refusal(request.scope, authorization, basic=for_trainers)
            if refused := refused or rules.guard.refusal(request.method, request.headers.raw, for_trainers):
                return _error(*refused)
            try:
                return await handler(request)
            except Refusal as refusal:
                return _error(*refusal.args)
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
        lines = lines_of(await read_body(request, IN_PARTS))
        if len(lines) > SUBMIT_LINES:
            raise Refusal(413, f"{len(lines)} records are more than {SUBMIT_LINES}", IN_PARTS)
        answer = await self._ask(msg.SubmitRequest(lines, SOURCE), ANSWER_S)
        rejected = answer.get("rejected", [])
        if rejected and not answer.get("examples") and not answer.get("duplicates"):
            reason = f"none of {len(lines)} records can be learned: {rejected[0].get('reason', '')}"
            return JSONResponse({"error": reason, "hint": "see `rejected` for each record", **answer}, 400)
        return JSONResponse(answer, 202)

    async def _train_status(self, request: Request) -> JSONResponse:
        return JSONResponse(msgspec.to_builtins(read_train_status(await self._ask(msg.StatusRequest(), ANSWER_S))))

    async def _checkpoint(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._ask(msg.CheckpointRequest(), CHECKPOINT_S))

    async def _feedback(self, request: Request) -> JSONResponse:
        wanted = feedback_of(await read_body(request, "shorten the correction"))
        if self._settle_captures is not None:  # the answer may be very recent
            await self._in_thread(self._for_others, self._settle_captures, CAPTURED_S)
        return JSONResponse(await self._ask(wanted, ANSWER_S))

    async def _feedback_on(self, request: Request) -> JSONResponse:
        wanted = question_of(request.path_params["response"], request.query_params.get("choice"))
        return JSONResponse(await self._ask(wanted, ANSWER_S))

    async def _teach(self, request: Request) -> JSONResponse:
        wanted = taught_of(await read_body(request, "teach one fact at a time"))
        limit_s = DOCUMENT_S if isinstance(wanted, msg.TeachDocumentRequest) else ANSWER_S
        return JSONResponse(await self._ask(wanted, limit_s), 202)

    async def _lesson(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._ask(msg.LessonQuestion(request.path_params["lesson"]), ANSWER_S))

    async def _status(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._ask(msg.StatusRequest(), ANSWER_S))

    async def _quality(self, request: Request) -> JSONResponse:
        told = read_quality(await self._ask(msg.StatusRequest(), ANSWER_S))
        return JSONResponse({"schema_version": told.schema_version, **msgspec.to_builtins(told.quality)})

    async def _next_user(self, request: Request) -> JSONResponse:
        try:
            within_s = float(request.query_params.get("within_s", NEXT_USER_S))
        except ValueError:
            within_s = -1.0
        if not 0.0 <= within_s <= NEXT_USER_S:  # also refuses NaN
            raise Refusal(400, f"within_s has to be from 0 to {NEXT_USER_S:g}", "send how many seconds to wait")
        return JSONResponse({"came": await self._arrivals.next(within_s)})

    async def _generate(self, request: Request) -> Response:
        return await self._by_vllm(request, asked(await read_body(request, "ask with fewer tokens")))

    async def _score(self, request: Request) -> Response:
        return await self._by_vllm(request, scored(await read_body(request, "score fewer texts at once")))

    async def _by_vllm(self, request: Request, wanted: Asked | Wanted) -> Response:
        """vLLM's answer in the words of the route, with the versions of the weights that gave it."""
        first = self._served.version or 0
        with noting() as noted:
            status, body = await completed(request, wanted.completion, self._by_priority)
        if status != 200:
            return Response(body, status, media_type="application/json")
        answer, last = msgspec.json.decode(body, type=Completion), self._served.version or first
        told = wanted.told(answer, sampling(self._served.names, first, last, noted.choices(len(answer.choices))))
        return Response(msgspec.json.encode(told), media_type="application/json")

    def _status_now(self) -> Status:
        """The status, within SCRAPE_S; raises ApolloError. Blocks."""
        answer = exchange(self._socket_path, msg.StatusRequest(), SCRAPE_S)
        if isinstance(answer, msg.Failure):
            raise ApolloError(answer.error, answer.hint)
        return read(answer.body)

    async def _ask(self, message: msg.Request, timeout_s: float) -> dict[str, Any]:
        """The body of the supervisor's reply; raises Refusal for its refusal. One connection a request."""
        answer = await self._answer(message, timeout_s)
        if isinstance(answer, msg.Failure):
            status = 404 if answer.missing else HTTP_STATUS.get(answer.code, 503 if answer.retryable else 409)
            raise Refusal(status, answer.error, answer.hint)
        body: dict[str, Any] = answer.body
        return body

    async def _answer(self, message: msg.Request, timeout_s: float) -> msg.Reply | msg.Failure:
        """The supervisor's answer, waited for in a thread."""
        threads = self._for_long if timeout_s > ANSWER_S else self._for_others
        if isinstance(message, msg.StatusRequest):
            threads = self._for_status
        return await self._in_thread(threads, exchange, self._socket_path, message, timeout_s)

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
    return Routes(path, Path(key_file) if key_file else None, control_terms())


def _error(status: int, error: str, hint: str) -> JSONResponse:
    return JSONResponse({"error": error, "hint": hint}, status)


# --- bodies of requests: what cannot be parsed raises RecordRefused ---------------------------------------------------

_LESSON_HINT = (
    'send {"statement": TEXT}, or {"question": Q, "answer": A}; "replaces": ID, too, if it corrects a lesson; '
    'or {"document": TEXT, "name": "NOTES.md"}; or {"instruction": TEXT}'
)
_FEEDBACK_HINT = 'send {"response_id": ID, "rating": "good"}, or "bad" with a "correction" and a "comment" if you like'


def lines_of(body: bytes) -> list[bytes]:
    """Inbox lines of POST /train: one for each of `examples`, else the body itself is the record."""
    record = _decoded(body, object, "not JSON", 'send {"messages":[...]} or {"examples":[...]}')
    if not isinstance(record, dict):
        raise RecordRefused("the body is not a JSON object", 'send {"messages":[...]} or {"examples":[...]}')
    records = record.get("examples", [record])
    if not isinstance(records, list) or not records:
        raise RecordRefused("`examples` is not a list of records", 'send {"examples":[{"messages":[...]}, ...]}')
    return [msgspec.json.encode(each) for each in records]


class _Lesson(msgspec.Struct, forbid_unknown_fields=True):
    statement: str = ""
    question: str = ""
    answer: str = ""
    replaces: str = ""


class _Pair(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    answer: str


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    document: str
    name: str = "document.md"
    questions: list[_Pair] = []
    forget_removed: bool = False


class _Behaviour(msgspec.Struct, forbid_unknown_fields=True):
    """A behaviour in a request: without commands and files, since a caller must not run anything here."""

    instruction: str
    name: str = ""
    check_regex: str = ""
    rubric: str = ""


def taught_of(body: bytes) -> msg.TeachRequest | msg.TeachDocumentRequest:
    """The request of POST /lessons."""
    fields = _lesson(body, dict[str, msgspec.Raw])
    if "instruction" in fields:
        told = _lesson(body, _Behaviour)
        check = Check(regex=told.check_regex, rubric=told.rubric)
        return msg.TeachRequest(by="http", pattern=PatternSettings(told.name, told.instruction, check=check))
    if "document" in fields:
        one = _lesson(body, _Document)
        pairs = [(pair.question, pair.answer) for pair in one.questions]
        data = one.document.encode("utf-8", "surrogatepass")
        return msg.TeachDocumentRequest(one.name, data, pairs, one.forget_removed, by="http")
    given = _lesson(body, _Lesson)
    return msg.TeachRequest(given.statement, given.question, given.answer, given.replaces, by="http")


def _lesson(body: bytes, type_: type[T]) -> T:
    return _decoded(body, type_, "not a lesson", _LESSON_HINT)


class _Feedback(msgspec.Struct, forbid_unknown_fields=True):
    response_id: str
    rating: Literal["good", "bad"]
    correction: str | None = None
    comment: str | None = None
    choice: int | None = None


def feedback_of(body: bytes) -> msg.FeedbackRequest:
    """The request of POST /feedback."""
    given = _decoded(body, _Feedback, "not feedback", _FEEDBACK_HINT)
    return msg.FeedbackRequest(
        given.response_id, given.rating, given.correction, given.comment or "", given.choice, by="http"
    )


def question_of(response: str, choice: str | None) -> msg.FeedbackQuestion:
    """The query about an answer; `choice` as it stands in the URL."""
    if choice is not None and not choice.isdecimal():
        raise RecordRefused(f"choice={choice} is not a number", "ask for one of `choices`, the first is 0")
    return msg.FeedbackQuestion(response, int(choice) if choice else None)


def _decoded(body: bytes, type_: type[T], what: str, hint: str) -> T:
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordRefused(f"the body is {what} ({error})", hint) from error
