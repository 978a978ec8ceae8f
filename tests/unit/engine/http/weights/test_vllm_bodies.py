"""Bodies of vLLM's dialect: every field once, and what is no body of it."""

import base64
import json
from typing import Any

import pytest

from apollod.engine.http.weights import vllm_bodies as bodies
from apollod.engine.http.weights.call_errors import BadCall
from apollod.engine.http.weights.served_model import ServedModel, model_info, server_info
from apollod.wire.control_messages import UpdateJoinRequest, UpdateReceiveRequest

INIT: dict[str, Any] = {"master_address": "127.0.0.1", "master_port": 5000, "rank_offset": 1, "world_size": 2}
INFO: dict[str, Any] = {"names": ["a"], "dtype_names": ["bfloat16"], "shapes": [[2]]}


def init(**more: Any) -> bytes:
    return json.dumps({"init_info": {**INIT, **more}, "extra": 1}).encode()


def update(**more: Any) -> bytes:
    return json.dumps({"update_info": {**INFO, **more}, "extra": {}}).encode()


ID = base64.b64encode(bytes([*range(126), 255, 255])).decode()  # with a "/", which a URL's base64 lacks
HANDLES = ("nccl_unique_id_b64", "ipc_handles", "ipc_handles_pickled", "num_updates_list")
"""fields of vLLM's other ways of tensors"""


def joined(**more: Any) -> bodies.Joined:
    return bodies.joined_of(init(**more), (), on_cuda=True)


def test_a_group_by_its_address() -> None:
    made = joined()
    assert made == bodies.Joined(UpdateJoinRequest("vllm", "127.0.0.1", 5000, 1, 2), False, 1 << 30)
    assert not made.request.nested
    more = joined(
        packed=True, packed_buffer_size_bytes=4096, packed_num_buffers=3, nccl_unique_id_b64=None, unknown=[1]
    )
    assert (more.packed, more.packed_bytes) == (True, 4096)


@pytest.mark.parametrize(
    ("backend", "expected"), [("nccl", "nccl"), ("gloo", "gloo"), ("apollod_gloo", "gloo"), ("", ""), (None, "")]
)
def test_a_backend_is_passed_on(backend: str | None, expected: str) -> None:
    assert joined(backend=backend).request.backend == expected


@pytest.mark.parametrize("backend", ["ipc", "sparse_nccl", "nccl_m2n", "sharded_rdt", "modelexpress", "x" * 100])
def test_other_backends_name_the_alternative(backend: str) -> None:
    with pytest.raises(BadCall, match="is not received") as caught:
        bodies.joined_of(json.dumps({"init_info": {"backend": backend}}).encode(), (), True)
    assert "broadcast" in caught.value.hint and len(caught.value.line()) < 300


def test_nccl_without_a_gpu_is_refused() -> None:
    with pytest.raises(BadCall, match="needs a GPU") as refused:
        bodies.joined_of(init(backend="nccl"), (), on_cuda=False)
    assert "gloo" in refused.value.hint


@pytest.mark.parametrize("field", HANDLES)
def test_a_group_is_joined_by_its_address_alone(field: str) -> None:
    """Also beside an address, which a trainer that sends the id does not open."""
    with pytest.raises(BadCall, match=field) as caught:
        joined(**{field: "QQ=="})
    assert "master_address" in caught.value.hint
    with pytest.raises(BadCall, match=field):
        bodies.joined_of(json.dumps({"init_info": {field: [], "rank_offset": 1, "world_size": 2}}).encode(), (), True)
    assert joined(**{field: None}) == joined()


def by_id(on_cuda: bool = True, **more: Any) -> bodies.Joined:
    return bodies.joined_of(
        json.dumps({"init_info": {"nccl_unique_id_b64": ID, "rank_offset": 1, "world_size": 2, **more}}).encode(),
        (), on_cuda,
    )  # fmt: skip


def test_a_group_of_nccl_by_its_id() -> None:
    expected = UpdateJoinRequest("vllm", "", 0, 1, 2, "nccl", unique_id=base64.b64decode(ID))
    assert by_id() == by_id(backend="nccl", master_address=None) == bodies.Joined(expected, False, 1 << 30)
    more = by_id(packed=True, packed_buffer_size_bytes=4096, world_size=3, rank_offset=2)
    assert (more.packed, more.packed_bytes, more.request.rank, more.request.world_size) == (True, 4096, 2, 3)


