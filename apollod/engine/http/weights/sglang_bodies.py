"""Bodies and answers of SGLang's dialect. Sources: srt/entrypoints/http_server.py and srt/managers/io_struct.py,
0.5.23."""

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from apollod.engine.http.weights import body_checks
from apollod.engine.http.weights.body_checks import decoded
from apollod.engine.http.weights.call_errors import BadCall
from apollod.engine.refresh import Mode
from apollod.wire.control_messages import UpdateDirectoryRequest, UpdateJoinRequest, UpdateReceiveRequest

GROUP = "weight_update_group"
GROUP_CHARACTERS_MAX = 256
PATH_CHARACTERS_MAX = 4096
MODES: dict[str, tuple[Mode, bool]] = {"abort": ("abort", True), "retract": ("keep", True), "in_place": ("keep", False)}
"""mode of a pause -> vLLM's, and whether KV is dropped"""
BACKENDS = ("", "nccl", "gloo")
BUCKET = "flattened_bucket"
INIT_HINT = 'send {"master_address", "master_port", "rank_offset": 1, "world_size": 2, "group_name"}'
UPDATE_HINT = 'send {"names": [...], "dtypes": [...], "shapes": [[...], ...], "group_name"}'
OTHER_WAYS = (
    "use /init_weights_update_group and /update_weights_from_distributed, or /update_weights_from_disk with a "
    "directory of safetensors files"
)
ONE_COPY = (
    "trainer and engine share one copy of the weights, which stays in memory; only `kv_cache` could be released, and "
    "this vLLM does not release it without the weights"
)
FLUSH_S_MAX = 60.0


class Received(NamedTuple):
    """Tensors to receive for an update, its version's name, and whether running requests are to end first."""

    request: UpdateReceiveRequest | UpdateDirectoryRequest
    label: str
    aborts: bool


class _Init(msgspec.Struct):
    master_address: str
    master_port: int | str
    rank_offset: int
    world_size: int
    group_name: str | None = GROUP
    backend: str | None = ""


class _Group(msgspec.Struct):
    group_name: str | None = GROUP


class _Distributed(msgspec.Struct):
    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    group_name: str | None = GROUP
    weight_version: str | int | None = None
    load_format: str | None = None
    abort_all_requests: bool | None = False


class _Disk(msgspec.Struct):
    model_path: str
    load_format: str | None = None
    weight_version: str | int | None = None
    abort_all_requests: bool | None = False


class _Pause(msgspec.Struct):
    mode: str | None = "abort"


class _Abort(msgspec.Struct):
    rid: str | list[str] | None = ""
    abort_all: bool | None = False


class _Check(msgspec.Struct):
    action: str


class _Memory(msgspec.Struct):
    tags: list[str] | None = None


def join_of(body: bytes, addresses: Collection[str], on_cuda: bool) -> UpdateJoinRequest:
    """The group of POST /init_weights_update_group. Without a backend it is that of the memory in which weights are."""
    given = decoded(body, _Init, INIT_HINT)
    backend = given.backend or ""
    if backend not in BACKENDS:
        raise BadCall(
            f"backend {backend[:40]!r} is not received", "send nccl, or gloo where weights are in host memory"
        )
    if backend == "nccl" and not on_cuda:
        raise BadCall(
            "backend nccl needs a GPU, and this engine has none", "broadcast by gloo: leave it out, or send gloo"
        )
    at = body_checks.meeting(given.master_address, given.master_port, given.rank_offset, given.world_size, addresses)
    return UpdateJoinRequest(
        _group(given.group_name), at.address, at.port, at.rank, at.world_size, backend, nested=True
    )


def group_of(body: bytes) -> str:
    """The group of POST /destroy_weights_update_group."""
    return _group(decoded(body, _Group, 'send {"group_name"}').group_name)


