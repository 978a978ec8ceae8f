"""The control socket: children are welcomed, everyone else's request becomes an input and gets one answer."""

import os

import anyio
import structlog
from anyio.abc import UNIXSocketStream

from apollod.adapters import clock
from apollod.adapters.inbox import batch_of_lines
from apollod.adapters.journal import Journal
from apollod.adapters.journal_errors import free_bytes
from apollod.adapters.lineage import tiers_of
from apollod.adapters.sockets import Connection
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.errors import ApolloError, FrameError, LinkClosed
from apollod.supervisor.audit import Audit
from apollod.supervisor.children import Children
from apollod.supervisor.config import Config
from apollod.supervisor.loop import Loop
from apollod.supervisor.view import not_begun, status_view
from apollod.wire import messages as msg

log = structlog.get_logger()

FIRST_MESSAGE_S = 5.0
CONNECTIONS_MAX = 64


class Control:
    """Serves accepted connections."""

    def __init__(self, config: Config, loop: Loop, journal: Journal, children: Children, audit: Audit) -> None:
        self._config = config
        self._loop = loop
        self._journal = journal
        self._children = children
        self._audit = audit
        self._slots = anyio.Semaphore(CONNECTIONS_MAX)

    async def handle(self, stream: UNIXSocketStream) -> None:
        """One connection from its first message to its end. Never raises: a bad peer costs a log line."""
        async with stream, self._slots:
            try:
                connection = Connection(stream)
                with anyio.fail_after(FIRST_MESSAGE_S):
                    first = await connection.receive()
                if isinstance(first, msg.Hello):
                    await self._children.welcome(connection, first)
                else:
                    await connection.send(await self._answer_unless_stuck(first))
            except LinkClosed:
                return  # a peer may go whenever it likes
            except TimeoutError:
                log.warning("control.silent_peer", seconds=FIRST_MESSAGE_S)
            except ApolloError as error:
                log.warning("control.refused", error=error.line())

    async def _answer_unless_stuck(self, request: object) -> msg.Answer:
        """The answer; or, while the journal cannot be written, that nothing more is taken and nothing confirmed."""
        if isinstance(request, msg.StatusRequest):
            return await self.answer(request)
        answer: msg.Answer | ApolloError | None = None
        if not self._loop.journal_error:
            async with anyio.create_task_group() as tasks:

                async def give_up() -> None:
                    await self._loop.trouble()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(give_up)
                try:
                    answer = await self.answer(request)
                except ApolloError as error:
                    answer = error  # raised below: out of here it would be a group of one
                tasks.cancel_scope.cancel()
        if isinstance(answer, ApolloError):
            raise answer
        stuck = f"nothing is confirmed: {self._loop.journal_error}"
        return answer or msg.Failure(stuck, "then try again; lines given twice count once", retryable=True)

    async def answer(self, request: object) -> msg.Answer:
        """The answer to one request."""
        match request:
            case msg.StatusRequest():
                return msg.Reply(self.status())
            case msg.SubmitRequest(lines=lines, source=source):
                return await self._submit(lines, source)
            case msg.CheckpointRequest():
                return await self._checkpoint()
            case msg.PauseRequest():
                await self._loop.submit(inp.PauseRequested(by="ctl"))
                return msg.Reply(self.status())
            case msg.RollbackRequest(to=to):
                return await self._rollback(to)
            case msg.RelearnRequest(examples=examples):
                return await self._relearn(examples)
            case msg.ResumeRequest():
                await self._loop.submit(inp.ResumeRequested(by="ctl"))
                return msg.Reply(self.status())
        raise FrameError(f"{type(request).__name__} is not a request", "use `apollod ctl`")

    def status(self) -> dict[str, object]:
        """The status object, straight from the state."""
        seq, head = self._journal.head
        config = self._config
        journal = {
            "seq": seq, "bytes": self._journal.size_bytes(), "head_hash": head, "path": str(config.journal_path),
            "verified": self._audit.verified, "free_bytes": free_bytes(config.journal_path),
        }
        state = self._loop.state if self._loop.begun else not_begun(self._loop.state)
        trouble = self._loop.journal_error or self._audit.damage
        paths = {"state": str(config.state_dir), "inbox": str(config.inbox_dir), "socket": str(config.socket_path)}
        status = status_view(state, clock.now_ns(), journal, trouble, os.getpid(), paths)
        engine = self._children.engine
        status["weights"]["served"] = engine.api.served if engine else None  # the version that the engine has taken over
        return status

    async def _submit(self, lines: list[bytes], source: str) -> msg.Answer:
        kept_in = self._config.state_dir / "quarantine"
        try:
            batch = await anyio.to_thread.run_sync(batch_of_lines, lines, source, kept_in, self._config.inbox.max_line_bytes)
        except OSError as error:
            return msg.Failure(
                f"a bad line cannot be kept in {kept_in}: {error.strerror}; nothing was taken", "look at the disk, and try again",
                retryable=True,
            )
        recorded = await self._loop.submit(inp.LinesRead(batch, frozenset()))
        events = [r.event for r in recorded]
        accepted = [e.example for e in events if isinstance(e, ev.ExampleAccepted)]
        return msg.Reply({
            "schema_version": 1,
            "examples": accepted,
            "duplicates": [e.example for e in events if isinstance(e, ev.ExampleDuplicate)],
            "rejected": [{"line": e.line, "reason": e.reason} for e in events if isinstance(e, ev.SourceQuarantined)],
        })

    async def _checkpoint(self) -> msg.Answer:
        """Wait for a checkpoint that holds everything completed or running now."""
        state = self._loop.state
        target = state.running.step if state.running else state.version
        while state.checkpoint is None or state.checkpoint.step < target or state.taken_back:
            if state.trainer.phase != "ready":
                return msg.Failure(
                    "the trainer is not ready, so nothing can be written", "see `apollod ctl status`", retryable=True
                )
            failures = state.checkpoint_retry_ns
            await self._loop.submit(inp.CheckpointRequested(why="requested"))
            while state.checkpointing is not None:
                await self._loop.changed()
            if state.checkpoint_retry_ns != failures:
                return msg.Failure(
                    "the checkpoint was not written", "see `apollod ctl events --kind checkpoint.failed`", retryable=True
                )
        c = state.checkpoint
        return msg.Reply({
            "schema_version": 1, "step": c.step, "fingerprint": c.fingerprint, "path": c.path, "model_dir": state.model_path,
        })

    async def _rollback(self, to: int) -> msg.Answer:
        """Wait until the served weights are those of step `to`."""
        state = self._loop.state
        asked = await self._loop.submit(inp.RollbackRequested(to, by="ctl"))
        if not any(isinstance(r.event, ev.RollbackRequested) for r in asked):
            return msg.Failure("another rollback is under way", "see `apollod ctl status`")
        refused, started = self._loop.last(ev.RollbackRefused), self._loop.last(ev.RollbackStarted)
        while state.rollback_wanted is not None or state.rolling_back is not None:
            if state.halted and state.rolling_back is not None:
                return msg.Failure(f"the rollback stopped: {state.halted}", "nothing is lost; then `apollod ctl resume` goes on with it")
            await self._loop.changed()
        if (now := self._loop.last(ev.RollbackRefused)) is not None and now is not refused:
            return msg.Failure(now.reason, "`apollod ctl query \"SELECT step, parent, at FROM steps ORDER BY step DESC\"` lists the steps")
        begun, done = self._loop.last(ev.RollbackStarted), self._loop.last(ev.RollbackCompleted)
        assert begun is not None and begun is not started and done is not None
        return msg.Reply({
            "schema_version": 1, "step": done.to, "from": done.from_step, "fingerprint": done.fingerprint, "how": done.how,
            "replayed": done.replayed, "seconds": done.seconds, "undone": list(begun.undone), "examples": list(begun.examples),
        })

    async def _relearn(self, examples: list[str]) -> msg.Answer:
        state = self._loop.state
        if others := [example for example in examples if example not in state.undone]:
            return msg.Failure(
                f"{others[0]} was not taken back",
                "`apollod ctl query \"SELECT id FROM examples WHERE state = 'undone'\"` lists those that were",
            )
        wanted = await anyio.to_thread.run_sync(tiers_of, self._config.journal_path, examples)
        recorded = await self._loop.submit(inp.RelearnRequested(tuple(wanted), by="ctl"))
        return msg.Reply({"schema_version": 1, "examples": [r.event.example for r in recorded if isinstance(r.event, ev.ExampleRequeued)]})
