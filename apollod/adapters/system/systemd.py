"""sd_notify: tells the service manager that we are ready, alive or stopping. Does nothing elsewhere."""

import os
import socket


def notify(state: str) -> None:
    """Send e.g. "READY=1" or "WATCHDOG=1" to $NOTIFY_SOCKET (sd_notify(3)); does nothing if it is not set."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.sendto(state.encode(), target)
        except OSError:
            return  # the manager has gone
