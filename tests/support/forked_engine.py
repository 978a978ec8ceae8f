"""`python -m apollod.engine` in a process that was forked with vLLM imported, and its engine core in another one: an
engine takes seconds of a processor then, of which its imports are twenty.

Both are the real ones. What is left out is `exec`: vLLM starts its core as a new Python (multiprocessing's `spawn`),
which imports vLLM again. Here the process that becomes the core is forked first of all, while it has one thread and
has begun nothing; it waits, and is given command line, environment and descriptors when multiprocessing would have
started a Python with them. The daemon of the fixture `running` and the engines of `test_engine_share.py` that are
killed or stopped start as a user's do.
"""

import fcntl
import json
import os
import socket
import sys
from collections.abc import Sequence

from support.fork_server import become

MODULE = "apollod.engine"
UNKNOWN = ("numba", "llvmlite")
"""What trainers import and engines do not. vLLM looks through all that is imported (triton_utils/dispatcher.py) and
fails at an object of llvmlite."""
HIGH = 200
"""descriptors above are free"""


def command(*arguments: str, before: str = "") -> list[str]:
    """Arguments of a Python that does the same as `python -m apollod.engine ARGUMENTS...` when it is forked, after the
    statements `before`."""
    return ["-c", f"{before}\nfrom support.forked_engine import run\nrun({', '.join(map(repr, arguments))})"]


def run(*arguments: str) -> None:
    """Be `python -m apollod.engine ARGUMENTS...`; never returns."""
    from multiprocessing import util

    for name in [name for name in sys.modules if name.partition(".")[0] in UNKNOWN]:
        del sys.modules[name]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    core = os.fork()
    if core == 0:
        ours.close()
        _become_core(theirs)
    theirs.close()
    started = util.spawnv_passfds
    waiting = [core]

    def spawn(path: bytes, args: Sequence[str], passfds: Sequence[int]) -> int:
        if "--multiprocessing-fork" not in args or not waiting:
            return started(path, args, passfds)  # type: ignore[no-any-return]
        request = {"arguments": list(args[1:]), "environment": dict(os.environ), "descriptors": list(passfds)}
        message = json.dumps(request).encode()
        socket.send_fds(ours, [len(message).to_bytes(4, "big")], list(passfds))
        ours.sendall(message)
        ours.close()
        return waiting.pop()

    util.spawnv_passfds = spawn
    become(["-m", MODULE, *arguments], dict(os.environ), [])


def _become_core(connection: socket.socket) -> None:
    """Wait until the engine starts its core, and be that; end with the engine if it starts none."""
    head, received, _, _ = socket.recv_fds(connection, 4, 16)
    if not head:
        os._exit(0)
    length, text = int.from_bytes(head, "big"), b""
    while len(text) < length:
        text += connection.recv(length - len(text))
    connection.close()
    request = json.loads(text)
    high = [fcntl.fcntl(one, fcntl.F_DUPFD, HIGH) for one in received]
    for one in received:
        os.close(one)
    for one, number in zip(high, request["descriptors"], strict=True):
        os.dup2(one, number)
        os.close(one)
    arguments = request["arguments"]  # of Python: its own options come first
    become(arguments[arguments.index("-c") :], request["environment"], [])
    sys.exit(1)  # not reached
