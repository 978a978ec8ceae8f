"""The control socket: serves children, and answers one request of each other client.

A request ends when its client closes the connection: its slot is freed, and the part that the loop has not taken yet is
dropped. An append under way is finished.
"""

from collections.abc import Awaitable, Callable, Iterator
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any, TypeVar

import anyio
import structlog
from anyio.abc import UNIXSocketStream

from apollod.adapters.ipc.sockets import Connection, tasks_beside
from apollod.errors import ApolloError, FrameError, LinkClosed
from apollod.explain import explain, line_of
from apollod.supervisor.requests import (
    bootstrap_requests,
    document_requests,
    example_requests,
    feedback_requests,
    lesson_requests,
    status_requests,
    training_requests,
    update_requests,
)
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg

log = structlog.get_logger()

FIRST_MESSAGE_S = 5.0
CONNECTIONS_MAX = 64
"""connections that are read or answered at once; and as many others whose requests wait"""

T = TypeVar("T")

Handler = Callable[[Daemon, Any], Awaitable[msg.Answer]]

SUBJECTS = (
    bootstrap_requests, document_requests, example_requests, feedback_requests, lesson_requests,
    status_requests, training_requests, update_requests,
)  # fmt: skip


def handlers_of(subject: ModuleType) -> Iterator[tuple[type[Any], Handler]]:
    """The functions of this module that answer a request, each behind its type: those with a public name and a
    `request`."""
    for name, one in vars(subject).items():
        if iscoroutinefunction(one) and not name.startswith("_") and "request" in one.__annotations__:
            yield one.__annotations__["request"], one


HANDLERS = {kind: handler for subject in SUBJECTS for kind, handler in handlers_of(subject)}

AT_ONCE = (
    msg.StatusRequest,
    msg.QueueRequest,
    msg.PatternsRequest,
    msg.LessonsRequest,
    msg.LessonQuestion,
    msg.LeaseRequest,
)
"""requests answered from the state, without waiting"""


class Control:
    """Serves accepted connections."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._slots = anyio.Semaphore(CONNECTIONS_MAX)
        self._waiting = anyio.Semaphore(CONNECTIONS_MAX)

    async def handle(self, stream: UNIXSocketStream) -> None:
        """Serve one connection from its first message to its end. Never raises: a bad peer costs a log line."""
        async with stream:
            try:
                await self._serve(stream)
            except LinkClosed:
                return  # a peer may go whenever it likes
            except TimeoutError:
                log.warning("control.silent_peer", seconds=FIRST_MESSAGE_S)
            except ApolloError as error:
                log.warning("control.refused", error=error.line())
            except OSError as error:
                log.warning("control.failed", error=line_of(error))

    async def _serve(self, stream: UNIXSocketStream) -> None:
        async with self._slots:
            connection = Connection(stream)
            with anyio.fail_after(FIRST_MESSAGE_S):
                first = await connection.receive()
            if isinstance(first, AT_ONCE):
                return await connection.send(await self._answer_unless_stuck(first))
        if isinstance(first, msg.Hello):
            await self._daemon.children.welcome(connection, first)
        else:
            await unless(connection.left, lambda: self._answer_in_turn(connection, first))

    async def _answer_in_turn(self, connection: Connection, request: object) -> None:
        async with self._waiting:
            await connection.send(await self._answer_unless_stuck(request))

    async def _answer_unless_stuck(self, request: object) -> msg.Answer:
        """The answer; or a failure while the journal cannot be written, since nothing can be confirmed then."""
        if isinstance(request, msg.StatusRequest):
            return await self._answer(request)
        loop = self._daemon.loop
        answer: msg.Answer | None = None
        if not loop.journal_error:
            answer = await unless(loop.trouble, lambda: self._answer(request))
        stuck = f"nothing is confirmed: {loop.journal_error}"
        return answer or msg.Failure(stuck, "then try again; lines given twice count once", retryable=True)

    async def _answer(self, request: object) -> msg.Answer:
        handler = HANDLERS.get(type(request))
        if handler is None:
            raise FrameError(f"{type(request).__name__} is not a request", "use `apollod ctl`")
        try:
            return await handler(self._daemon, request)
        except OSError as error:  # for example too many open files
            failed = explain(error)
            return msg.Failure(str(failed), failed.hint, retryable=True)


async def unless(ended: Callable[[], Awaitable[None]], work: Callable[[], Awaitable[T]]) -> T | None:
    """The result of the work, or None if `ended` returned first: then the work is cancelled."""
    result: T | None = None
    async with tasks_beside() as tasks:

        async def give_up() -> None:
            await ended()
            tasks.cancel_scope.cancel()

        tasks.start_soon(give_up)
        result = await work()
    return result
