"""Turns what a handler returns or raises into the answer of its dialect."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from apollod.engine.http.exchange import Refusal
from apollod.engine.http.weights.call_errors import BadCall, NotServed, TooManyCalls
from apollod.engine.http.weights.trainer_desk import Handler
from apollod.errors import ApolloError, DaemonUnreachable, LinkClosed

logger = logging.getLogger("vllm.apollod")

Teller = Callable[[Request], Awaitable[Any]]
"""returns a response, or an object for a JSON body"""


def told(handler: Teller, refused: int, error: Callable[[int, str], dict[str, Any]]) -> Handler:
    """The handler with its answers and errors. `refused`: the status of what the supervisor or the engine refuses;
    `error`: the body for a status and a text."""

    async def answered(request: Request) -> Response:
        try:
            answer = await handler(request)
            return answer if isinstance(answer, Response) else JSONResponse(answer)
        except Refusal as refusal:
            status, problem, hint = refusal.args
            return JSONResponse(error(status, f"{problem}; {hint}"), status)
        except ApolloError as failure:
            status = _status(failure, refused)
            return JSONResponse(error(status, failure.line()), status)
        except ClientDisconnect:
            raise
        except Exception as failure:  # of the engine
            logger.exception("apollod: %s failed", request.url.path)
            return JSONResponse(error(refused, f"{type(failure).__name__}: {failure}"), refused)

    return answered


def _status(failure: ApolloError, refused: int) -> int:
    if isinstance(failure, BadCall):
        return 400
    if isinstance(failure, NotServed):
        return 501
    if isinstance(failure, TooManyCalls):
        return 429
    return 503 if isinstance(failure, DaemonUnreachable | LinkClosed) else refused
