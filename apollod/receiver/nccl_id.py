"""Reads the id of an NCCL group: out of the pickle in which vLLM's senders publish it, without unpickling, and the
address to which it leads.

Source: vllm/distributed/utils.py, `StatelessProcessGroup.broadcast_obj`; ctypes pickles a structure as
`_ctypes._unpickle(CLASS, ({}, BYTES))`. NCCL's bootstrap.h: an id begins with a random number of 8 bytes, then the
socket address of its first rank.
"""

import pickletools
import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from apollod.errors import ReceiveFailed

ID_BYTES = 128
PICKLE_MAX = 4096  # bytes; one is about 300
CLASS = "ncclUniqueId"
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,254}")
_SILENT = ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT")
"""opcodes that add nothing to what a pickle holds"""
_TEXT = ("SHORT_BINUNICODE", "BINUNICODE")
_DATA = ("SHORT_BINBYTES", "BINBYTES")
_BUILDS = ("EMPTY_DICT", "BYTES", "TUPLE2", "TUPLE2", "REDUCE", "STOP")
_UNIQUE = "let the trainer send `nccl_unique_id_b64`, or use gloo"


class Leads(NamedTuple):
    """Where the first rank of a group listens."""

    address: IPv4Address | IPv6Address
    port: int


def id_in_pickle(data: bytes) -> bytes:
    """The id in a pickled `ncclUniqueId`. The pickle is only split into opcodes, and has to be of exactly that form;
    nothing in it is looked up, called or built. Raises ReceiveFailed."""
    if len(data) > PICKLE_MAX:
        raise _refused(f"a pickle of {len(data)} bytes")
    found, seen = b"", list[str]()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in _DATA and isinstance(argument, bytes):
                seen.append("BYTES")
                found = argument
            elif opcode.name in _TEXT:
                seen.append(f"'{argument}")
            elif opcode.name == "GLOBAL":  # of older protocols: both names in one
                seen += [f"'{name}" for name in str(argument).split(" ")] + ["STACK_GLOBAL"]
            elif opcode.name not in _SILENT:
                seen.append(opcode.name)
    except Exception as error:  # of pickletools, which says what is no pickle by whatever its reader meets
        raise _refused("bytes that are no pickle") from error
    if seen[:3] != ["'_ctypes", "'_unpickle", "STACK_GLOBAL"] or tuple(seen[6:]) != _BUILDS:
        raise _refused("a pickle of something else")
    module, name, opcode_name = seen[3:6]
    if name != f"'{CLASS}" or opcode_name != "STACK_GLOBAL" or not _MODULE.fullmatch(module[1:]):
        raise _refused("a pickle of something else")
    if len(found) != ID_BYTES:
        raise _refused(f"an id of {len(found)} bytes")
    return found


def leads_to(unique_id: bytes) -> Leads:
    """The address to which a process connects that joins by this id. Raises ReceiveFailed if it has none."""
    family = int.from_bytes(unique_id[8:10], "little")
    port = int.from_bytes(unique_id[10:12], "big")
    if len(unique_id) == ID_BYTES and family == socket.AF_INET:
        return Leads(ip_address(unique_id[12:16]), port)
    if len(unique_id) == ID_BYTES and family == socket.AF_INET6:
        return Leads(ip_address(unique_id[16:32]), port)
    raise ReceiveFailed(
        "the id of the NCCL group names no address", "send the 128 bytes of ncclGetUniqueId; or use gloo"
    )


def _refused(what: str) -> ReceiveFailed:
    return ReceiveFailed(f"the store of the group holds {what} where vLLM's senders put the id of NCCL", _UNIQUE)
