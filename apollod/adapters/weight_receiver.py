"""Has a process of its own receive weights from a foreign trainer (apollod/receiver, wire/receiver_messages.py).

The process is ended by whatever goes wrong in it, and started again by the next request. What it was writing when it
was ended is removed here.
"""

import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from apollod.adapters.system.processes import ChildProcess, describe_exit
from apollod.errors import ReceiveFailed
from apollod.explain import reason
from apollod.wire.receiver_messages import (
    FROM_RECEIVER,
    Announced,
    FromReceiver,
    Join,
    Joined,
    Layout,
    Leave,
    Receive,
    Received,
    ReceiveRefused,
    Take,
    part_of,
)
from apollod.wire.tensor_handles import Handle

MODULE = "apollod.receiver"
GRACE_S = 60.0  # beyond its own limit: to import torch on a busy machine, to flush a large file to disk
CLOSE_S = 3.0  # for the process to end by itself
END_S = 3.0  # from the end of its answers to its own
SHOWN = 200  # characters of an answer

Answer = TypeVar("Answer", Joined, Received)


class WeightReceiver:
    """A process that receives, at most one at a time. Requests are sent one after the other; call from the main thread,
    since the process dies with the thread that started it."""

    def __init__(self, log: Path, grace_s: float = GRACE_S) -> None:
        """`log`: file for what the process prints; `grace_s`: seconds beyond the limit of a request after which a
        process without an answer is killed."""
        self._log, self._grace_s = log, grace_s
        self._child: ChildProcess | None = None
        self._timeout_s = 0.0
        self._one_at_a_time = anyio.Lock()

    async def join(self, wanted: Join) -> Joined:
        """Join a group, in place of the one before. Raises ReceiveFailed."""
        self._timeout_s = wanted.timeout_s
        return await self._ask(wanted, Joined)

    async def receive(
        self, file: Path, tensors: Sequence[Announced], layout: Layout, packed_bytes: int = 0
    ) -> Received:
        """Receive tensors into the safetensors file `file`, which is complete then, and else absent. Raises
        ReceiveFailed; the group has to be joined again then."""
        return await self._ask(Receive(str(file), tuple(tensors), layout, packed_bytes), Received)

    async def take(
        self, file: Path, tensors: Sequence[Announced], handles: Sequence[Handle], directories: Sequence[str],
        timeout_s: float,
    ) -> Received:  # fmt: skip
        """Copy tensors by their handles into the safetensors file `file`, which is complete then, else absent. Files
        are read in shared memory and below `directories`. Needs no group. Raises ReceiveFailed."""
        self._timeout_s = timeout_s
        return await self._ask(Take(str(file), tuple(tensors), tuple(handles), tuple(directories)), Received)

    async def leave(self) -> None:
        """Leave the group; the process stays for the next one."""
        async with self._one_at_a_time:
            if self._child is not None:
                await self._child.say(msgspec.json.encode(Leave()))

    async def close(self) -> None:
        """End the process, after the requests that came before; those that are not to be waited for have to be
        cancelled first."""
        with anyio.CancelScope(shield=True):
            async with self._one_at_a_time:
                if (child := self._child) is not None:
                    await child.hang_up()
                    with anyio.move_on_after(CLOSE_S):
                        await child.wait()
                    await self._end(child)

    async def _ask(self, request: Join | Receive | Take, kind: type[Answer]) -> Answer:
        async with self._one_at_a_time:
            child = self._child or await self._start()
            try:
                answer = await self._answer(child, request)
                if not isinstance(answer, kind | ReceiveRefused):
                    raise _nonsense(msgspec.json.encode(answer))
            except BaseException:  # cancellation too: a late answer would be taken for that to the next request
                await self._end(child)
                if not isinstance(request, Join):
                    await _remove(part_of(request.file, child.pid))
                raise
        if isinstance(answer, ReceiveRefused):
            raise ReceiveFailed(answer.reason, answer.hint)
        return answer

    async def _start(self) -> ChildProcess:
        try:
            with anyio.CancelScope(shield=True):  # a process that was started has to be known
                self._child = child = await ChildProcess.spawn(MODULE, (), {}, self._log, talks=True)
        except OSError as error:
            raise ReceiveFailed(
                f"the process that receives weights cannot be started: {reason(error)}",
                f"look at {self._log.parent} and the room on its disk",
            ) from error
        return child

    async def _answer(self, child: ChildProcess, request: Join | Receive | Take) -> FromReceiver:
        limit_s = self._timeout_s + self._grace_s
        try:
            with anyio.fail_after(limit_s):
                await child.say(msgspec.json.encode(request))
                line = await child.hear()
        except TimeoutError as error:
            raise ReceiveFailed(
                f"the process that receives weights did not answer within {limit_s:g} s and was killed",
                "look whether the disk of the received weights answers, or allow more time",
            ) from error
        if line is None:
            raise await _death(child, request)
        try:
            return FROM_RECEIVER.decode(line)
        except msgspec.MsgspecError as error:
            raise _nonsense(line) from error

    async def _end(self, child: ChildProcess) -> None:
        """Kill the process if it has not ended."""
        with anyio.CancelScope(shield=True):
            self._child = None
            await child.stop(0.0)
            await child.wait()
            await child.hang_up()


async def _death(child: ChildProcess, request: Join | Receive | Take) -> ReceiveFailed:
    """The error for a process whose answers have ended in the midst of a request."""
    code = None
    with anyio.move_on_after(END_S):
        code = await child.wait()
    if code == -signal.SIGABRT:
        return ReceiveFailed(
            "gloo aborted the process that receives weights: the sender sent more bytes than announced, or broke off",
            "announce each tensor with the dtype and shape that it is broadcast with, and send again",
        )
    if code == -signal.SIGALRM and isinstance(request, Receive):
        return ReceiveFailed(
            "the sender did not broadcast all tensors within the time limit",
            "look whether it still runs; broadcast from rank 0 what was announced, or allow more time",
        )
    if code == -signal.SIGALRM and isinstance(request, Join) and request.backend == "nccl":
        return ReceiveFailed(
            f"the group {request.group} did not become complete within {request.timeout_s:g} s",
            "let the sender join it as rank 0 while it asks, and look at address and port",
        )
    if code == -signal.SIGALRM and isinstance(request, Join):
        return ReceiveFailed(
            f"no store of a group answers at {request.address}:{request.port} (not within {request.timeout_s:g} s)",
            "let the sender make its TCPStore there before it asks, and look at address and port",
        )
    how = "closed its answers and was killed" if code is None else f"ended ({describe_exit(code)})"
    last = child.last_error() if code is not None and code > 0 else ""  # else it may be of an earlier process
    return ReceiveFailed(
        f"the process that receives weights {how}{f': {last}' if last else ''}", "look at its log, and send again"
    )


def _nonsense(line: bytes) -> ReceiveFailed:
    text = line[:SHOWN].decode(errors="replace")
    return ReceiveFailed(
        f"the process that receives weights answered {text!r}", "use one version of apollod everywhere"
    )


async def _remove(file: str) -> None:
    """Remove a file, if there is one. In a thread: freeing a large one takes a while."""
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(partial(Path(file).unlink, missing_ok=True))
