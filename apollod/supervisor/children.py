"""The supervisor's handle of each child: the process, its connections, the memory between them.

No decisions here. Messages of a child become inputs; messages to a child that has not connected yet wait.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import anyio
import msgspec

from apollod.adapters.ipc.sockets import Connection, tasks_beside
from apollod.adapters.system.processes import ChildProcess
from apollod.bridges.facts import facts_of
from apollod.bridges.memory_file import SharedMemory
from apollod.core import inputs as inp
from apollod.errors import ApolloError, LinkClosed, NotPermitted
from apollod.model.memory_plan import MemoryPlan
from apollod.store.access import WeightsLock
from apollod.supervisor.engine_api import EngineApi, Order, unanswered
from apollod.wire import messages as msg
from apollod.wire.manifest import Manifest, MemoryFile

Post = Callable[[inp.Input], None]


class Outbox:
    """Messages to one child, in order; they wait until it connects."""

    def __init__(self) -> None:
        self._queue: deque[tuple[msgspec.Struct, int | None]] = deque()
        self._more = anyio.Event()

    def put(self, message: msgspec.Struct, fd: int | None = None) -> None:
        """Queue one message, with a duplicate of the descriptor: its owner may close it before this is sent."""
        self._queue.append((message, None if fd is None else os.dup(fd)))
        self._more.set()

    async def drain_into(self, connection: Connection) -> None:
        """Send until the connection ends. Raises LinkClosed then."""
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
        """Drop unsent messages: no child will connect any more."""
        while self._queue:
            _, fd = self._queue.popleft()
            if fd is not None:
                os.close(fd)


class EngineChild:
    """The engine: API process and worker connect separately."""

    def __init__(
        self, process: ChildProcess, model_dir: str, reading: WeightsLock, post: Post, plan: MemoryPlan | None = None
    ) -> None:
        self.process = process
        self.model_dir = model_dir
        self.plan = plan
        self._files_lock: WeightsLock | None = reading
        self.memory: SharedMemory | None = None
        self.loaded: msg.Loaded | None = None
        self.loaded_event = anyio.Event()
        self.versions: dict[str, str] = {}
        self.refusal = ""
        self.last_words = ""
        """why it was ended, if it hung"""
        self.api = EngineApi(post)

    async def serve_worker(self, connection: Connection) -> None:
        """Answer the loader: give it memory, then take its manifest or refusal. Ends as `receive` does; raises
        ShareRefused for an invalid manifest or an unknown bridge."""
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
                    facts_of(manifest)  # refuses an unknown one before a trainer binds to it
                    self.loaded = message
                    self.loaded_event.set()
                    self._release_files()
                case msg.LoadRefused(reason=reason, hint=hint):
                    self.refusal = f"{reason}; {hint}" if hint else reason
                case _:
                    raise NotPermitted(f"an engine worker may not send {type(message).__name__}")

    @property
    def manifest(self) -> Manifest:
        assert self.loaded is not None
        return self.loaded.manifest

    def descriptors(self) -> Iterator[tuple[MemoryFile, int]]:
        """The memory files of the manifest, each with the descriptor to send with it."""
        for storage in self.manifest.storages:
            if isinstance(storage, MemoryFile):
                assert self.memory is not None
                yield storage, self.memory.fd

    def close(self) -> None:
        """Give the memory back; the kernel frees it with the last mapping. Trainers no longer bind to it."""
        self._release_files()
        self.loaded = None
        if self.memory is not None:
            self.memory.close()
            self.memory = None

    def _release_files(self) -> None:
        """Allow writes to the weight files: they were read, or never will be."""
        if self._files_lock is not None:
            self._files_lock.__exit__()
            self._files_lock = None


class TrainerChild:
    """The trainer: one connection, messages in order."""

    def __init__(self, process: ChildProcess) -> None:
        self.process = process
        self.outbox = Outbox()
        self.questions = OpenQuestions()
        self.last_words = ""
        self.replaying = 0
        """the recorded step that it was last told to run again; 0: none since it was told another step"""
        self.undoable: inp.Undoable | None = None
        """its last report"""
        self.undo_bytes: int | None = None
        """memory given to it for undoing steps"""

    def tell(self, message: msgspec.Struct, fd: int | None = None) -> None:
        """Queue one message. All but `Share` are questions that the trainer answers."""
        if not isinstance(message, msg.Share):
            kind = str(message.__struct_config__.tag)
            self.questions.ask(kind, f"step {message.step}" if isinstance(message, msg.Step) else kind)
        if isinstance(message, msg.Step):
            self.replaying = message.step if message.replay else 0
        if isinstance(message, msg.Attach):
            self.undo_bytes = message.undo_bytes
        self.outbox.put(message, fd)

    async def serve(self, connection: Connection, post: Post) -> None:
        """Turn its reports into inputs. Raises the error that ends the connection."""
        async with tasks_beside() as tasks:
            tasks.start_soon(self._send, connection)
            await self._receive(connection, post)

    async def _receive(self, connection: Connection, post: Post) -> None:
        while True:
            message = await connection.receive()
            if isinstance(message, msg.AtWork):
                self.questions.at_work()
                continue
            if isinstance(message, msg.StepFailure) and message.torn:
                self.last_words = message.reason
            if isinstance(message, inp.StepDone | inp.Restored):
                self.undoable = message.undoable
            answer, question = settled(message)
            self.questions.answer(question)
            post(answer)

    async def _send(self, connection: Connection) -> None:
        try:
            await self.outbox.drain_into(connection)
        except LinkClosed:
            return  # its exit is reported by the process, once


ANSWERS: Mapping[type[inp.Input], str] = {
    inp.Bound: "attach",
    inp.Restored: "restore",
    inp.EncodeDone: "encode",
    inp.StepDone: "step",
    inp.StepFailure: "step",
    inp.CheckpointWritten: "write-checkpoint",
    inp.Probed: "probe",
    inp.ExamplesScored: "rescore",
    inp.ExamplesRanked: "rank",
}
"""A trainer's answer -> the tag of the message that it answers; `Refused` names it."""


