"""A trainer process on memory of its own, without daemon and engine: `with OfflineTrainer(threads) as trainer`."""

import os
import socket
import subprocess
import sys
import tempfile
from typing import TypeVar

import msgspec

from apollod.adapters.ipc.channel import Channel
from apollod.errors import LinkClosed, ReplayError
from apollod.wire import messages as msg

START_TIMEOUT_S = 60.0
EXIT_TIMEOUT_S = 20.0
STDERR = 2  # standard output is for the result

T = TypeVar("T")


class OfflineTrainer:
    """One process and the socket to it. Its thread count is fixed at the start: the bits of results depend on it."""

    def __init__(self, threads: str) -> None:
        with tempfile.TemporaryDirectory(prefix="apollod-") as directory, socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(directory, "replay.sock")
            listener.bind(path)
            listener.listen()
            listener.settimeout(START_TIMEOUT_S)
            environment = {
                **os.environ, "APOLLOD_SOCKET": path, "APOLLOD_PARENT_PID": str(os.getpid()),
                "APOLLOD_TRAINER_THREADS": threads,
            }  # fmt: skip
            command = [sys.executable, "-m", "apollod.trainer", "--offline"]
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=STDERR)
            try:
                connection, _ = listener.accept()
            except BaseException as error:
                self._process.kill()
                self._process.wait()
                if isinstance(error, TimeoutError):
                    raise ReplayError("the trainer does not start", "look at what it wrote above") from error
                raise
        self._channel = Channel(connection, msg.TO_SUPERVISOR, "the trainer")

    def __enter__(self) -> "OfflineTrainer":
        self._receive(msg.Hello)
        return self

    def __exit__(self, kind: object, error: object, where: object) -> None:
        self._channel.close()
        if error is not None:
            self._process.kill()  # it may be in the middle of a long step
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, message: msgspec.Struct, kind: type[T]) -> T:
        """Send a message and wait for its answer, of this kind; raises ReplayError for a refusal."""
        try:
            self._channel.send(message)
        except LinkClosed as error:
            raise _gone() from error
        return self._receive(kind)

    def _receive(self, kind: type[T]) -> T:
        try:
            message = self._channel.receive()
        except LinkClosed as error:
            raise _gone() from error
        match message:
            case msg.Refused():
                raise ReplayError(message.reason, message.hint)
            case msg.StepFailure():
                raise ReplayError(f"step {message.step} cannot be run again: {message.reason}")
        if not isinstance(message, kind):
            raise ReplayError(f"the trainer answered {type(message).__name__}", "this is a bug in apollod")
        return message


def _gone() -> ReplayError:
    hint = "look at what it wrote above; a lack of memory kills without a word"
    return ReplayError("the trainer process ended", hint)
