"""Checks of what trainers send, common to both dialects. Everything raises BadCall."""

import math
import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeVar

import msgspec

from apollod.engine.http.weights.call_errors import BadCall

NAMES_MAX = 65536
NAME_CHARACTERS_MAX = 512
LABEL_CHARACTERS_MAX = 256
RANK_MAX = 8
ELEMENTS_MAX = 1 << 48
PROCESSES_MAX = 65536
PORTS = range(1024, 65536)
DTYPE_CHARACTERS_MAX = 32

T = TypeVar("T")


class Tensors(msgspec.Struct, frozen=True):
    """Names, dtypes and shapes of announced tensors, one of each a tensor."""

    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]


class Meeting(msgspec.Struct, frozen=True):
    """Where a group of processes meets, and our place in it."""

    address: str
    port: int
    rank: int
    world_size: int


def decoded(body: bytes, type_: type[T], hint: str) -> T:
    """The body as this type. No body is as good as an empty object; fields that the type does not have are ignored."""
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadCall(f"the body cannot be used: {error}", hint) from error


def tensors(names: list[str], dtypes: list[str], shapes: list[list[int]], field: str) -> Tensors:
    """The tensors, with dtypes as `bfloat16`. `field`: the body's name for dtypes."""
    if not names:
        raise BadCall("`names` is empty", "name the tensors that are sent")
    if len(names) > NAMES_MAX:
        raise BadCall(f"{len(names)} names are more than {NAMES_MAX}", "send them in several updates")
    for what, given in ((field, len(dtypes)), ("shapes", len(shapes))):
        if given != len(names):
            raise BadCall(f"`{what}` has {given} entries, `names` has {len(names)}", "send one of each a tensor")
    for name, shape in zip(names, shapes, strict=True):
        if not 0 < len(name) <= NAME_CHARACTERS_MAX:
            raise BadCall(
                f"a name of {len(name)} characters ({name[:40]!r})", f"send 1 to {NAME_CHARACTERS_MAX} characters"
            )
        if len(shape) > RANK_MAX:
            raise BadCall(f"the shape of {name} has {len(shape)} dimensions", f"send at most {RANK_MAX}")
        if any(not 0 <= each <= ELEMENTS_MAX for each in shape) or math.prod(shape) > ELEMENTS_MAX:
            raise BadCall(f"the shape of {name} is {shape}", "send the tensor's own shape")
    plain = [each.removeprefix("torch.") for each in dtypes]
    for name, dtype in zip(names, plain, strict=True):
        if not (dtype.isascii() and dtype.replace("_", "").isalnum() and len(dtype) <= DTYPE_CHARACTERS_MAX):
            raise BadCall(f"{name} has dtype {dtype[:DTYPE_CHARACTERS_MAX]!r}", "send one such as bfloat16")
    return Tensors(names, plain, shapes)


def meeting(
    address: str, port: int | str, rank: int, world_size: int, addresses: Collection[str], field: str = "master_"
) -> Meeting:
    """The place of a group. Joining makes this process connect to it, so `address` has to be one of this machine's own,
    or one of `addresses`."""
    number = int(port) if isinstance(port, int) or (port.isascii() and port.isdecimal() and len(port) < 6) else -1
    if number not in PORTS:
        raise BadCall(f"{field}port is {port!r}", f"send a port from {PORTS.start} to {PORTS.stop - 1}")
    check_ranks(rank, world_size)
    if not is_allowed(address, addresses):
        raise BadCall(
            f"{field}address {address[:NAME_CHARACTERS_MAX]!r} is not on this machine",
            "add it to [control] addresses, or send an address of this machine",
        )
    return Meeting(address, number, rank, world_size)


def check_ranks(rank: int, world_size: int) -> None:
    """Refuse a place that no receiving process has in a group."""
    if not 2 <= world_size <= PROCESSES_MAX:
        raise BadCall(f"world_size is {world_size}", "send 2: the trainer, which is rank 0, and this engine")
    if not 1 <= rank < world_size:
        raise BadCall(f"rank_offset is {rank}", "send 1: the trainer is rank 0")


def is_allowed(address: str, addresses: Collection[str]) -> bool:
    """True for `localhost`, loopback and other addresses of this machine, and for what is listed (in lower case)."""
    if address.lower() in addresses or address.lower() in ("localhost", socket.gethostname().lower()):
        return True
    try:
        found = ip_address(address)
    except ValueError:
        return False
    plain = (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
    return plain.is_loopback or _is_own(plain)


def label(text: str | int | None) -> str:
    """A trainer's name of a version; empty if there is none."""
    given = "" if text is None else str(text)
    if len(given) > LABEL_CHARACTERS_MAX:
        raise BadCall(f"a version of {len(given)} characters", f"send at most {LABEL_CHARACTERS_MAX}")
    return given


def _is_own(address: IPv4Address | IPv6Address) -> bool:
    """True if this machine has the address: it would then reach it from that same address. Nothing is sent."""
    if address.is_unspecified or address.is_multicast:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), PORTS.start))
            return ip_address(probe.getsockname()[0]) == address
    except (OSError, ValueError):
        return False
