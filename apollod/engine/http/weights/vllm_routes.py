"""vLLM's weight-transfer dialect: POST /init_weight_transfer_engine, then for each version POST /start_weight_update,
/update_weights (once or more) and /finish_weight_update. A call out of order is a 500, as in vLLM."""

from contextlib import suppress
from typing import Any

from starlette.requests import Request

from apollod.engine.http.exchange import read_body
from apollod.engine.http.weights import vllm_bodies as bodies
from apollod.engine.http.weights.call_errors import BadCall, NotServed, UpdateRefused, refuse_checker
from apollod.engine.http.weights.dialect_answers import Teller, told
from apollod.engine.http.weights.served_model import server_info
from apollod.engine.http.weights.trainer_desk import Desk, Handler, Table, caller_of
from apollod.engine.http.weights.update_calls import LONG_S, SHORT_S
from apollod.wire import control_messages as msg

BEGIN = "POST /start_weight_update"
PLAIN_ERRORS = ("/pause", "/resume", "/is_paused", "/abort_requests")
"""routes whose errors are {"error": TEXT}"""
TOO_LONG = "send fewer tensors in an update"


class VllmRoutes:
    """The routes of this dialect."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._joined: bodies.Joined | None = None
        self._joining = False

    def table(self) -> Table:
        """Method, path and handler of each."""
        return [
            (method, path, _told(handler, path))
            for method, path, handler in (
                ("POST", "/pause", self._pause),
                ("POST", "/resume", self._resume),
                ("GET", "/is_paused", self._is_paused),
                ("POST", "/abort_requests", self._abort),
                ("POST", "/init_weight_transfer_engine", self._join),
                ("POST", "/start_weight_update", self._start),
                ("POST", "/start_draft_weight_update", self._start_draft),
                ("POST", "/update_weights", self._update),
                ("POST", "/finish_weight_update", self._finish),
                ("POST", "/shutdown_weight_transfer_engine", self._leave),
                ("POST", "/update_weight_version", self._rename),
                ("GET", "/weight_info", self._weight_info),
                ("POST", "/weight_checker", self._check),
                ("GET", "/get_world_size", self._world_size),
                ("GET", "/server_info", self._server_info),
                ("POST", "/reset_prefix_cache", self._forget),
            )
        ]

    async def _pause(self, request: Request) -> Any:
        query = request.query_params
        mode, clear = bodies.pause_of(
            query.get("mode"), query.get("clear_cache"), query.get("wait_for_inflight_requests")
        )
        try:
            await self._desk.pause(mode, clear)
        except ValueError as error:
            raise BadCall(str(error), "choose another mode") from error
        return {"status": "paused"}

    async def _resume(self, request: Request) -> Any:
        await self._desk.updates.end_pause("generation was resumed by POST /resume")
        await self._desk.resume()
        return {"status": "resumed"}

    async def _is_paused(self, request: Request) -> Any:
        return {"is_paused": self._desk.paused}

    async def _abort(self, request: Request) -> Any:
        wanted = bodies.aborted_of(await read_body(request, "name fewer"))
        return {"status": "aborted", "aborted": await self._desk.abort(wanted or None)}

    async def _join(self, request: Request) -> Any:
        body = await read_body(request, bodies.INIT_HINT)
        joined = bodies.joined_of(body, self._desk.terms.addresses, self._desk.model.cuda)
        if self._joining:
            raise UpdateRefused("another request is joining a group", "wait for its end")
        self._desk.updates.joins.take()
        self._joining = True
        try:
            if self._joined is not None:  # it is replaced; one that is gone already is no obstacle
                with suppress(UpdateRefused):
                    await self._desk.updates.asked(msg.UpdateLeaveRequest(bodies.GROUP), SHORT_S)
            await self._desk.updates.asked(joined.request, LONG_S)
            self._joined = joined
        finally:
            self._joining = False
        return {"message": "Weight transfer initialized"}

    async def _start(self, request: Request) -> Any:
        await read_body(request, "send no body")
        await self._desk.updates.open("vllm", caller_of(request))
        return {"message": "Weight update started"}

    async def _start_draft(self, request: Request) -> Any:
        raise NotServed("a draft model's weights are not updated", f"use {BEGIN}")

    async def _update(self, request: Request) -> Any:
        updates = self._desk.updates
        async with updates.attempt("vllm"):
            wanted = bodies.receive_of(await read_body(request, TOO_LONG), self._joined)
            update = updates.of("vllm")
            if update is None:
                raise UpdateRefused("no update of the weights is under way", f"begin one by {BEGIN}")
            if self._joined is None:
                raise UpdateRefused("weight transfer is not initialized", "begin by POST /init_weight_transfer_engine")
            await updates.receive(update, wanted)
        return {"message": "Weights updated"}

    async def _finish(self, request: Request) -> Any:
        label = bodies.label_of(await read_body(request, 'send {"weight_version": "1"}'))
        await self._desk.updates.commit(self._desk.updates.of("vllm"), label, BEGIN)
        return {"message": "Weight update finished"}

    async def _leave(self, request: Request) -> Any:
        update = self._desk.updates.of("vllm")
        if update is not None and not update.failed:
            raise UpdateRefused("an update of the weights is under way", "finish it before")
        await self._desk.updates.asked(msg.UpdateLeaveRequest(bodies.GROUP), SHORT_S)
        self._joined = None
        return {"message": "Weight transfer shut down"}

    async def _rename(self, request: Request) -> Any:
        version, aborts = bodies.new_version_of(await read_body(request, 'send {"new_version": "1"}'))
        if aborts:
            await self._desk.abort(None)
        await self._desk.updates.rename(version)
        return {"success": True, "message": f"Weight version updated to {version}", "new_version": version}

    async def _weight_info(self, request: Request) -> Any:
        return {"weight_version": await self._desk.updates.label()}

    async def _check(self, request: Request) -> Any:
        refuse_checker(bodies.checked_of(await read_body(request, 'send {"action": "checksum"}')))

    async def _world_size(self, request: Request) -> Any:
        return {"world_size": 1}

    async def _server_info(self, request: Request) -> Any:
        return server_info(self._desk.model, await self._desk.updates.label(), self._desk.active)

    async def _forget(self, request: Request) -> Any:
        forced = bodies.is_forced(request.query_params.get("reset_running_requests"))
        return {"success": await self._desk.forget(forced)}


def _told(handler: Teller, path: str) -> Handler:
    return told(handler, 500, _plain_error if path in PLAIN_ERRORS else bodies.error_of)


def _plain_error(status: int, text: str) -> dict[str, Any]:
    return {"error": text}
