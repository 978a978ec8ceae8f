"""NCCL's own functions, by ctypes: a group of processes that is joined by an id, with one broadcast at a time.

No torch: memory is an address, a stream its handle. The library is the one that torch brings, so torch has to be
imported before; it is opened by the first call. Groups are made without blocking, so that each wait has a limit.
Source: nccl.h of NCCL 2.32, and vLLM's distributed/device_communicators/pynccl.py, whose peers these are. Where there
is no GPU the library says its version and makes ids, and that is all.
"""

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from apollod.errors import NcclFailed

LIBRARY = "libnccl.so.2"
ID_BYTES = 128  # NCCL_UNIQUE_ID_BYTES
INTERFACE = "NCCL_SOCKET_IFNAME"
"""environment variable of NCCL: names of the network interfaces it may use; `=` before them: these and no others"""
TORCH_WAITS: Mapping[str, str] = {
    "TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0",
}  # fmt: skip
"""environment of a process with a group of torch's: an error is raised by `wait`; else a thread of torch's would end
the process"""
TYPES: Mapping[str, int] = {"uint8": 1, "float16": 6, "float32": 7, "bfloat16": 9}
"""torch's name of a dtype -> ncclDataType_t"""
_SUM = 0  # ncclRedOp_t
_IN_PROGRESS = 7  # ncclInProgress
_HINT = "look whether all ranks still run, each on a GPU of its own; NCCL_DEBUG=INFO says more in the log"
POLL_S = 0.0005


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * ID_BYTES)]


class _Config(ctypes.Structure):
    """The beginning of ncclConfig_t, as of NCCL 2.14: later versions take what follows from their defaults."""

    _fields_ = [
        ("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", ctypes.c_int),
    ]  # fmt: skip


_CONFIG = (ctypes.sizeof(_Config), 0xCAFEBEEF, 21400, 0)
_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_ARGUMENTS: Mapping[str, list[Any]] = {
    "ncclGetVersion": [ctypes.POINTER(_INT)],
    "ncclGetUniqueId": [ctypes.POINTER(_UniqueId)],
    "ncclCommInitRankConfig": [ctypes.POINTER(_POINTER), _INT, _UniqueId, _INT, ctypes.POINTER(_Config)],
    "ncclAllReduce": [_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
    "ncclBroadcast": [_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
    "ncclCommGetAsyncError": [_POINTER, ctypes.POINTER(_INT)],
    "ncclCommAbort": [_POINTER],
}


def version() -> int:
    """Version of the library, such as 22907 for 2.29.7. Raises NcclFailed if there is none."""
    found = _INT(0)
    _call("ncclGetVersion", ctypes.byref(found))
    return found.value


def new_id() -> bytes:
    """An id for a new group, whose first rank this process has to be: NCCL listens for the others from here on. Raises
    NcclFailed."""
    made = _UniqueId()
    _call("ncclGetUniqueId", ctypes.byref(made))
    return bytes(made)


def use_interface(name: str) -> None:
    """Have NCCL listen at the network interface of this name alone, unless the user has chosen. It reads this once, so
    it has to be called before all else."""
    if name and not os.environ.get(INTERFACE):
        os.environ[INTERFACE] = f"={name}"


class Communicator:
    """This process in a group, on the current CUDA device. `deadline`: of `time.monotonic`. A call that is not done by
    then, or that is stopped, raises NcclFailed, and the group is good for nothing but `abort`."""

    def __init__(
        self, unique_id: bytes, rank: int, world_size: int, deadline: float,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Returns when all have joined. Raises NcclFailed. `stopped`: becomes true when what waits is to end."""
        if len(unique_id) != ID_BYTES:
            raise NcclFailed(f"an id of {len(unique_id)} bytes names no group", f"send the {ID_BYTES} bytes of NCCL's")
        self._comm, self._stopped, self._sends = _POINTER(), stopped, rank == 0
        named, config = _UniqueId.from_buffer_copy(unique_id), _Config(*_CONFIG)
        try:
            _call("ncclCommInitRankConfig", ctypes.byref(self._comm), world_size, named, rank, ctypes.byref(config))
            self._until(deadline)
        except NcclFailed:
            self.abort()
            raise

    def broadcast(self, address: int, count: int, dtype: str, stream: int, deadline: float) -> None:
        """Put into a stream that `count` elements are sent from (rank 0), or received at, a device address. All ranks
        have to name the same."""
        sent = _POINTER(address if self._sends else None)
        _call("ncclBroadcast", sent, _POINTER(address), count, TYPES[dtype], 0, self._comm, _POINTER(stream))
        self._until(deadline)

    def sum_one(self, address: int, stream: int, deadline: float) -> None:
        """Put into a stream that one float32 is summed over all ranks: the first thing that vLLM's communicator does,
        and waits for."""
        at = _POINTER(address)
        _call("ncclAllReduce", at, at, 1, TYPES["float32"], _SUM, self._comm, _POINTER(stream))
        self._until(deadline)

    def finish(self, done: Callable[[], bool], deadline: float) -> None:
        """Wait until `done` says that the stream has carried out what was put into it."""
        self._until(deadline, done)

    def abort(self) -> None:
        """Leave the group without waiting for the others; what is still in a stream ends undone."""
        if self._comm:
            comm, self._comm = self._comm, _POINTER()
            _library().ncclCommAbort(comm)

    def _until(self, deadline: float, done: Callable[[], bool] = lambda: True) -> None:
        code = _INT(0)
        while True:
            _call("ncclCommGetAsyncError", self._comm, ctypes.byref(code))
            if code.value not in (0, _IN_PROGRESS):
                raise _error("a call of the group", code.value)
            if code.value == 0 and done():
                return
            if self._stopped():
                raise NcclFailed("the group was left", "look at the error before this one")
            if time.monotonic() >= deadline:
                raise NcclFailed("the others did not do their part within the time limit", _HINT)
            time.sleep(POLL_S)


@cache
def _library() -> ctypes.CDLL:
    try:
        found = ctypes.CDLL(os.environ.get("VLLM_NCCL_SO_PATH") or LIBRARY)
    except OSError as error:
        raise NcclFailed(
            f"the library of NCCL cannot be loaded ({error})",
            "install a torch for CUDA, or name the library in VLLM_NCCL_SO_PATH; or use gloo",
        ) from error
    for name, arguments in _ARGUMENTS.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, _INT
    found.ncclGetErrorString.argtypes, found.ncclGetErrorString.restype = [_INT], ctypes.c_char_p
    return found


def _call(function: str, *arguments: object) -> None:
    code = getattr(_library(), function)(*arguments)
    if code not in (0, _IN_PROGRESS):
        raise _error(function, code)


def _error(what: str, code: int) -> NcclFailed:
    said = (_library().ncclGetErrorString(code) or b"unknown error").decode(errors="replace")
    return NcclFailed(f"{what} failed: {said} ({code})", _HINT)
