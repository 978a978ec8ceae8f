"""Bodies and answers of vLLM's weight-transfer dialect. Sources: vllm/entrypoints/rl/online/api_router.py and
vllm/distributed/weight_transfer (0.32), vllm/entrypoints/serve/dev/rlhf/api_router.py (0.26)."""

import base64
import binascii
from collections.abc import Collection
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from apollod.engine.http.weights import body_checks
from apollod.engine.http.weights.body_checks import decoded
from apollod.engine.http.weights.call_errors import BadCall
from apollod.engine.http.weights.handle_bodies import BACKEND as BY_HANDLE
from apollod.engine.http.weights.handle_bodies import handles_of
from apollod.engine.refresh import Mode
from apollod.wire.control_messages import UpdateJoinRequest, UpdateReceiveRequest

GROUP = "vllm"
"""This dialect has no names of groups."""
PACKED_BYTES = 1 << 30
PACKED_BYTES_MAX = 1 << 40
BACKENDS = {"": "", "nccl": "nccl", "gloo": "gloo", "apollod_gloo": "gloo", BY_HANDLE: BY_HANDLE}
BROADCAST = (
    "broadcast the tensors: backend nccl (or gloo where weights are in host memory), with dense `names`; or, on this "
    "machine, hand them over by backend tensor"
)
INIT_HINT = (
    'send {"init_info": {"master_address", "master_port", "rank_offset": 1, "world_size": 2}}; '
    "tensors are broadcast by the trainer"
)
UPDATE_HINT = 'send {"update_info": {"names": [...], "dtype_names": [...], "shapes": [[...], ...]}}'
ID_FIELD = "nccl_unique_id_b64"
ID_BYTES = 128
REFUSED_FIELDS = {
    ID_FIELD: "tensors of an NCCL group that is joined by its id",
    "ipc_handles": "CUDA IPC handles in vLLM's form",
    "ipc_handles_pickled": "pickled handles (nothing that a caller sends is unpickled)",
    "num_updates_list": "sparse updates (sparse_nccl)",
}
ERROR_TYPES = {
    400: "Bad Request", 413: "Bad Request", 429: "RateLimitError", 500: "InternalServerError",
    501: "NotImplementedError", 503: "ServiceUnavailableError",
}  # fmt: skip


class Joined(NamedTuple):
    """A group to join, and how tensors will be cut unless an update says otherwise."""

    request: UpdateJoinRequest
    packed: bool
    packed_bytes: int

    @property
    def by_handle(self) -> bool:
        """True if tensors are handed over in memory of this machine, and nobody broadcasts."""
        return self.request.backend == BY_HANDLE


class _Init(msgspec.Struct):
    init_info: dict[str, msgspec.Raw]


class _Backend(msgspec.Struct):
    backend: str | None = ""


class _Cut(msgspec.Struct, kw_only=True):
    packed: bool = False
    packed_buffer_size_bytes: int = PACKED_BYTES


class _InitInfo(_Cut):
    master_address: str
    master_port: int
    rank_offset: int
    world_size: int


class _IdInfo(_Cut):
    nccl_unique_id_b64: str
    rank_offset: int
    world_size: int
    master_address: str | None = None
    master_port: int | None = None


class _Update(msgspec.Struct):
    update_info: dict[str, msgspec.Raw] | list[dict[str, msgspec.Raw]]


class _UpdateInfo(msgspec.Struct):
    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]
    packed: bool | None = None
    packed_buffer_size_bytes: int | None = None
    handles: list[dict[str, msgspec.Raw]] | None = None


class _Finish(msgspec.Struct):
    weight_version: str | None = None


class _Version(msgspec.Struct):
    new_version: str
    abort_all_requests: bool | None = False


class _Abort(msgspec.Struct):
    request_ids: list[str] | None = None


class _Check(msgspec.Struct):
    action: Literal["checksum", "compare", "reset"]
    baseline: dict[str, str] | None = None


def joined_of(body: bytes, addresses: Collection[str], on_cuda: bool) -> Joined:
    """The group of POST /init_weight_transfer_engine."""
    fields = decoded(body, _Init, INIT_HINT).init_info
    backend = _backend(fields, on_cuda)
    by_id = on_cuda and backend not in ("gloo", BY_HANDLE) and _is_given(fields, ID_FIELD)
    _check_fields(fields, "send master_address and master_port, and broadcast by gloo", (ID_FIELD,) if by_id else ())
    if backend == BY_HANDLE:
        return Joined(UpdateJoinRequest(GROUP, "", 0, 0, 0, backend), False, PACKED_BYTES)
    if by_id:
        return _joined_by_id(decoded(msgspec.json.encode(fields), _IdInfo, INIT_HINT))
    info = decoded(msgspec.json.encode(fields), _InitInfo, INIT_HINT)
    _check_packed(info.packed_buffer_size_bytes)
    place = body_checks.meeting(info.master_address, info.master_port, info.rank_offset, info.world_size, addresses)
    request = UpdateJoinRequest(GROUP, place.address, place.port, place.rank, place.world_size, backend)
    return Joined(request, info.packed, info.packed_buffer_size_bytes)


