"""The control socket: serves children, and answers one request of each other client.

A request ends when its client closes the connection: its slot is freed, and the part that the loop has not taken yet is
dropped. An append under way is finished.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import structlog
from anyio.abc import UNIXSocketStream

from apollod.adapters.ipc.sockets import Connection, tasks_beside
from apollod.errors import ApolloError, FrameError, LinkClosed
from apollod.explain import explain, line_of
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.requests.bootstrap_requests import bootstrap, stop_bootstrap
from apollod.supervisor.requests.document_requests import forget_document, teach_document
from apollod.supervisor.requests.dream_requests import add_pattern, patterns, retire_pattern, start_dreams, stop_dreams
from apollod.supervisor.requests.environment_requests import environment
from apollod.supervisor.requests.example_requests import decide, edit, forget, submit, withdraw
from apollod.supervisor.requests.feedback_requests import feedback_on, give_feedback
from apollod.supervisor.requests.lesson_requests import forget_lesson, lesson, lessons, practise_lesson, teach
from apollod.supervisor.requests.status_requests import queue, status
from apollod.supervisor.requests.training_requests import checkpoint, measure_quality, pause, relearn, resume, rollback
from apollod.supervisor.requests.update_requests import (
    commit,
    join,
    lease,
    leave,
    open_update,
    receive,
    receive_directory,
    undo,
)
from apollod.wire import messages as msg

log = structlog.get_logger()

FIRST_MESSAGE_S = 5.0
CONNECTIONS_MAX = 64
"""connections that are read or answered at once; and as many others whose requests wait"""

T = TypeVar("T")

Handler = Callable[[Daemon, Any], Awaitable[msg.Answer]]

HANDLERS: dict[type[Any], Handler] = {
    msg.StatusRequest: status,
    msg.SubmitRequest: submit,
    msg.CheckpointRequest: checkpoint,
    msg.PauseRequest: pause,
    msg.ResumeRequest: resume,
    msg.RollbackRequest: rollback,
    msg.RelearnRequest: relearn,
    msg.WithdrawRequest: withdraw,
    msg.ForgetRequest: forget,
    msg.FeedbackRequest: give_feedback,
    msg.FeedbackQuestion: feedback_on,
    msg.DecideRequest: decide,
    msg.EditRequest: edit,
    msg.BootstrapRequest: bootstrap,
    msg.BootstrapStopRequest: stop_bootstrap,
    msg.QueueRequest: queue,
    msg.PatternsRequest: patterns,
    msg.PatternAddRequest: add_pattern,
    msg.PatternRetireRequest: retire_pattern,
    msg.DreamStartRequest: start_dreams,
    msg.DreamStopRequest: stop_dreams,
    msg.TeachRequest: teach,
    msg.LessonQuestion: lesson,
    msg.LessonsRequest: lessons,
    msg.LessonPractiseRequest: practise_lesson,
    msg.LessonForgetRequest: forget_lesson,
    msg.TeachDocumentRequest: teach_document,
    msg.DocumentForgetRequest: forget_document,
    msg.EnvironmentRequest: environment,
    msg.QualityRequest: measure_quality,
    msg.UpdateOpenRequest: open_update,
    msg.UpdateDirectoryRequest: receive_directory,
    msg.UpdateJoinRequest: join,
    msg.UpdateReceiveRequest: receive,
    msg.UpdateLeaveRequest: leave,
    msg.UpdateCommitRequest: commit,
    msg.UpdateUndoRequest: undo,
    msg.LeaseRequest: lease,
}

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
