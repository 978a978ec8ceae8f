"""SGLang's dialect. An update is one of three: between POST /begin_weight_update and /end_weight_update; within a
pause, committed by POST /continue_generation if it is whole; or a single call. A refusal is a 400, as in SGLang."""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from apollod.engine.http.exchange import read_body
from apollod.engine.http.weights import sglang_bodies as bodies
from apollod.engine.http.weights.call_errors import BadCall, NotServed, refuse_checker
from apollod.engine.http.weights.dialect_answers import told
from apollod.engine.http.weights.served_model import model_info, server_info
from apollod.engine.http.weights.trainer_desk import Desk, Table, caller_of
from apollod.engine.http.weights.update_calls import LONG_S, SHORT_S
from apollod.errors import ApolloError
from apollod.wire import control_messages as msg

BEGIN = "POST /begin_weight_update"
TOO_LONG = "send fewer tensors in an update"


class SglangRoutes:
    """The routes of this dialect. Those that vLLM's has, too, are in `vllm_routes` and answer both."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def table(self) -> Table:
        """Method, path and handler of each."""
        return [
            (method, path, told(handler, 400, _error))
            for method, path, handler in (
                ("POST", "/pause_generation", self._pause),
                ("POST", "/continue_generation", self._continue),
                ("GET", "/flush_cache", self._flush),
                ("POST", "/flush_cache", self._flush),
                ("POST", "/abort_request", self._abort),
                ("POST", "/init_weights_update_group", self._join),
                ("POST", "/destroy_weights_update_group", self._leave),
                ("POST", "/begin_weight_update", self._begin),
                ("POST", "/end_weight_update", self._end),
                ("POST", "/update_weights_from_distributed", self._from_distributed),
                ("POST", "/update_weights_from_disk", self._from_disk),
                ("POST", "/update_weights_from_tensor", self._from_tensor),
                ("POST", "/update_weights_from_ipc", self._from_ipc),
                ("GET", "/get_weights_by_name", self._by_name),
                ("POST", "/get_weights_by_name", self._by_name),
                ("POST", "/weights_checker", self._check),
                ("POST", "/release_memory_occupation", self._memory),
                ("POST", "/resume_memory_occupation", self._memory),
                ("GET", "/health_generate", self._health),
                ("GET", "/get_load", self._load),
                ("GET", "/model_info", self._model_info),
                ("GET", "/get_model_info", self._model_info),
                ("GET", "/get_weight_version", self._version),
                ("GET", "/get_server_info", self._server_info),
            )
        ]

    async def _pause(self, request: Request) -> Any:
        mode, clear = bodies.pause_of(await read_body(request, 'send {"mode": "abort"}'))
        await self._desk.pause(mode, clear)
        return {"message": "Generation paused successfully.", "status": "ok"}

    async def _continue(self, request: Request) -> Any:
        await read_body(request, "send {}")
        try:
            await self._desk.updates.continued()
        finally:  # generation goes on, on the old weights if need be
            await self._desk.resume()
        return {"message": "Generation continued successfully.", "status": "ok"}

    async def _flush(self, request: Request) -> Any:
        """Also by GET, which slime uses: a page of another site could send that, and its browser says so."""
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise BadCall("a page of another site may not drop the cache", "ask by another program")
        wait_s = bodies.flush_wait_of(request.query_params.get("timeout"))
        if await self._desk.forget(within_s=wait_s):
            return PlainTextResponse("Cache flushed.\n")
        return PlainTextResponse("Cache not flushed: requests are running; wait for their end, or pause before.\n", 400)

    async def _abort(self, request: Request) -> Any:
        await self._desk.abort(bodies.aborted_of(await read_body(request, "name fewer")))
        return Response()

    async def _join(self, request: Request) -> Any:
        body = await read_body(request, bodies.INIT_HINT)
        wanted = bodies.join_of(body, self._desk.terms.addresses, self._desk.model.cuda)
        self._desk.updates.joins.take()
        await self._desk.updates.asked(wanted, LONG_S)
        return bodies.told(True, f"Joined group {wanted.group} as rank {wanted.rank}.")

    async def _leave(self, request: Request) -> Any:
        group = bodies.group_of(await read_body(request, 'send {"group_name"}'))
        await self._desk.updates.asked(msg.UpdateLeaveRequest(group), SHORT_S)
        return bodies.told(True, f"Left group {group}.")

    async def _begin(self, request: Request) -> Any:
        await read_body(request, "send {}")
        await self._desk.updates.open("sglang", caller_of(request))
        return bodies.told(True, "Weight update begun.")

    async def _end(self, request: Request) -> Any:
        await read_body(request, "send {}")
        update = self._desk.updates.of("sglang")
        await self._desk.updates.commit(update if update and update.kind == "begun" else None, "", BEGIN)
        return bodies.told(True, "Weight update ended.")

    async def _from_distributed(self, request: Request) -> Any:
        await self._received(request, bodies.distributed_of)
        return bodies.told(True, "Succeeded to update parameters online.")

    async def _from_disk(self, request: Request) -> Any:
        await self._received(request, bodies.directory_of)
        return bodies.told(True, "Succeeded to update model weights.", num_paused_requests=0)

    async def _received(self, request: Request, read: Callable[[bytes], bodies.Received]) -> None:
        updates = self._desk.updates
        async with updates.attempt("sglang"):
            wanted = read(await read_body(request, TOO_LONG))
            if wanted.aborts:
                await self._desk.abort(None)
            update = updates.of("sglang")
            if update is None and not self._desk.paused:
                await updates.single("sglang", caller_of(request), wanted.request, wanted.label)
                return
            if update is None:
                update = await updates.open("sglang", caller_of(request), "paused")
            update.label = wanted.label or update.label
        async with updates.attempt("sglang"):
            await updates.receive(update, wanted.request)

    async def _from_tensor(self, request: Request) -> Any:
        await _drained(request)
        async with self._desk.updates.attempt("sglang"):
            raise BadCall(
                "tensors in the body are pickled, and nothing that a caller sends is unpickled "
                "(serialized_named_tensors)",
                bodies.OTHER_WAYS,
            )

    async def _from_ipc(self, request: Request) -> Any:
        await _drained(request)
        async with self._desk.updates.attempt("sglang"):
            raise BadCall(
                "tensors over ZMQ are pickled, and nothing that a caller sends is unpickled (zmq_handles)",
                bodies.OTHER_WAYS,
            )

    async def _by_name(self, request: Request) -> Any:
        await _drained(request)
        raise NotServed("weights are not told over HTTP", "write a checkpoint (POST /checkpoint) and read its files")

    async def _check(self, request: Request) -> Any:
        refuse_checker(bodies.checked_of(await read_body(request, 'send {"action": "checksum"}')))

    async def _memory(self, request: Request) -> Any:
        bodies.check_memory(await read_body(request, "send {}"))

    async def _health(self, request: Request) -> Any:
        try:
            await self._desk.updates.asked(msg.LeaseRequest(), SHORT_S)
        except ApolloError as error:
            return PlainTextResponse(f"{error.line()}\n", 503)
        return Response(status_code=200 if await self._desk.generates(request) else 503)

    async def _load(self, request: Request) -> Any:
        return bodies.load_of(self._desk.active, self._desk.paused)

    async def _model_info(self, request: Request) -> Any:
        return model_info(self._desk.model, await self._desk.updates.label())

    async def _version(self, request: Request) -> Any:
        return {"weight_version": await self._desk.updates.label()}

    async def _server_info(self, request: Request) -> Any:
        return server_info(self._desk.model, await self._desk.updates.label(), self._desk.active)


async def _drained(request: Request) -> None:
    """Read a body to its end, keeping nothing: a client that still sends would not see the refusal."""
    async for _ in request.stream():
        pass


def _error(status: int, text: str) -> dict[str, Any]:
    """Has all fields in which one of the clients looks for the text."""
    return bodies.told(False, text, status="error", error={"message": text})
