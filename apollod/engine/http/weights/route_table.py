"""All routes for weights, of both dialects."""

from starlette.requests import Request
from starlette.responses import Response

from apollod.engine.http.weights.operation_metrics import timed
from apollod.engine.http.weights.sglang_routes import SglangRoutes
from apollod.engine.http.weights.trainer_desk import Desk, Handler, Table
from apollod.engine.http.weights.vllm_routes import VllmRoutes


def weight_routes(desk: Desk) -> Table:
    """Method, path and handler of each; answers carry the version of the served weights, and calls are measured."""
    both = [*VllmRoutes(desk).table(), *SglangRoutes(desk).table()]
    return [(method, path, _labelled(desk, path, handler)) for method, path, handler in both]


def _labelled(desk: Desk, path: str, handler: Handler) -> Handler:
    async def labelled(request: Request) -> Response:
        with timed(path):
            return desk.labelled(await handler(request))

    return labelled
