"""Entry of the receiver process: `python -m apollod.receiver`. Reads requests on its standard input and answers on its
standard output (wire/receiver_messages.py); ends when the input ends.

Environment: APOLLOD_PARENT_PID (die with it).
"""

import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from apollod.adapters.system.own_process import die_with_supervisor
from apollod.errors import ReceiveFailed
from apollod.receiver.payload import broadcasts, checked
from apollod.wire.receiver_messages import (
    TO_RECEIVER,
    FromReceiver,
    Join,
    Joined,
    Leave,
    Receive,
    Received,
    ReceiveRefused,
    Take,
)

if TYPE_CHECKING:
    from apollod.receiver.receiving import Group


class Receiver:
    """At most one group, and the answers to requests."""

    def __init__(self) -> None:
        self._group: Group | None = None

    def answer(self, line: bytes) -> FromReceiver | None:
        """The answer to a request; None where it has none. One that is refused leaves the group: what the sender has
        broadcast meanwhile would be taken for the next tensors."""
        try:
            request = TO_RECEIVER.decode(line)
            if isinstance(request, Leave):
                self._leave()
                return None
            if isinstance(request, Take):
                return self._take(request)
            return self._join(request) if isinstance(request, Join) else self._receive(request)
        except ReceiveFailed as error:
            self._leave()
            return ReceiveRefused(str(error), error.hint)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._leave()
            return ReceiveRefused(f"not a request of this protocol: {error}", "use one version of apollod everywhere")

    def _join(self, wanted: Join) -> Joined:
        from apollod.receiver import gloo_group, nccl_group  # here: torch takes seconds, and a refusal does not need it

        self._leave()
        began = time.monotonic()
        self._group = nccl_group.join(wanted) if wanted.backend == "nccl" else gloo_group.join(wanted)
        return Joined(time.monotonic() - began)

    def _take(self, wanted: Take) -> Received:
        from apollod.receiver.taking import take  # here: a refusal does not need numpy

        return take(checked(wanted.tensors), wanted.handles, wanted.directories, Path(wanted.file))

    def _receive(self, wanted: Receive) -> Received:
        parts = broadcasts(checked(wanted.tensors), wanted.layout, wanted.packed_bytes)
        if self._group is None:
            raise ReceiveFailed("there is no group to receive from", "join one first; a refusal ends the group")
        from apollod.receiver.receiving import receive

        return receive(self._group, parts, Path(wanted.file), as_bytes=wanted.layout != "each")

    def _leave(self) -> None:
        if self._group is not None:
            group, self._group = self._group, None
            group.leave()


def take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Move standard input and output to other descriptors and return them: gloo prints to standard output, which goes
    to the log from here on."""
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    return open(requests, "rb"), open(answers, "wb", buffering=0)


def main() -> int:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal it goes to the whole group; the supervisor decides
    die_with_supervisor()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # gloo's abort would write the weights to a core file
    with suppress(OSError):  # what is announced may need more memory than there is: better this process than the engine
        Path("/proc/self/oom_score_adj").write_text("1000")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # what it does is limited by network and disk, and the engine needs the cores
    requests, answers = take_streams()
    receiver = Receiver()
    for line in requests:
        if (answer := receiver.answer(line)) is not None:
            answers.write(msgspec.json.encode(answer) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
