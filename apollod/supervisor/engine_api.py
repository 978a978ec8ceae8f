"""Orders to the engine's API process, one at a time and in the order given; its answers become inputs."""

from collections import deque
from collections.abc import Callable

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from apollod.adapters.ipc.sockets import Connection, tasks_beside
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.errors import ApolloError, NotPermitted
from apollod.wire import messages as msg

log = structlog.get_logger()

Order = fx.RefreshEngine | fx.PauseEngine | fx.ResumeEngine | fx.CompareWeights
Answer = msg.Refreshed | msg.Paused | inp.EngineResumeReport | msg.Compared
ANSWERED_BY: dict[type, type] = {
    fx.RefreshEngine: msg.Refreshed,
    fx.PauseEngine: msg.Paused,
    fx.ResumeEngine: inp.EngineResumeReport,
    fx.CompareWeights: msg.Compared,
}
STRENGTH = ("keep", "salt", "reset")
GONE = "the engine's API process is gone"


class EngineApi:
    """Orders wait until the process connects. `served`: the newest version in use by it."""

    def __init__(self, post: Callable[[inp.Input], None]) -> None:
        self.served: int | None = None
        self._post = post
        self._orders: deque[Order] = deque()
        self._asked: Order | None = None
        self._gone = False
        self._answered = anyio.Event()
        self._more = anyio.Event()
        self._rest = anyio.Event()
        self._rest.set()

    def give(self, order: Order) -> None:
        """Queue an order. Consecutive refreshes are merged into the newest; a second resume in a row is dropped."""
        last = self._orders[-1] if self._orders else None
        if self._gone:
            unanswered(order, self._post)
            return
        if isinstance(order, fx.ResumeEngine) and isinstance(last, fx.ResumeEngine):
            return
        if isinstance(order, fx.RefreshEngine) and isinstance(last, fx.RefreshEngine):
            self._orders.pop()
            order = fx.RefreshEngine(order.version, max(order.forget, last.forget, key=STRENGTH.index))
        self._orders.append(order)
        self._rest = anyio.Event() if self._rest.is_set() else self._rest
        self._more.set()

    async def settled(self) -> None:
        """Wait until every order given so far is answered."""
        await self._rest.wait()

    async def serve(self, connection: Connection) -> None:
        """Serve one connection to its end. Raises the error that ended it."""
        try:
            async with tasks_beside() as tasks:
                tasks.start_soon(self._send, connection, tasks)
                while True:
                    self._take(await connection.receive())
        finally:
            self._lost()

    async def _send(self, connection: Connection, tasks: TaskGroup) -> None:
        try:
            while True:
                while self._orders:
                    self._asked, self._answered = self._orders.popleft(), anyio.Event()
                    await connection.send(_message(self._asked))
                    await self._answered.wait()
                self._rest.set()
                self._more = anyio.Event()
                await self._more.wait()
        except ApolloError:
            tasks.cancel_scope.cancel()

    def _take(self, message: object) -> None:
        if isinstance(message, inp.WeightsSentReport) or (
            isinstance(message, inp.EngineResumeReport) and message.expired
        ):
            self._post(message)
            return
        asked, self._asked = self._asked, None
        if not isinstance(message, Answer) or asked is None or not isinstance(message, ANSWERED_BY[type(asked)]):
            raise NotPermitted(
                f"an engine's API process may not send {type(message).__name__} now", "use one version of apollod"
            )
        match message:
            case msg.Refreshed(version=version, error=""):
                self.served = version
            case msg.Refreshed(version=version, error=error):
                log.warning("engine.refresh_failed", version=version, error=error)
            case msg.Paused(seconds=seconds, error=error):
                assert isinstance(asked, fx.PauseEngine)
                self._post(inp.EnginePauseReport(asked, seconds, error))
            case inp.EngineResumeReport():
                self._post(message)
            case msg.Compared():
                assert isinstance(asked, fx.CompareWeights)
                self._post(msgspec.structs.replace(message, number=asked.number))
        self._answered.set()

    def _lost(self) -> None:
        """Fail all open orders: the process connects only once, so it will not answer any more."""
        self._gone = True
        for order in ([self._asked] if self._asked else []) + list(self._orders):
            unanswered(order, self._post)
        self._asked = None
        self._orders.clear()
        self._rest.set()


def unanswered(order: Order, post: Callable[[inp.Input], None]) -> None:
    """Tell the core that there is no engine for this order, if it waits for the result."""
    if isinstance(order, fx.PauseEngine):
        post(inp.EnginePauseReport(order, 0.0, GONE, gone=True))
    elif isinstance(order, fx.CompareWeights):
        post(inp.Compared(order.step, error=GONE, number=order.number))


def _message(order: Order) -> fx.RefreshEngine | msg.Pause | fx.ResumeEngine | fx.CompareWeights:
    return msg.Pause(order.clear, order.at_most_s) if isinstance(order, fx.PauseEngine) else order
