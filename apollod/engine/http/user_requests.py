"""Counts the requests of users, and signals new ones: an ASGI middleware, added by our plugin. Requests of environments
(POST /generate) are none of users, as those of the daemon.

Each is counted when it comes and when it was answered or its client left, so that none is too short to be seen. The
counters are Prometheus' own, in the registry that vLLM shows on /metrics, which adds up those of several API processes
(vllm/v1/metrics/prometheus.py).
"""

import asyncio
import re

from prometheus_client import Counter

from apollod.engine.http.request_body import App, Receive, Scope, Send, route_of
from apollod.wire.engine_terms import BEGUN, ENDED, GENERATE, OURS, SCORE

ASKS_NO_MODEL = re.compile(
    r"/(train|checkpoint|feedback|lessons|tokenize|detokenize"
    r"|pause|resume|abort_requests?|(pause|continue)_generation|flush_cache|reset_prefix_cache"
    r"|(init|shutdown)_weight_transfer_engine|(start|start_draft|finish|begin|end)_weight_update|update_weight_version"
    r"|(init|destroy)_weights_update_group|update_weights(_from_(distributed|disk|tensor|ipc))?"
    r"|weights?_checker|get_weights_by_name|(release|resume)_memory_occupation)"
)
"""POST routes, ours and vLLM's, that do not use the engine; from the second line on those of outside trainers"""

_BEGUN = Counter(BEGUN, "Requests of users that came, without those of the daemon itself")
_ENDED = Counter(ENDED, "Requests of users that were answered, refused or given up")


class Arrivals:
    """Requests of users as they come to this API process; for one event loop."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def came(self) -> None:
        """Wake all waiters."""
        self._next.set()
        self._next = asyncio.Event()

    async def next(self, within_s: float) -> bool:
        """Wait for the next request; False if none came in time."""
        try:
            await asyncio.wait_for(self._next.wait(), within_s)
        except TimeoutError:
            return False
        return True


class UserRequests:
    """The middleware."""

    def __init__(self, app: App, arrivals: Arrivals) -> None:
        self._app = app
        self._arrivals = arrivals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Source: the ASGI specification, HTTP and WebSocket connection scopes."""
        if not _is_of_user(scope):
            await self._app(scope, receive, send)
            return
        _BEGUN.inc()
        self._arrivals.came()
        try:
            await self._app(scope, receive, send)
        finally:
            _ENDED.inc()


def _is_of_user(scope: Scope) -> bool:
    asks = scope["type"] == "websocket" or (scope["type"] == "http" and scope["method"] == "POST")
    if not asks or (route := route_of(scope)) in (GENERATE, SCORE) or ASKS_NO_MODEL.fullmatch(route):
        return False
    return all(name.decode("latin-1").lower() != OURS for name, _ in scope["headers"])