@pytest.mark.parametrize(
    "more",
    [
        {"nccl_unique_id_b64": ID[:-4]}, {"nccl_unique_id_b64": "%" * 172},
        {"nccl_unique_id_b64": ID.replace("/", "_")}, {"nccl_unique_id_b64": "ä"}, {"nccl_unique_id_b64": 7},
        {"master_address": "127.0.0.1"},
        {"master_port": 5000}, {"rank_offset": 0}, {"world_size": 1}, {"world_size": 1 << 40},
        {"packed_buffer_size_bytes": 0}, {"backend": "gloo"}, {"on_cuda": False},
    ],
)  # fmt: skip
def test_an_id_that_names_no_group_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(BadCall) as refused:
        by_id(**more)
    assert refused.value.hint
    assert more.get("on_cuda", True) or "gloo" in refused.value.hint


@pytest.mark.parametrize("field", INIT)
@pytest.mark.parametrize("value", ["missing", None, [], True, 1.5, {"a": 1}])
def test_a_field_of_a_group_that_is_missing_or_mistyped_is_named(field: str, value: Any) -> None:
    given = {name: each for name, each in {**INIT, field: value}.items() if each != "missing"}
    with pytest.raises(BadCall, match=field) as caught:
        bodies.joined_of(json.dumps({"init_info": given}).encode(), (), True)
    assert "init_info" in caught.value.hint


@pytest.mark.parametrize("size", [0, -1, (1 << 40) + 1, 1 << 70])
def test_a_buffer_of_no_size_is_refused(size: int) -> None:
    with pytest.raises(BadCall, match="packed_buffer_size_bytes"):
        joined(packed_buffer_size_bytes=size)
    with pytest.raises(BadCall, match="packed_buffer_size_bytes"):
        bodies.receive_of(update(packed_buffer_size_bytes=size), None)


def test_tensors_are_cut_as_the_group_or_the_update_says() -> None:
    plain = UpdateReceiveRequest("vllm", ["a"], ["bfloat16"], [[2]], "each", 0)
    assert bodies.receive_of(update(), None) == bodies.receive_of(update(), joined()) == plain
    packed = bodies.receive_of(update(), joined(packed=True, packed_buffer_size_bytes=64))
    assert (packed.layout, packed.packed_bytes) == ("packed", 64)
    older = bodies.receive_of(update(packed=True, packed_buffer_size_bytes=32, packed_num_buffers=2), joined())
    assert (older.layout, older.packed_bytes) == ("packed", 32)
    assert bodies.receive_of(update(packed=False), joined(packed=True)).layout == "each"
    assert bodies.receive_of(json.dumps({"update_info": [INFO]}).encode(), None) == plain


@pytest.mark.parametrize(
    "field, value",
    [
        *[(field, value) for field in INFO for value in ("missing", None, "a", [1.5], [None], {})],
        ("names", [1]), ("shapes", [[1.5]]), ("shapes", [["1"]]), ("shapes", [[True]]), ("packed", "yes"),
        ("packed_buffer_size_bytes", "1"), ("dtype_names", ["a", "b"]), ("shapes", []),
    ],
)  # fmt: skip
def test_a_field_of_an_update_that_is_missing_or_mistyped_is_named(field: str, value: Any) -> None:
    given = {name: each for name, each in {**INFO, field: value}.items() if each != "missing"}
    with pytest.raises(BadCall, match=field):
        bodies.receive_of(json.dumps({"update_info": given}).encode(), None)


@pytest.mark.parametrize("field", HANDLES)
def test_handles_and_sparse_updates_name_the_alternative(field: str) -> None:
    with pytest.raises(BadCall, match=field) as caught:
        bodies.receive_of(update(**{field: []}), None)
    assert "broadcast" in caught.value.hint
    assert bodies.receive_of(update(**{field: None}), None) == bodies.receive_of(update(), None)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b"7", b"{", b"\xff", b"null", b'{"update_info": null}', b'{"update_info": []}',
        b'{"update_info": [{}, {}]}', b'{"update_info": "x"}', b'{"update_info": {"names": NaN}}', b"[" * 100_000,
        b'{"update_info": {"shapes": [[1e400]]}}', b'{"update_info": ' + b"[" * 100_000,
        b'{"update_info": {"a": "\\ud800"}}',
    ],
)  # fmt: skip
def test_what_is_no_body_is_refused(body: bytes) -> None:
    with pytest.raises(BadCall) as caught:
        bodies.receive_of(body, None)
    assert caught.value.hint
    with pytest.raises(BadCall):
        bodies.joined_of(body, (), True)


