"""Bodies of SGLang's dialect: every field once, and what is no body of it."""

import json
from typing import Any

import pytest

from apollod.engine.http.weights import sglang_bodies as bodies
from apollod.engine.http.weights.call_errors import BadCall
from apollod.wire.control_messages import UpdateDirectoryRequest, UpdateJoinRequest, UpdateReceiveRequest

INIT: dict[str, Any] = {"master_address": "127.0.0.1", "master_port": 5000, "rank_offset": 1, "world_size": 2}
SENT: dict[str, Any] = {"names": ["a"], "dtypes": ["torch.bfloat16"], "shapes": [[2]]}


def body(given: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({**given, "extra": None, **more}).encode()


def test_a_group() -> None:
    made = bodies.join_of(body(INIT), (), on_cuda=False)
    assert made == UpdateJoinRequest("weight_update_group", "127.0.0.1", 5000, 1, 2, "", nested=True)
    more = bodies.join_of(body(INIT, master_port="5001", group_name="g", backend="gloo"), (), False)
    assert (more.port, more.group, more.backend, more.nested) == (5001, "g", "gloo", True)
    assert bodies.join_of(body(INIT, backend="nccl"), (), True).backend == "nccl"
    assert bodies.join_of(body(INIT, backend=None, group_name=None), (), True).backend == ""


def test_nccl_without_a_gpu_is_refused() -> None:
    with pytest.raises(BadCall, match="needs a GPU"):
        bodies.join_of(body(INIT, backend="nccl"), (), on_cuda=False)
    with pytest.raises(BadCall, match="hccl"):
        bodies.join_of(body(INIT, backend="hccl"), (), on_cuda=True)
    with pytest.raises(BadCall, match="group_name"):
        bodies.join_of(body(INIT, group_name="g" * 257), (), on_cuda=True)


@pytest.mark.parametrize("field", INIT)
@pytest.mark.parametrize("value", ["missing", None, [], True, 1.5, -1])
def test_a_field_of_a_group_that_is_missing_or_bad_is_named(field: str, value: Any) -> None:
    given = {name: each for name, each in {**INIT, field: value}.items() if each != "missing"}
    with pytest.raises(BadCall, match=field):
        bodies.join_of(body(given), (), False)


def test_tensors_of_a_broadcast() -> None:
    made = bodies.distributed_of(body(SENT))
    assert made == bodies.Received(
        UpdateReceiveRequest("weight_update_group", ["a"], ["bfloat16"], [[2]], "each"), "", False
    )
    more = bodies.distributed_of(
        body(
            SENT, group_name="g", flush_cache=False, abort_all_requests=True, weight_version="7",
            load_format="flattened_bucket", torch_empty_cache=True, selector=None,
        )
    )  # fmt: skip
    assert (more.request.group, more.request.layout) == ("g", "bucket")  # type: ignore[union-attr]
    assert (more.label, more.aborts) == ("7", True)
    for none in (None, "", "auto"):
        assert bodies.distributed_of(body(SENT, load_format=none, weight_version=3)).label == "3"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(field, value) for field in SENT for value in ("missing", None, "a", [1.5], [], {}, [[]] * 3)],
        ("load_format", "direct"), ("load_format", 1), ("weight_version", []), ("weight_version", "v" * 257),
        ("group_name", 1), ("abort_all_requests", "x"), ("shapes", [[-1]]), ("shapes", [[1 << 60]]),
        ("shapes", [[1] * 9]),
    ],
)  # fmt: skip
def test_a_field_of_an_update_that_is_missing_or_bad_is_refused(field: str, value: Any) -> None:
    given = {name: each for name, each in {**SENT, field: value}.items() if each != "missing"}
    with pytest.raises(BadCall) as caught:
        bodies.distributed_of(body(given))
    assert caught.value.hint


def test_a_directory() -> None:
    assert bodies.directory_of(body({"model_path": "/m"})) == bodies.Received(UpdateDirectoryRequest("/m"), "", False)
    made = bodies.directory_of(
        body(
            {"model_path": "/m"}, load_format="safetensors", abort_all_requests=True, weight_version="7",
            flush_cache=True, keep_pause=False, is_async=False, torch_empty_cache=True, recapture_cuda_graph=False,
            token_step=0, manifest=None,
        )
    )  # fmt: skip
    assert made == bodies.Received(UpdateDirectoryRequest("/m", "safetensors"), "7", True)


