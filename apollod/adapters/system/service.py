"""The daemon as a service: one per state directory, by an flock that ends with its holder and names it; and sd_notify,
which tells the service manager that it is ready, alive or stopping, and does nothing elsewhere."""

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from apollod.errors import AlreadyRunning, ApolloError
from apollod.explain import reason


class Lock:
    """Held from construction to `release`; raises AlreadyRunning with the holder's pid, ApolloError where it cannot be
    made."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ApolloError(
                f"{path} cannot be opened for writing: {reason(error)}", "check [state] dir, its owner, mode and disk"
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise AlreadyRunning(str(path.parent), int(holder) if holder.isdigit() else 0) from None
        with suppress(OSError):  # on a full disk it is still held, but its file lacks the holder's pid
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock for the next daemon."""
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
        os.close(self._fd)


READ_S = 1.0  # for the manager to read earlier messages; signs of life follow each other and need not arrive


def notify(state: str) -> None:
    """Send e.g. "READY=1" or "WATCHDOG=1" to $NOTIFY_SOCKET (sd_notify(3)); does nothing if it is not set. A manager
    that reads nothing holds nobody up: its queue takes about ten messages, and a sender would wait for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(0.0 if state == "WATCHDOG=1" else READ_S)
        try:
            sock.sendto(state.encode(), target)
        except OSError:
            return  # the manager has gone, or does not read