@pytest.mark.parametrize("body", [b"", b"  \n", b"{}", b'{"weight_version": null}', b'{"is_checkpoint_format": true}'])
def test_no_body_is_an_empty_one(body: bytes) -> None:
    assert bodies.label_of(body) == "" and bodies.aborted_of(body) == []


def test_labels_and_ids() -> None:
    assert bodies.label_of(b'{"weight_version": "v1"}') == "v1"
    assert bodies.aborted_of(b'{"request_ids": ["a", "b"]}') == ["a", "b"]
    assert bodies.new_version_of(b'{"new_version": "2"}') == ("2", False)
    assert bodies.new_version_of(b'{"new_version": "2", "abort_all_requests": true}') == ("2", True)
    for body in (b'{"weight_version": 1}', b'{"weight_version": ["a"]}', b"[]", b"x"):
        with pytest.raises(BadCall):
            bodies.label_of(body)
    for body in (b"{}", b"", b'{"new_version": null}', b'{"new_version": 2}'):
        with pytest.raises(BadCall, match="new_version"):
            bodies.new_version_of(body)
    for body in (b"[]", b'{"request_ids": "a"}', b"{"):
        with pytest.raises(BadCall):
            bodies.aborted_of(body)


def test_actions_of_the_checker() -> None:
    assert bodies.checked_of(b'{"action": "checksum"}') == "checksum"
    assert bodies.checked_of(b'{"action": "compare", "baseline": {"a": "00"}}') == "compare"
    assert bodies.checked_of(b'{"action": "reset"}') == "reset"
    for body in (b"", b'{"action": "x"}', b'{"action": "compare"}', b'{"action": "compare", "baseline": []}'):
        with pytest.raises(BadCall, match=r"action|baseline"):
            bodies.checked_of(body)


@pytest.mark.parametrize(
    ("mode", "clear", "waits", "expected"),
    [
        (None, None, None, ("abort", True)),
        ("abort", "false", None, ("abort", False)),
        ("wait", "true", None, ("wait", True)),
        ("keep", "0", None, ("keep", False)),
        (None, "", "true", ("wait", True)),
        ("keep", None, "true", ("keep", True)),
    ],
)
def test_a_pause_by_its_query(
    mode: str | None, clear: str | None, waits: str | None, expected: tuple[str, bool]
) -> None:
    assert bodies.pause_of(mode, clear, waits) == expected


@pytest.mark.parametrize(("mode", "clear", "waits"), [("x", None, None), ("keep", "2", None), (None, None, "maybe")])
def test_a_query_that_is_none_is_refused(mode: str | None, clear: str | None, waits: str | None) -> None:
    with pytest.raises(BadCall):
        bodies.pause_of(mode, clear, waits)
    assert bodies.is_forced("true") and not bodies.is_forced(None) and not bodies.is_forced("false")


@pytest.mark.parametrize("status", [400, 413, 500, 501, 503, 418])
def test_errors_have_vllms_shape(status: int) -> None:
    error = bodies.error_of(status, "why; how")["error"]
    assert set(error) == {"message", "type", "param", "code"} and (error["message"], error["code"]) == (
        "why; how",
        status,
    )
    assert error["type"]


def test_what_is_told_of_the_model() -> None:
    model = ServedModel("/m", "tiny", "/m", "torch.bfloat16", 512, "processed_logprobs")
    info = server_info(model, "v2", active=3)
    for at in (info, info["vllm_config"]):
        assert at["weight_transfer_config"] == {"backend": "nccl"} and at["model_config"]["dtype"] == "torch.bfloat16"
        assert at["model_config"]["logprobs_mode"] == "processed_logprobs"
    for name, value in (
        ("tp_size", 1), ("pp_size", 1), ("dp_size", 1), ("enable_memory_saver", False), ("model_path", "/m"),
        ("weight_version", "v2"), ("vllm_env", {}), ("system_env", {}),
    ):  # fmt: skip
        assert info[name] == value
    told = model_info(model, "v2")
    assert told == {
        "model_path": "/m", "tokenizer_path": "/m", "served_model_name": "tiny", "is_generation": True,
        "preferred_sampling_params": None, "weight_version": "v2", "has_image_understanding": False,
        "has_audio_understanding": False,
    }  # fmt: skip
