"""Handles in bodies of vLLM's dialect: every field once, and what is no handle."""

import base64
import json
from typing import Any

import pytest

from apollod.engine.http.weights import vllm_bodies as bodies
from apollod.engine.http.weights.call_errors import BadCall
from apollod.wire.control_messages import UpdateJoinRequest, UpdateReceiveRequest
from apollod.wire.tensor_handles import DeviceBytes, HostBytes

HOST: dict[str, Any] = {"file": "/dev/shm/x", "offset": 8, "bytes": 4}
DEVICE: dict[str, Any] = {
    "device_uuid": "GPU-1", "memory_handle": base64.b64encode(bytes(range(64))).decode(), "offset_bytes": 512,
    "allocation_bytes": 1024, "bytes": 4,
}  # fmt: skip
INFO: dict[str, Any] = {"names": ["a"], "dtype_names": ["bfloat16"], "shapes": [[2]]}


def by_handle() -> bodies.Joined:
    return bodies.joined_of(json.dumps({"init_info": {"backend": "tensor"}}).encode(), (), on_cuda=False)


def received(handles: Any, joined: bodies.Joined | None = None, **more: Any) -> UpdateReceiveRequest:
    body = json.dumps({"update_info": {**INFO, "handles": handles, **more}}).encode()
    return bodies.receive_of(body, joined or by_handle())


def test_there_is_nothing_to_join() -> None:
    assert by_handle().request == UpdateJoinRequest("vllm", "", 0, 0, 0, "tensor") and by_handle().by_handle


def test_both_kinds() -> None:
    found = received([HOST, DEVICE], names=["a", "b"], dtype_names=["bfloat16"] * 2, shapes=[[2], [1, 2]])
    assert found.handles == [HostBytes("/dev/shm/x", 8, 4), DeviceBytes(4, "GPU-1", bytes(range(64)), 512, 1024)]
    assert (found.names, found.layout) == (["a", "b"], "each")


@pytest.mark.parametrize(
    ("handles", "said"),
    [
        (None, "`handles` is missing"), ([], "`handles` has 0 entries, `names` has 1"),
        ([HOST, HOST], "`handles` has 2 entries"), ([1], "cannot be used"), ([{}], "device_uuid"),
        ([{**HOST, "bytes": 6}], "the handle of a has 6 bytes, bfloat16 of shape [2] has 4"),
        ([{**HOST, "offset": -1}], "a negative or an impossible number"),
        ([{**HOST, "offset": 1 << 63}], "impossible number"), ([{**HOST, "offset": 1.5}], "cannot be used"),
        ([{**HOST, "offset": True}], "cannot be used"), ([{**HOST, "file": ""}], "names no file"),
        ([{**HOST, "file": "a\0"}], "names no file"), ([{**HOST, "file": "x" * 5000}], "names no file"),
        ([{**HOST, "more": 1}], "more"), ([{**HOST, **DEVICE}], "cannot be used"),
        ([{**DEVICE, "memory_handle": "QUJD"}], "the memory_handle of a has 3 bytes"),
        ([{**DEVICE, "memory_handle": "!"}], "cannot be used"),
        ([{**DEVICE, "allocation_bytes": -1}], "impossible number"),
        ("pickled", "cannot be used"),
    ],
)  # fmt: skip
def test_what_is_no_handle_is_refused(handles: Any, said: str) -> None:
    with pytest.raises(BadCall) as caught:
        received(handles)
    assert said in str(caught.value) and caught.value.hint


@pytest.mark.parametrize("field", [*HOST, *DEVICE])
def test_every_field_is_needed(field: str) -> None:
    given = HOST if field in HOST and field != "bytes" else DEVICE
    with pytest.raises(BadCall):
        received([{name: value for name, value in given.items() if name != field}])


def test_a_group_that_broadcasts_takes_no_handles() -> None:
    init = {"master_address": "127.0.0.1", "master_port": 5000, "rank_offset": 1, "world_size": 2}
    group = bodies.joined_of(json.dumps({"init_info": init}).encode(), (), on_cuda=False)
    with pytest.raises(BadCall, match="the group broadcasts"):
        received([HOST], group)
    assert received(None, group).handles == []
