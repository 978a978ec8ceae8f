"""What the supervisor holds of each child: the process, its connections, the memory between them.

No decisions here. What a child says becomes an input; what is sent to a child that is not connected yet waits.
"""

import fcntl
import os
from collections import deque
from collections.abc import Callable

import anyio
import msgspec

from apollod.adapters.processes import ChildProcess
from apollod.adapters.sockets import Connection
from apollod.core import inputs as inp
from apollod.errors import ApolloError, LinkClosed, NotPermitted
from apollod.store.lock import WeightsLock
from apollod.supervisor.engine_api import EngineApi
from apollod.supervisor.owed import Owed
from apollod.wire import messages as msg
from apollod.wire.manifest import Manifest

Post = Callable[[inp.Input], None]


class SharedMemory:
    """An anonymous memory file (memfd_create(2)) that the supervisor owns: it leaves no name behind, whoever dies."""

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("apollod-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        # Nobody may cut it under a mapping: that would be SIGBUS in the engine.
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self.size = size

    def close(self) -> None:
        os.close(self.fd)


class Outbox:
    """Messages to one child, in order; they wait until it connects."""

    def __init__(self) -> None:
        self._queue: deque[tuple[msgspec.Struct, int | None]] = deque()
        self._more = anyio.Event()

    def put(self, message: msgspec.Struct, fd: int | None = None) -> None:
        """Queue one message, with a duplicate of the descriptor: whoever owns it may close it before this is sent."""
        self._queue.append((message, None if fd is None else os.dup(fd)))
        self._more.set()

    async def drain_into(self, connection: Connection) -> None:
        """Send for ever; ends when the connection does."""
        while True:
            while self._queue:
                message, fd = self._queue.popleft()
                try:
                    await connection.send(message, fd)
                finally:
                    if fd is not None:
                        os.close(fd)
            self._more = anyio.Event()
            await self._more.wait()

    def close(self) -> None:
        """Nobody will connect any more."""
        while self._queue:
            _, fd = self._queue.popleft()
            if fd is not None:
                os.close(fd)


class EngineChild:
    """The engine: API process and worker connect separately."""

    def __init__(self, process: ChildProcess, model_dir: str, reading: WeightsLock, post: Post) -> None:
        self.process = process
        self.model_dir = model_dir
        self._reading: WeightsLock | None = reading
        self.memory: SharedMemory | None = None
        self.loaded: msg.Loaded | None = None
        self.loaded_event = anyio.Event()
        self.versions: dict[str, str] = {}
        self.refusal = ""
        self.api = EngineApi(post)

    async def serve_worker(self, connection: Connection) -> None:
        """The loader's requests: memory, then the manifest or a refusal."""
        while True:
            message = await connection.receive()
            match message:
                case msg.Reserve(bytes=size):
                    if self.memory is not None:
                        raise NotPermitted("the engine reserved its weights twice", "report this")
                    self.memory = SharedMemory(size)
                    await connection.send(msg.Share(size), self.memory.fd)
                case msg.Loaded(manifest=manifest):
                    manifest.check()
                    self.loaded = message
                    self.loaded_event.set()
                    self._read()
                case msg.LoadRefused(reason=reason, hint=hint):
                    self.refusal = f"{reason}; {hint}" if hint else reason
                case _:
                    raise NotPermitted(f"an engine worker may not send {type(message).__name__}")

    @property
    def manifest(self) -> Manifest:
        assert self.loaded is not None
        return self.loaded.manifest

    def close(self) -> None:
        """Give the memory back; the kernel frees it with the last mapping."""
        self._read()
        if self.memory is not None:
            self.memory.close()
            self.memory = None

    def _read(self) -> None:
        """The weight files are read: they may be written again."""
        if self._reading is not None:
            self._reading.__exit__(None, None, None)
            self._reading = None


class TrainerChild:
    """The trainer: one connection, messages in order."""

    def __init__(self, process: ChildProcess) -> None:
        self.process = process
        self.outbox = Outbox()
        self.owed = Owed()
        self.last_words = ""

    def tell(self, message: msgspec.Struct, fd: int | None = None) -> None:
        """Queue one message. All but `Share` are questions, and the trainer answers each."""
        if not isinstance(message, msg.Share):
            kind = str(message.__struct_config__.tag)
            self.owed.ask(kind, f"step {message.step}" if isinstance(message, msg.Step) else kind)
        self.outbox.put(message, fd)

    async def serve(self, connection: Connection, post: Post) -> None:
        """Everything it reports is an input. Raises what ends the connection (not as a group of one)."""
        ended: ApolloError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send, connection)
            try:
                await self._receive(connection, post)
            except ApolloError as error:
                ended = error
            tasks.cancel_scope.cancel()
        if ended is not None:
            raise ended

    async def _receive(self, connection: Connection, post: Post) -> None:
        while True:
            message = await connection.receive()
            if isinstance(message, msg.StepFailed):
                self.last_words = message.reason
            answer, question = settled(message)
            self.owed.answer(question)
            post(answer)

    async def _send(self, connection: Connection) -> None:
        try:
            await self.outbox.drain_into(connection)
        except LinkClosed:
            return  # its exit is reported by the process, once


def settled(message: msgspec.Struct) -> tuple[inp.Input, str]:
    """A trainer's answer, and the tag of the message that it answers."""
    match message:
        case inp.Bound():
            return message, "attach"
        case inp.Restored():
            return message, "restore"
        case inp.EncodeDone():
            return message, "encode"
        case inp.StepDone() | inp.StepFailed():
            return message, "step"
        case inp.CheckpointWritten():
            return message, "write-checkpoint"
        case inp.Probed():
            return message, "probe"
        case inp.Refused(what=what):
            return message, what
    raise NotPermitted(f"a trainer may not send {type(message).__name__}")


class Children:
    """Both of them, and the door through which they connect."""

    def __init__(self, post: Post) -> None:
        self.engine: EngineChild | None = None
        self.trainer: TrainerChild | None = None
        self._post = post

    async def welcome(self, connection: Connection, hello: msg.Hello) -> None:
        """Serve a child's connection to its end. Raises NotPermitted for a stranger."""
        child = self.trainer if hello.role == "trainer" else self.engine
        if child is None or not child.process.owns(connection.pid):
            raise NotPermitted(f"pid {connection.pid} is not our {hello.role}", "children are started by the daemon only")
        if hello.protocol != msg.PROTOCOL:
            raise ApolloError(f"{hello.role} speaks protocol {hello.protocol}, this daemon {msg.PROTOCOL}", "use one version")
        if isinstance(child, TrainerChild):
            await child.serve(connection, self._post)
        elif hello.role == "engine-worker":
            child.versions.update(hello.versions)
            await child.serve_worker(connection)
        else:
            await child.api.serve(connection)
