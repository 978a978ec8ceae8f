"""A second address of the engine's server, `[control] listen`: all that the first one answers, and the routes for
weights, which the first one has not then."""

import asyncio
import logging
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress

import uvicorn
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse
from starlette.routing import Match

from apollod.adapters.ipc.listening import bound
from apollod.adapters.system.web_address import ListenAddress
from apollod.engine.http.callers import connection_of, transport_of, uid_of_peer
from apollod.engine.http.request_body import App, Receive, Scope, Send

logger = logging.getLogger("vllm.apollod")

LISTENER = "apollod.control"
"""key of a scope whose request came in here"""


def came_in_here(scope: Scope) -> bool:
    """True for a request to the second address."""
    return LISTENER in scope


class ControlRoute(APIRoute):
    """A route of the second address alone: for the first one it does not exist."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Source: starlette/routing.py, `Route.matches`."""
        return super().matches(scope) if came_in_here(scope) else (Match.NONE, {})


class ControlListener:
    """The server at the second address, in the process and the event loop of the first one."""

    def __init__(self, app: App, address: ListenAddress) -> None:
        self._app, self._address = app, address
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen, and serve beside what else runs. Raises ConfigError if the address cannot be had."""
        self._serving = asyncio.create_task(self._serve(bound(self._address)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Mark a request as one of this address. Source: the ASGI specification, HTTP connection scope."""
        if self._address.path and scope["type"] == "http" and (refused := _stranger(receive)):
            await refused(scope, receive, send)
            return
        scope[LISTENER] = True
        await self._app(scope, receive, send)

    async def _serve(self, listening: socket.socket) -> None:
        config = uvicorn.Config(self, lifespan="off", log_config=None, proxy_headers=False, ws="none")
        logger.info("apollod: trainers may write the weights at %s", self._address)
        try:
            await _Server(config).serve([listening])
        finally:
            listening.close()
            if self._address.path:
                with suppress(OSError):
                    os.unlink(self._address.path)


class _Server(uvicorn.Server):
    """Leaves signals to vLLM, which handles them for the whole process (entrypoints/launchers/launcher.py)."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _stranger(receive: Receive) -> JSONResponse | None:
    """The refusal of a peer of another user. The mode of the socket lets in root alone beside this user."""
    connection = connection_of(transport_of(receive))
    uid = None
    if connection is not None:
        with connection:
            uid = uid_of_peer(connection)
    if uid in (os.getuid(), 0):
        return None
    error = f"uid {uid} may not write the weights of this daemon"
    return JSONResponse({"error": error, "hint": f"ask as the user that runs apollod (uid {os.getuid()})"}, 403)