def _joined_by_id(info: _IdInfo) -> Joined:
    """A group of NCCL that has no store. Whether the address in the id may be connected to is checked by who does."""
    if info.master_address is not None or info.master_port is not None:
        raise BadCall(f"{ID_FIELD} came with an address", "send it, or master_address and master_port")
    _check_packed(info.packed_buffer_size_bytes)
    body_checks.check_ranks(info.rank_offset, info.world_size)
    try:
        unique_id = base64.b64decode(info.nccl_unique_id_b64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadCall(f"{ID_FIELD} is not standard base64", "encode ncclGetUniqueId's bytes by b64encode") from error
    if len(unique_id) != ID_BYTES:
        raise BadCall(f"{ID_FIELD} has {len(unique_id)} bytes", f"send the {ID_BYTES} of ncclGetUniqueId")
    request = UpdateJoinRequest(GROUP, "", 0, info.rank_offset, info.world_size, "nccl", unique_id=unique_id)
    return Joined(request, info.packed, info.packed_buffer_size_bytes)


def _backend(fields: dict[str, msgspec.Raw], on_cuda: bool) -> str:
    given = decoded(msgspec.json.encode(fields), _Backend, INIT_HINT).backend or ""
    if given not in BACKENDS:
        raise BadCall(f"backend {given[:40]!r} is not received", BROADCAST)
    if given == "nccl" and not on_cuda:
        raise BadCall(
            "backend nccl needs a GPU, and this engine has none", "broadcast by gloo: leave it out, or send gloo"
        )
    return BACKENDS[given]


def receive_of(body: bytes, joined: Joined | None) -> UpdateReceiveRequest:
    """The tensors of POST /update_weights. How they are cut comes with the group (0.32) or here (0.26)."""
    given = decoded(body, _Update, UPDATE_HINT).update_info
    if isinstance(given, list):
        if len(given) != 1:
            raise BadCall(f"update_info is a list of {len(given)}", "send one: this engine is one worker")
        given = given[0]
    _check_fields(given, BROADCAST)
    info = decoded(msgspec.json.encode(given), _UpdateInfo, UPDATE_HINT)
    sent = body_checks.tensors(info.names, info.dtype_names, info.shapes, "dtype_names")
    if joined is not None and joined.by_handle:
        handles = handles_of(info.handles, sent)
        return UpdateReceiveRequest(GROUP, sent.names, sent.dtypes, sent.shapes, handles=handles)
    if info.handles is not None:
        raise BadCall("`handles` came, and the group broadcasts", 'init with {"backend": "tensor"}')
    packed = info.packed if info.packed is not None else joined is not None and joined.packed
    size = info.packed_buffer_size_bytes
    if size is None:
        size = joined.packed_bytes if joined else PACKED_BYTES
    _check_packed(size)
    layout: Literal["packed", "each"] = "packed" if packed else "each"
    return UpdateReceiveRequest(GROUP, sent.names, sent.dtypes, sent.shapes, layout, size if packed else 0)


def _is_given(given: dict[str, msgspec.Raw], field: str) -> bool:
    """True if a field is there; null is as good as none."""
    return bytes(given.get(field, b"null")) != b"null"


def _check_fields(given: dict[str, msgspec.Raw], hint: str, allowed: Collection[str] = ()) -> None:
    """Refuse fields that have a way of tensors which is not received."""
    for field, what in REFUSED_FIELDS.items():
        if field not in allowed and _is_given(given, field):
            raise BadCall(f"{what} are not received ({field})", hint)


def _check_packed(size: int) -> None:
    if not 0 < size <= PACKED_BYTES_MAX:
        raise BadCall(f"packed_buffer_size_bytes is {size}", f"send a number of bytes, such as {PACKED_BYTES}")


def label_of(body: bytes) -> str:
    """The version of POST /finish_weight_update; empty if there is none."""
    return body_checks.label(decoded(body, _Finish, 'send {"weight_version": "1"}, or nothing').weight_version)


def new_version_of(body: bytes) -> tuple[str, bool]:
    """The version of POST /update_weight_version, and whether running requests are to end. vLLM's has no such field, so
    it has to be sent."""
    given = decoded(body, _Version, 'send {"new_version": "1"}')
    return body_checks.label(given.new_version), bool(given.abort_all_requests)


def aborted_of(body: bytes) -> list[str]:
    """The requests of POST /abort_requests; empty: all."""
    return decoded(body, _Abort, 'send {"request_ids": [...]}, or nothing for all').request_ids or []


def checked_of(body: bytes) -> str:
    """The action of POST /weight_checker."""
    given = decoded(body, _Check, 'send {"action": "checksum"}')
    if given.action == "compare" and given.baseline is None:
        raise BadCall("`baseline` is missing", 'send {"action": "compare", "baseline": {NAME: DIGEST}}')
    return given.action


def pause_of(mode: str | None, clear_cache: str | None, waits: str | None) -> tuple[Mode, bool]:
    """Mode and clearing of POST /pause, as they stand in the URL. `waits`: 0.26's wait_for_inflight_requests."""
    given = mode or ("wait" if _flag("wait_for_inflight_requests", waits, False) else "abort")
    if given not in get_args(Mode):
        raise BadCall(f"Invalid pause mode: {given[:40]}", f"send mode={', '.join(get_args(Mode))}")
    found: Mode = given  # type: ignore[assignment]  # one of its values
    return found, _flag("clear_cache", clear_cache, True)


def _flag(name: str, text: str | None, default: bool) -> bool:
    if text is None or text == "":
        return default
    if text.lower() not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise BadCall(f"{name}={text[:40]} is neither true nor false", f"send {name}=true")
    return text.lower() in ("true", "1", "yes", "on")


def is_forced(reset_running_requests: str | None) -> bool:
    """True if POST /reset_prefix_cache may make running requests compute again."""
    return _flag("reset_running_requests", reset_running_requests, False)


def error_of(status: int, text: str) -> dict[str, Any]:
    """An error in vLLM's shape (vllm/entrypoints/serve/utils/error_response.py)."""
    kind = ERROR_TYPES.get(status, "InternalServerError")
    return {"error": {"message": text, "type": kind, "param": None, "code": status}}