@pytest.mark.parametrize(
    "given",
    [
        {}, {"model_path": ""}, {"model_path": None}, {"model_path": 1}, {"model_path": "/" * 4097},
        {"model_path": "/a\0b"}, {"model_path": "/m", "load_format": "x" * 33}, {"model_path": "/m", "load_format": []},
    ],
)  # fmt: skip
def test_what_is_no_directory_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadCall):
        bodies.directory_of(body(given))


@pytest.mark.parametrize(
    "given", [b"[]", b"7", b"{", b"\xff", b'{"names": NaN}', b"[" * 100_000, b'{"mode": Infinity}']
)
def test_what_is_no_body_is_refused_by_all(given: bytes) -> None:
    for read in (bodies.distributed_of, bodies.directory_of, bodies.group_of, bodies.pause_of, bodies.aborted_of):
        with pytest.raises(BadCall):
            if read(given) and given.startswith(b"{"):  # a field that this one ignores
                raise BadCall("ignored")


@pytest.mark.parametrize("given", [b"", b" ", b"{}"])
def test_no_body_is_an_empty_one(given: bytes) -> None:
    assert bodies.pause_of(given) == ("abort", True)
    assert bodies.group_of(given) == "weight_update_group" and bodies.aborted_of(given) == []


@pytest.mark.parametrize(
    ("mode", "expected"), [("abort", ("abort", True)), ("retract", ("keep", True)), ("in_place", ("keep", False))]
)
def test_modes_of_a_pause(mode: str, expected: tuple[str, bool]) -> None:
    assert bodies.pause_of(body({"mode": mode})) == expected
    with pytest.raises(BadCall, match="is not known") as caught:
        bodies.pause_of(body({"mode": mode + "x"}))
    assert "abort, retract, in_place" in caught.value.hint


def test_requests_to_abort() -> None:
    assert bodies.aborted_of(body({"rid": "a"})) == ["a"] and bodies.aborted_of(body({"rid": ["a", "b"]})) == ["a", "b"]
    assert bodies.aborted_of(body({"rid": "a", "abort_all": True})) is None
    with pytest.raises(BadCall):
        bodies.aborted_of(body({"rid": 1}))


@pytest.mark.parametrize("tags", [None, [], ["weights"], ["kv_cache"], ["kv_cache", "cuda_graph"], ["x" * 1000]])
def test_no_memory_is_released(tags: list[str] | None) -> None:
    with pytest.raises(BadCall, match="one copy") as caught:
        bodies.check_memory(body({"tags": tags}))
    assert len(caught.value.line()) < 500
    with pytest.raises(BadCall, match="tags"):
        bodies.check_memory(body({"tags": "kv_cache"}))


@pytest.mark.parametrize(("given", "expected"), [(None, 0), ("", 0), ("0", 0), ("1.5", 1.5), ("60", 60)])
def test_how_long_a_flush_waits(given: str | None, expected: float) -> None:
    assert bodies.flush_wait_of(given) == expected


@pytest.mark.parametrize("given", ["x", "-1", "61", "nan", "inf", "1e400"])
def test_a_time_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(BadCall, match="timeout"):
        bodies.flush_wait_of(given)


def test_answers() -> None:
    assert bodies.told(True, "m") == {"success": True, "message": "m"}
    assert bodies.told(False, "m", num_paused_requests=0)["num_paused_requests"] == 0
    ((busy,), (held,)) = bodies.load_of(3, held=False), bodies.load_of(3, held=True)
    assert (busy["num_reqs"], busy["num_running_reqs"], busy["num_waiting_reqs"]) == (3, 3, 0)
    assert (held["num_reqs"], held["num_running_reqs"], held["num_waiting_reqs"]) == (3, 0, 3)
    assert bodies.checked_of(body({"action": "checksum", "allow_quant_error": True})) == "checksum"
    with pytest.raises(BadCall, match="action"):
        bodies.checked_of(b"")
