"""Where a process listens by TCP."""

import os
import socket
from pathlib import Path

LISTEN = "0A"
"""a state in /proc/net/tcp (net/tcp_states.h)"""


def addresses_of(pid: int) -> set[str]:
    """Addresses at which a process listens."""
    files = [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink()]
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        rows = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
        for row in rows:
            if row[3] == LISTEN and f"socket:[{row[9]}]" in files:
                words = bytes.fromhex(row[1].partition(":")[0])  # of four bytes, each in the order of this machine
                turned = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                found.add(socket.inet_ntop(family, turned))
    return found