def settled(message: msgspec.Struct) -> tuple[inp.Input, str]:
    """A trainer's answer, and the tag of the message that it answers. Raises NotPermitted for anything else."""
    if isinstance(message, inp.Refused):
        return message, message.what
    if not isinstance(message, inp.Input) or type(message) not in ANSWERS:
        raise NotPermitted(f"a trainer may not send {type(message).__name__}")
    return message, ANSWERS[type(message)]


class Children:
    """Both children, their connections, and the messages to them."""

    def __init__(self, post: Post) -> None:
        self.engine: EngineChild | None = None
        self.trainer: TrainerChild | None = None
        self._post = post

    def tell_trainer(self, message: msgspec.Struct, fd: int | None = None) -> None:
        """Queue one message to the trainer; dropped if it is gone, which its exit reports."""
        if self.trainer is not None:
            self.trainer.tell(message, fd)

    def order_engine(self, order: Order) -> None:
        """Give the engine's API process an order. Without an engine, the core is told so if it waits for the answer."""
        if self.engine is None:
            unanswered(order, self._post)
        else:
            self.engine.api.give(order)

    async def welcome(self, connection: Connection, hello: msg.Hello) -> None:
        """Serve a child's connection to its end. Raises NotPermitted for other processes."""
        child = self.trainer if hello.role == "trainer" else self.engine
        if child is None or not child.process.owns(connection.pid):
            raise NotPermitted(
                f"pid {connection.pid} is not our {hello.role}", "children are started by the daemon only"
            )
        if hello.protocol != msg.PROTOCOL:
            raise ApolloError(
                f"{hello.role} speaks protocol {hello.protocol}, this daemon {msg.PROTOCOL}", "use one version"
            )
        if isinstance(child, TrainerChild):
            await child.serve(connection, self._post)
        elif hello.role == "engine-worker":
            child.versions.update(hello.versions)
            await child.serve_worker(connection)
        else:
            await child.api.serve(connection)


class OpenQuestions:
    """Open questions, one of a kind, and when the child last answered. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._questions: dict[str, str] = {}
        self._since = 0.0
        self._asked = anyio.Event()

    def ask(self, kind: str, question: str) -> None:
        """Note a question to the child; `question`: its name for people."""
        if not self._questions:
            self._since = anyio.current_time()
        self._questions[kind] = question
        self._asked.set()

    def answer(self, kind: str) -> None:
        """Note an answer: the child is at work, whatever else is open."""
        self._questions.pop(kind, None)
        self._since = anyio.current_time()

    def at_work(self) -> None:
        """Note a sign of life during a question."""
        self._since = anyio.current_time()

    async def overdue(self, limit_s: float) -> str:
        """Wait until questions are open and none was answered for `limit_s` seconds; returns the oldest of them."""
        while True:
            if not self._questions:
                self._asked = anyio.Event()
                await self._asked.wait()
            left = self._since + limit_s - anyio.current_time()
            if left <= 0:
                return next(iter(self._questions.values()))
            await anyio.sleep(left)
