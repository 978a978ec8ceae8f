"""The control socket: children are welcomed, everyone else's request gets one answer."""

import anyio
import structlog
from anyio.abc import UNIXSocketStream

from apollod.adapters.ipc.sockets import Connection
from apollod.errors import ApolloError, FrameError, LinkClosed
from apollod.explain import explain, line_of
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.requests.handlers import HANDLERS
from apollod.wire import messages as msg

log = structlog.get_logger()

FIRST_MESSAGE_S = 5.0
CONNECTIONS_MAX = 64


class Control:
    """Serves accepted connections."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._slots = anyio.Semaphore(CONNECTIONS_MAX)

    async def handle(self, stream: UNIXSocketStream) -> None:
        """One connection from its first message to its end. Never raises: a bad peer costs a log line."""
        async with stream, self._slots:
            try:
                connection = Connection(stream)
                with anyio.fail_after(FIRST_MESSAGE_S):
                    first = await connection.receive()
                if isinstance(first, msg.Hello):
                    await self._daemon.children.welcome(connection, first)
                else:
                    await connection.send(await self._answer_unless_stuck(first))
            except LinkClosed:
                return  # a peer may go whenever it likes
            except TimeoutError:
                log.warning("control.silent_peer", seconds=FIRST_MESSAGE_S)
            except ApolloError as error:
                log.warning("control.refused", error=error.line())
            except OSError as error:
                log.warning("control.failed", error=line_of(error))

    async def _answer_unless_stuck(self, request: object) -> msg.Answer:
        """The answer; or, while the journal cannot be written, that nothing more is taken and nothing confirmed."""
        if isinstance(request, msg.StatusRequest):
            return await self._answer(request)
        loop = self._daemon.loop
        answer: msg.Answer | ApolloError | None = None
        if not loop.journal_error:
            async with anyio.create_task_group() as tasks:

                async def give_up() -> None:
                    await loop.trouble()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(give_up)
                try:
                    answer = await self._answer(request)
                except ApolloError as error:
                    answer = error  # raised below: out of here it would be a group of one
                tasks.cancel_scope.cancel()
        if isinstance(answer, ApolloError):
            raise answer
        stuck = f"nothing is confirmed: {loop.journal_error}"
        return answer or msg.Failure(stuck, "then try again; lines given twice count once", retryable=True)

    async def _answer(self, request: object) -> msg.Answer:
        handler = HANDLERS.get(type(request))
        if handler is None:
            raise FrameError(f"{type(request).__name__} is not a request", "use `apollod ctl`")
        try:
            return await handler(self._daemon, request)
        except OSError as error:  # such as no file left to open
            failed = explain(error)
            return msg.Failure(str(failed), failed.hint, retryable=True)