def distributed_of(body: bytes) -> Received:
    """The tensors of POST /update_weights_from_distributed."""
    given = decoded(body, _Distributed, UPDATE_HINT)
    if given.load_format not in (None, "", "auto", BUCKET):
        raise BadCall(f"load_format {given.load_format[:40]!r} is not received", f"leave it out, or send {BUCKET}")
    sent = body_checks.tensors(given.names, given.dtypes, given.shapes, "dtypes")
    request = UpdateReceiveRequest(
        _group(given.group_name),
        sent.names,
        sent.dtypes,
        sent.shapes,
        "bucket" if given.load_format == BUCKET else "each",
    )
    return Received(request, body_checks.label(given.weight_version), bool(given.abort_all_requests))


def directory_of(body: bytes) -> Received:
    """The directory of POST /update_weights_from_disk."""
    given = decoded(body, _Disk, 'send {"model_path": DIRECTORY}')
    if not 0 < len(given.model_path) <= PATH_CHARACTERS_MAX or "\0" in given.model_path:
        raise BadCall("model_path is not the path of a directory", "send one below [control] directories")
    load_format = given.load_format or "auto"
    if len(load_format) > body_checks.DTYPE_CHARACTERS_MAX:
        raise BadCall(f"load_format {load_format[:40]!r} is not known", "send auto or safetensors")
    request = UpdateDirectoryRequest(given.model_path, load_format)
    return Received(request, body_checks.label(given.weight_version), bool(given.abort_all_requests))


def pause_of(body: bytes) -> tuple[Mode, bool]:
    """Mode and clearing of POST /pause_generation."""
    given = decoded(body, _Pause, 'send {"mode": "abort"}, or nothing').mode or "abort"
    if given not in MODES:
        raise BadCall(f"mode {given[:40]!r} is not known", f"send {', '.join(MODES)}")
    return MODES[given]


def aborted_of(body: bytes) -> list[str] | None:
    """The requests of POST /abort_request; None: all."""
    given = decoded(body, _Abort, 'send {"rid": ID} or {"abort_all": true}')
    if given.abort_all:
        return None
    rid = given.rid or []
    return [rid] if isinstance(rid, str) else rid


def checked_of(body: bytes) -> str:
    """The action of POST /weights_checker."""
    return decoded(body, _Check, 'send {"action": "checksum"}').action


def check_memory(body: bytes) -> None:
    """Refuse POST /release_memory_occupation and /resume_memory_occupation, whatever the tags: a trainer sizes its
    buffers by what was released."""
    tags = decoded(body, _Memory, 'send {"tags": ["kv_cache"]}').tags or ["weights", "kv_cache", "cuda_graph"]
    raise BadCall(f"memory is not released or taken back ({', '.join(tags)[:100]}): {ONE_COPY}", "leave this call out")


def flush_wait_of(timeout: str | None) -> float:
    """Seconds that /flush_cache may wait for running requests, as it stands in the URL."""
    try:
        seconds = float(timeout or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= FLUSH_S_MAX:
        raise BadCall(f"timeout={(timeout or '')[:40]} is no time", f"send seconds from 0 to {FLUSH_S_MAX:g}")
    return seconds


def _group(name: str | None) -> str:
    given = name or GROUP
    if len(given) > GROUP_CHARACTERS_MAX:
        raise BadCall(f"group_name has {len(given)} characters", f"send at most {GROUP_CHARACTERS_MAX}")
    return given


def told(success: bool, message: str, **more: Any) -> dict[str, Any]:
    """SGLang's standard answer."""
    return {"success": success, "message": message, **more}


def load_of(active: int, held: bool) -> list[dict[str, int]]:
    """The answer of GET /get_load: held requests wait."""
    running, waiting = (0, active) if held else (active, 0)
    return [{
        "dp_rank": 0, "num_reqs": active, "num_running_reqs": running, "num_waiting_reqs": waiting, "num_tokens": 0,
    }]  # fmt: skip
