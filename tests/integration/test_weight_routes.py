"""Routes for weights under uvicorn, as real clients call them: their requests in their order, with the supervisor's
rules on a real control socket. No model; bodies are those that the clients were recorded to send."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import requests
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from prometheus_client import REGISTRY
from requests.adapters import HTTPAdapter
from support.served_routes import Served
from support.updating_supervisor import NAMES, UpdatingSupervisor
from urllib3.util import Retry

from apollod.engine.http import user_requests
from apollod.engine.http.routes import Routes
from apollod.engine.http.url_keys import UrlKeys
from apollod.engine.http.weights import update_calls
from apollod.engine.http.weights.control_terms import ControlTerms
from apollod.wire import control_messages as msg

DTYPES, SHAPES = ["bfloat16", "bfloat16"], [[16, 8], [8]]
PORT = 51216
INFO = {"names": NAMES, "dtype_names": DTYPES, "shapes": SHAPES}
SENT = {"names": NAMES, "dtypes": DTYPES, "shapes": SHAPES}
VERSION = "X-Apollod-Weights-Version"
KINDS = ("init", "start", "update", "finish", "shutdown")
"""what vLLM's metrics call the operations of a trainer"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


def joining(**more: Any) -> dict[str, Any]:
    return {"master_address": "127.0.0.1", "master_port": PORT, "rank_offset": 1, "world_size": 2, **more}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


# --- vLLM's dialect -------------------------------------------------------------------------------------------------


def test_the_client_of_vllm_itself_writes_versions(served: Served) -> None:
    """`HTTPVLLMWeightSyncClient`, unmodified, called as `NCCLTrainerWeightTransferEngine` calls it."""
    from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient

    client = HTTPVLLMWeightSyncClient(served.url, timeout=30)
    client.init_weight_transfer_engine(
        joining(nccl_unique_id_b64=None, packed=True, packed_buffer_size_bytes=1 << 20, packed_num_buffers=2)
    )
    for version in (None, "v2"):
        client.start_weight_update()
        client.update_weights(dict(INFO))
        client.finish_weight_update(version)
    client.shutdown_weight_transfer_engine()
    join = msg.UpdateJoinRequest("vllm", "127.0.0.1", PORT, 1, 2)
    receive = msg.UpdateReceiveRequest("vllm", NAMES, DTYPES, SHAPES, "packed", 1 << 20)
    opened, received, committed, again, _, last, left = served.supervisor.changes()[1:]
    assert served.supervisor.changes()[0] == join
    assert (opened.dialect, again.dialect) == ("vllm", "vllm") and "python-requests" in opened.by
    assert received == receive and committed == msg.UpdateCommitRequest() and last == msg.UpdateCommitRequest("v2")
    assert left == msg.UpdateLeaveRequest("vllm")
    assert served.get("/weight_info").json() == {"weight_version": "v2"}


def trl() -> requests.Session:
    """The session of TRL's VLLMClient; its pauses between repetitions are 2 s and more."""
    session = requests.Session()
    retry = Retry(
        total=5, connect=5, read=5, status=3, status_forcelist=[500, 502, 503], backoff_factor=0,
        allowed_methods=["POST", "GET"],
    )  # fmt: skip
    session.mount("http://", HTTPAdapter(max_retries=retry))
    return session


def test_trl_sync_initializes_updates_and_resets(served: Served) -> None:
    session, url = trl(), served.url
    info = session.get(f"{url}/server_info", params={"config_format": "json"}).json()
    assert info["vllm_config"]["weight_transfer_config"] == {"backend": "nccl"}
    world = session.get(f"{url}/get_world_size").json()["world_size"]
    body = {"init_info": joining(world_size=world + 1, packed=True)}
    assert session.post(f"{url}/init_weight_transfer_engine", json=body).status_code == 200
    assert session.post(f"{url}/start_weight_update", json={}).json() == {"message": "Weight update started"}
    assert session.post(f"{url}/update_weights", json={"update_info": INFO}).json() == {"message": "Weights updated"}
    assert session.post(f"{url}/finish_weight_update", json={}).json() == {"message": "Weight update finished"}
    assert session.post(f"{url}/reset_prefix_cache").json() == {"success": True}
    assert served.supervisor.kinds() == ["join", "open", "receive", "commit"]
    assert served.engine.calls == ["reset"], "it does not pause"
    assert served.supervisor.asked[-1] == msg.UpdateCommitRequest()


def test_trl_repeats_a_failed_update_and_none_waits_or_is_published(served: Served) -> None:
    session, url = trl(), served.url
    session.post(f"{url}/init_weight_transfer_engine", json={"init_info": joining()})
    session.post(f"{url}/start_weight_update", json={})
    served.supervisor.fails[msg.UpdateReceiveRequest] = msg.Failure("lm_head.weight is not finite", "look at the loss")
    with pytest.raises(requests.exceptions.RetryError):
        session.post(f"{url}/update_weights", json={"update_info": INFO})
    assert served.supervisor.kinds() == ["join", "open", "receive"], "it is undone, and asked for once"
    served.refused(served.post("/update_weights", {"update_info": INFO}), 500, "not finite", "look at the loss")
    answer = served.post("/finish_weight_update", {})
    served.refused(answer, 500, "lm_head.weight is not finite; look at the loss")
    assert answer.json()["error"] | {"message": ""} == {
        "message": "", "type": "InternalServerError", "param": None, "code": 500,
    }  # fmt: skip
    served.refused(served.post("/finish_weight_update", {}), 500, "/start_weight_update")
    assert served.supervisor.version == 3 and "commit" not in served.supervisor.kinds()
    assert served.post("/start_weight_update").status_code == 200
    assert served.post("/update_weights", {"update_info": INFO}).status_code == 200
    assert served.post("/finish_weight_update").status_code == 200 and served.supervisor.version == 4


def test_trl_async_pauses_and_resumes(served: Served) -> None:
    assert served.get("/server_info").json()["model_config"]["dtype"] == "bfloat16"
    assert served.post("/pause?mode=keep").json() == {"status": "paused"}
    assert served.get("/is_paused").json() == {"is_paused": True}
    assert served.post("/init_weight_transfer_engine", {"init_info": joining()}).status_code == 200
    assert served.post("/start_weight_update", {"is_checkpoint_format": True}).status_code == 200
    info = {**INFO, "packed": True, "packed_buffer_size_bytes": 4096, "packed_num_buffers": 2}  # as for vLLM 0.26
    assert served.post("/update_weights", {"update_info": info}).status_code == 200
    assert served.post("/finish_weight_update").status_code == 200
    assert served.post("/resume").json() == {"status": "resumed"}
    assert served.get("/is_paused").json() == {"is_paused": False}
    assert served.engine.calls == [("pause", "keep", True), "resume"]
    receive = served.supervisor.changes()[2]
    assert (receive.layout, receive.packed_bytes) == ("packed", 4096)
    assert served.supervisor.kinds() == ["join", "open", "receive", "commit"]


def test_trl_async_stays_paused_after_a_failure_and_its_finish_publishes_nothing(served: Served) -> None:
    served.post("/pause?mode=keep")
    served.post("/init_weight_transfer_engine", {"init_info": joining()})
    served.post("/start_weight_update", {"is_checkpoint_format": True})
    served.refused(served.post("/update_weights", {"update_info": {**INFO, "shapes": [[1]]}}), 400, "shapes")
    served.refused(served.post("/finish_weight_update"), 500, "shapes")
    assert served.supervisor.kinds() == ["join", "open", "undo"] and served.get("/is_paused").json()["is_paused"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/update_weights", {"update_info": INFO}), ("/finish_weight_update", None),
        ("/shutdown_weight_transfer_engine", None),
    ],
)  # fmt: skip
def test_what_is_out_of_order_is_a_500(served: Served, path: str, body: Any) -> None:
    served.refused(served.post(path, body), 500, "error")
    assert "commit" not in served.supervisor.kinds()


def test_a_second_start_and_a_shutdown_inside_are_500(served: Served) -> None:
    served.post("/init_weight_transfer_engine", {"init_info": joining()})
    served.post("/start_weight_update")
    served.refused(served.post("/start_weight_update"), 500, "an update is under way; wait for its end")
    served.refused(served.post("/shutdown_weight_transfer_engine"), 500, "finish it")
    served.post("/update_weights", {"update_info": INFO})
    assert served.post("/finish_weight_update", {"weight_version": "7"}).status_code == 200
    assert served.supervisor.asked[-1] == msg.UpdateCommitRequest("7")


def test_a_second_group_replaces_the_first(served: Served) -> None:
    for _ in range(2):
        assert served.post("/init_weight_transfer_engine", {"init_info": joining()}).status_code == 200
    assert served.supervisor.kinds() == ["join", "leave", "join"]
    served.supervisor.groups.clear()  # its trainer is gone
    assert served.post("/init_weight_transfer_engine", {"init_info": joining()}).status_code == 200
    assert served.supervisor.groups == {"vllm"}


def test_requests_at_the_same_time_are_refused_at_once_and_spoil_the_update(served: Served) -> None:
    """A client that repeats its POST because a connection broke does not know what became of the first."""
    served.post("/init_weight_transfer_engine", {"init_info": joining()})
    served.post("/start_weight_update")
    held = served.supervisor.holds[msg.UpdateReceiveRequest] = threading.Event()
    with ThreadPoolExecutor(1) as client:
        first = client.submit(served.post, "/update_weights", {"update_info": INFO})
        until(lambda: served.supervisor.kinds()[-1] == "receive")
        served.refused(served.post("/update_weights", {"update_info": INFO}), 500, "another request")
        served.refused(served.post("/finish_weight_update"), 500)
        held.set()
        served.refused(first.result(), 500, "another request")
    served.refused(served.post("/finish_weight_update"), 500)
    assert served.supervisor.kinds() == ["join", "open", "receive", "undo"] and served.supervisor.version == 3


def test_a_second_group_while_one_is_joined_is_refused_at_once(served: Served) -> None:
    held = served.supervisor.holds[msg.UpdateJoinRequest] = threading.Event()
    with ThreadPoolExecutor(1) as client:
        first = client.submit(served.post, "/init_weight_transfer_engine", {"init_info": joining()})
        until(lambda: served.supervisor.kinds() == ["join"])
        served.refused(served.post("/init_weight_transfer_engine", {"init_info": joining()}), 500, "another")
        held.set()
        assert first.result().status_code == 200


def test_what_vllm_has_and_is_not_served_says_why(served: Served) -> None:
    served.refused(served.post("/start_draft_weight_update"), 501, "draft")
    for body in ({"action": "checksum"}, {"action": "compare", "baseline": {}}):
        served.refused(served.post("/weight_checker", body), 501, "checksums", "fingerprint")
    served.refused(served.post("/weight_checker", {"action": "compare"}), 400, "baseline")
    served.refused(served.post("/weight_checker", {"action": "reset"}), 400, "zero")
    served.refused(served.post("/init_weight_transfer_engine", {"init_info": {"backend": "ipc"}}), 400, "broadcast")
    served.refused(served.post("/pause?mode=wait"), 400, "wait")
    served.refused(served.post("/pause?mode=sleep"), 400, "abort, wait, keep")
    served.engine.broken = True
    served.refused(served.post("/pause"), 500, "engine core died")
    assert not served.supervisor.changes() and served.engine.calls[-1] == "resume"


def test_running_requests_are_aborted_by_id_or_all(served: Served) -> None:
    assert served.post("/abort_requests").json() == {"status": "aborted", "aborted": 1}
    assert served.post("/abort_requests", {"request_ids": ["x", "y"]}).json() == {"status": "aborted", "aborted": 2}
    assert served.post("/abort_request", {"rid": "x"}).content == b""
    assert served.post("/abort_request", {"rid": "", "abort_all": True}).status_code == 200
    assert served.engine.calls == [
        ("abort", ["a"], True), ("abort", ["x", "y"], False), ("abort", ["x"], False), ("abort", ["a"], True),
    ]  # fmt: skip


# --- SGLang's dialect -----------------------------------------------------------------------------------------------


def test_torchrl_writes_within_a_pause(served: Served) -> None:
    group = "weight_update_group_0a1b2c3d"
    assert served.post("/init_weights_update_group", joining(group_name=group)).json()["success"]
    body = {**SENT, "group_name": group, "flush_cache": False, "abort_all_requests": False}
    for _ in range(2):
        assert served.post("/pause_generation", {"mode": "retract"}).json()["status"] == "ok"
        assert served.get("/get_load").json()[0]["num_running_reqs"] == 0
        assert served.post("/update_weights_from_distributed", body).json()["success"]
        assert served.post("/continue_generation", {"torch_empty_cache": True}).json()["status"] == "ok"
        assert served.post("/flush_cache").status_code == 200
    join, opened, receive, commit = served.supervisor.changes()[:4]
    assert join == msg.UpdateJoinRequest(group, "127.0.0.1", PORT, 1, 2, "", nested=True)
    assert opened.dialect == "sglang"
    assert receive == msg.UpdateReceiveRequest(group, NAMES, DTYPES, SHAPES, "each")
    assert commit == msg.UpdateCommitRequest(whole=True)
    assert served.supervisor.kinds() == ["join", *["open", "receive", "commit"] * 2]
    assert served.engine.calls == [("pause", "keep", True), "resume", "reset"] * 2


def test_torchrl_that_stops_after_the_first_of_its_buckets_changes_nothing(served: Served) -> None:
    """It continues in any case, and no message says that tensors are missing."""
    served.post("/init_weights_update_group", joining())
    served.post("/pause_generation", {"mode": "retract"})
    one = {"names": NAMES[:1], "dtypes": DTYPES[:1], "shapes": SHAPES[:1]}
    assert served.post("/update_weights_from_distributed", one).status_code == 200
    answer = served.post("/continue_generation", {"torch_empty_cache": True})
    served.refused(answer, 400, "1 of 2 tensors were received; send all, or end the update explicitly")
    assert served.supervisor.version == 3 and served.engine.calls[-1] == "resume", "generation goes on"
    assert served.get("/is_paused").json() == {"is_paused": False}


def test_torchrl_whose_update_failed_continues_on_the_old_weights(served: Served) -> None:
    served.post("/init_weights_update_group", joining())
    served.post("/pause_generation", {"mode": "retract"})
    served.supervisor.fails[msg.UpdateReceiveRequest] = msg.Failure("the sender left", "send again")
    answer = served.post("/update_weights_from_distributed", SENT)
    served.refused(answer, 400, "the sender left; send again")
    assert answer.json()["success"] is False and "send again" in answer.json()["message"]
    served.refused(served.post("/update_weights_from_distributed", SENT), 400, "failed before")
    assert served.post("/continue_generation").status_code == 200
    assert served.supervisor.kinds() == ["join", "open", "receive"] and served.engine.calls[-1] == "resume"


def test_torchrl_that_continues_while_tensors_are_awaited_commits_nothing(served: Served) -> None:
    """Its broadcast failed on its own side; the request for it still waits."""
    served.post("/init_weights_update_group", joining())
    served.post("/pause_generation", {"mode": "retract"})
    held = served.supervisor.holds[msg.UpdateReceiveRequest] = threading.Event()
    with ThreadPoolExecutor(1) as client:
        update = client.submit(served.post, "/update_weights_from_distributed", SENT)
        until(lambda: served.supervisor.kinds()[-1] == "receive")
        served.refused(served.post("/continue_generation"), 400, "before all tensors had come")
        assert served.engine.calls[-1] == "resume"
        held.set()
        served.refused(update.result(), 400, "before all tensors had come")
    assert served.supervisor.kinds() == ["join", "open", "receive", "undo"]


def test_an_answer_tells_the_trainers_name_of_its_weights_while_it_is_theirs(served: Served) -> None:
    """The version is announced before the commit is answered, and is named already. Weights of another version have a
    number."""

    def told() -> tuple[Any, Any, Any]:
        answer = served.post("/generate", {"input_ids": [5]})
        named = served.get("/weight_info").json()["weight_version"], served.get("/model_info").json()["weight_version"]
        return answer.json()["meta_info"]["weight_version"], *named

    assert not served.host.refresh(3).error and told() == ("3", "default", "default")
    served.post("/start_weight_update")
    served.supervisor.received = list(NAMES)
    held = served.supervisor.holds[msg.UpdateCommitRequest] = threading.Event()
    with ThreadPoolExecutor(1) as client:
        commit = client.submit(served.post, "/finish_weight_update", {"weight_version": "their-7"})
        until(lambda: served.supervisor.kinds()[-1] == "commit")
        assert not served.host.refresh(4).error
        assert served.post("/generate", {"input_ids": [5]}).json()["meta_info"]["weight_version"] == "their-7"
        held.set()
        assert commit.result().status_code == 200
    assert told() == ("their-7",) * 3
    served.supervisor.version = 5  # a step of our own
    assert not served.host.refresh(5).error and told() == ("5", "default", "default")
    served.supervisor.version = 4
    assert not served.host.refresh(4).error and told() == ("their-7",) * 3, "a rollback brings it back"
    served.post("/update_weight_version", {"new_version": "renamed"})
    assert told() == ("renamed",) * 3


def test_an_engine_that_starts_anew_learns_the_name_of_its_weights(tmp_path: Path) -> None:
    supervisor = UpdatingSupervisor()
    supervisor.version, supervisor.label, supervisor.labelled = 9, "their-9", 9
    served = Served(tmp_path, supervisor=supervisor)
    try:
        assert not served.host.refresh(9).error
        answer = served.post("/generate", {"input_ids": [5]}).json()
        assert answer["meta_info"]["weight_version"] == "their-9" == served.get("/weight_info").json()["weight_version"]
    finally:
        served.close()


def test_calls_are_measured_by_the_metrics_of_vllm(served: Served) -> None:
    """In both dialects, also those that fail, but not those that nobody may send."""

    def figures(name: str) -> dict[str, float]:
        found = {
            each: REGISTRY.get_sample_value(f"vllm:rl_weight_update_{name}", {"operation": each}) for each in KINDS
        }
        return {each: value or 0.0 for each, value in found.items()}

    def begun() -> dict[str, float]:
        now = figures("operation_duration_seconds_count")
        return {each: now[each] - before[each] for each in KINDS if now[each] != before[each]}

    before = figures("operation_duration_seconds_count")
    served.post("/init_weight_transfer_engine", {"init_info": joining()})
    served.post("/start_weight_update")
    held = served.supervisor.holds[msg.UpdateReceiveRequest] = threading.Event()
    with ThreadPoolExecutor(1) as client:
        update = client.submit(served.post, "/update_weights", {"update_info": INFO})
        until(lambda: served.supervisor.kinds()[-1] == "receive")
        assert figures("operations_in_flight") == dict.fromkeys(KINDS, 0.0) | {"update": 1.0}
        held.set()
        assert update.result().status_code == 200
    served.post("/finish_weight_update")
    served.refused(served.post("/finish_weight_update"), 500, "no update")
    served.post("/shutdown_weight_transfer_engine")
    assert begun() == {"init": 1, "start": 1, "update": 1, "finish": 2, "shutdown": 1}
    served.post("/init_weights_update_group", joining())
    served.post("/begin_weight_update")
    served.post("/update_weights_from_distributed", SENT)
    served.post("/end_weight_update")
    assert served.post("/end_weight_update", headers={"Origin": "https://evil.example"}).status_code == 403
    assert begun() == {"init": 2, "start": 2, "update": 2, "finish": 3, "shutdown": 1}
    assert figures("operations_in_flight") == dict.fromkeys(KINDS, 0.0)


@pytest.mark.parametrize(
    "body",
    [
        {"nccl_unique_id_b64": "A" * 172, "rank_offset": 1, "world_size": 2},
        {**joining(), "nccl_unique_id_b64": "A" * 172},
        {**joining(), "backend": "nccl"},
        {**joining(), "backend": "ipc"},
        {**joining(), "ipc_handles": [{"GPU-1": [1, 2]}]},
    ],
)
def test_ways_that_need_a_gpu_are_refused_before_anything_is_opened(served: Served, body: dict[str, Any]) -> None:
    """The supervisor is not asked, and a group that was joined before stays."""
    with socket.create_server(("127.0.0.1", 0)) as trainer:
        trainer.settimeout(0.2)
        assert served.post("/init_weight_transfer_engine", {"init_info": joining()}).status_code == 200
        asked = list(served.supervisor.asked)
        body = {**body, "master_port": trainer.getsockname()[1]} if "master_port" in body else body
        answer = served.post("/init_weight_transfer_engine", {"init_info": body})
        assert answer.status_code == 400 and answer.json()["error"]["message"], answer.text
        with pytest.raises(TimeoutError):
            trainer.accept()
        assert served.supervisor.asked == asked


def test_slime_sends_buckets_with_a_version(served: Served) -> None:
    served.post("/init_weights_update_group", joining(group_name="slime-pp_0", backend="gloo"))
    assert served.post("/pause_generation", {}).status_code == 200
    served.engine.busy = True
    served.refused(served.get("/flush_cache"), 400, "running")
    served.engine.busy = False
    assert served.get("/flush_cache").status_code == 200
    for at in (0, 1):
        body = {
            "names": NAMES[at : at + 1], "dtypes": ["torch.bfloat16"], "shapes": SHAPES[at : at + 1],
            "group_name": "slime-pp_0", "flush_cache": False, "weight_version": "5",
        }  # fmt: skip
        assert served.post("/update_weights_from_distributed", body).json()["success"]
    assert served.post("/continue_generation", {}).status_code == 200
    assert served.supervisor.kinds() == ["join", "open", "receive", "receive", "commit"]
    assert served.supervisor.changes()[2].dtypes == ["bfloat16"]
    assert served.supervisor.asked[-1] == msg.UpdateCommitRequest("5", whole=True)
    assert served.get("/get_weight_version").json() == {"weight_version": "5"}
    info = served.get("/server_info").json()
    assert (info["tp_size"], info["pp_size"], info["enable_memory_saver"]) == (1, 1, False)
    assert served.engine.calls[0] == ("pause", "abort", True)
    served.refused(served.post("/update_weights_from_tensor", {"serialized_named_tensors": ["gAS"]}), 400, "pickled")


def test_areal_aborts_and_sends_its_port_as_a_string(served: Served) -> None:
    body = joining(master_port=str(PORT), backend="gloo", group_name="update_weight_group")
    assert served.post("/init_weights_update_group", body).status_code == 200
    assert served.supervisor.asked[-1].port == PORT and served.supervisor.asked[-1].backend == "gloo"
    served.post("/pause_generation", {})
    sent = {**SENT, "group_name": "update_weight_group", "abort_all_requests": True}
    assert served.post("/update_weights_from_distributed", sent).status_code == 200
    served.post("/continue_generation", {})
    assert served.engine.calls == [("pause", "abort", True), ("abort", ["a"], True), "resume"]
    disk = {"model_path": "/models/new", "abort_all_requests": True}
    answer = served.post("/update_weights_from_disk", disk)
    assert answer.json()["success"] and answer.json()["num_paused_requests"] == 0
    assert served.supervisor.kinds()[-3:] == ["open", "directory", "commit"]
    assert served.supervisor.asked[-2:] == [msg.UpdateDirectoryRequest("/models/new"), msg.UpdateCommitRequest()]


def test_areal_never_continues_after_a_failure_and_begins_anew(served: Served) -> None:
    served.post("/init_weights_update_group", joining())
    served.post("/pause_generation", {})
    served.supervisor.fails[msg.UpdateReceiveRequest] = msg.Failure("no", "why")
    served.refused(served.post("/update_weights_from_distributed", SENT), 400)
    served.post("/pause_generation", {})
    assert served.post("/update_weights_from_distributed", SENT).status_code == 200
    assert served.post("/continue_generation").status_code == 200 and served.supervisor.version == 4


def test_an_explicit_session_ends_with_a_commit(served: Served) -> None:
    served.post("/init_weights_update_group", joining())
    assert served.post("/begin_weight_update", {"selector": None}).json()["success"]
    body = {**SENT, "load_format": "flattened_bucket", "weight_version": "9"}
    assert served.post("/update_weights_from_distributed", body).status_code == 200
    assert (
        served.post("/pause_generation").status_code == 200 and served.post("/continue_generation").status_code == 200
    )
    assert served.supervisor.kinds() == ["join", "open", "receive"], "a pause inside commits nothing"
    assert served.post("/end_weight_update", {}).json()["success"]
    assert served.supervisor.changes()[2].layout == "bucket"
    assert served.supervisor.asked[-1] == msg.UpdateCommitRequest("9")
    served.refused(served.post("/end_weight_update"), 400, "/begin_weight_update")
    assert served.post("/destroy_weights_update_group", {}).json()["success"]
    served.refused(served.post("/destroy_weights_update_group", {"group_name": "x"}), 400, "no group x; join it before")


def test_an_explicit_session_with_a_failed_update_cannot_end(served: Served) -> None:
    served.post("/init_weights_update_group", joining())
    served.post("/begin_weight_update")
    assert served.post("/update_weights_from_distributed", SENT).status_code == 200
    served.refused(served.post("/update_weights_from_ipc", {"zmq_handles": {}}), 400, "pickled", "from_disk")
    served.refused(served.post("/end_weight_update"), 400, "pickled")
    assert served.supervisor.kinds() == ["join", "open", "receive", "undo"] and served.supervisor.version == 3


def test_a_single_update_is_all_of_it(served: Served) -> None:
    served.post("/init_weights_update_group", joining())
    assert served.post("/update_weights_from_distributed", {**SENT, "weight_version": "2"}).json()["success"]
    assert served.supervisor.kinds() == ["join", "open", "receive", "commit"]
    assert served.supervisor.asked[-1] == msg.UpdateCommitRequest("2")
    served.supervisor.fails[msg.UpdateReceiveRequest] = msg.Failure("no", "why")
    served.refused(served.post("/update_weights_from_distributed", SENT), 400, "no; why")
    assert served.post("/update_weights_from_distributed", SENT).status_code == 200
    served.supervisor.fails[msg.UpdateCommitRequest] = msg.Failure("the disk is full", "free some")
    served.refused(served.post("/update_weights_from_distributed", SENT), 400, "the disk is full; free some")
    assert served.supervisor.version == 5


def test_no_dialect_ends_the_update_of_the_other(served: Served) -> None:
    served.post("/init_weights_update_group", joining())
    served.post("/begin_weight_update")
    served.refused(served.post("/finish_weight_update"), 500, "/start_weight_update")
    served.refused(served.post("/start_weight_update"), 500, "under way")
    served.post("/update_weights_from_distributed", SENT)
    assert served.post("/end_weight_update").status_code == 200
    served.post("/init_weight_transfer_engine", {"init_info": joining()})
    served.post("/start_weight_update")
    served.refused(served.post("/end_weight_update"), 400, "/begin_weight_update")
    served.refused(served.post("/update_weights_from_distributed", SENT), 400, "under way")
    assert served.post("/continue_generation").status_code == 200
    assert served.supervisor.kinds().count("commit") == 1 and served.supervisor.kinds()[-1] == "open"


def test_sglang_router_finds_what_it_probes(served: Served) -> None:
    for path in ("/model_info", "/get_model_info"):
        info = served.get(path).json()
        assert (info["model_path"], info["served_model_name"], info["is_generation"]) == ("/models/tiny", "tiny", True)
        assert info["weight_version"] == "default"
    info = served.get("/server_info").json()
    assert info["model_path"] == "/models/tiny" and info["logprobs_mode"] == "processed_logprobs"
    assert not {"environment", "api_key"} & info.keys() and info["vllm_env"] == {} and "apollod" not in json.dumps(info)
    assert served.get("/get_server_info").json() == info
    assert served.get("/get_load").json()[0]["num_running_reqs"] == 0
    assert served.post("/flush_cache").status_code == 200


def test_health_generates_a_token_unless_generation_is_held_or_weights_are_in_doubt(served: Served) -> None:
    assert served.get("/health_generate").status_code == 200
    assert served.completions == [("application/json", {"prompt": [0], "max_tokens": 1, "temperature": 0.0})]
    served.post("/pause_generation")
    assert served.get("/health_generate").status_code == 200 and len(served.completions) == 1
    served.supervisor.in_doubt = "the fingerprint differs"
    served.refused(served.get("/health_generate"), 503, "the fingerprint differs; wait for the recovery")


def test_memory_and_weights_are_neither_released_nor_told(served: Served) -> None:
    for path in ("/release_memory_occupation", "/resume_memory_occupation"):
        for body in (None, {}, {"tags": ["kv_cache"]}, {"tags": ["weights"]}):
            served.refused(served.post(path, body), 400, "one copy")
    served.refused(served.get("/get_weights_by_name"), 501, "checkpoint")
    served.refused(served.post("/get_weights_by_name", {"name": "a"}), 501, "checkpoint")
    served.refused(served.post("/weights_checker", {"action": "checksum"}), 501, "checksums")
    served.refused(served.post("/weights_checker", {"action": "reset_tensors"}), 400, "zero")


def test_a_version_gets_a_name_without_an_abort(served: Served) -> None:
    answer = served.post("/update_weight_version", {"new_version": "w"})
    assert answer.json() == {"success": True, "message": "Weight version updated to w", "new_version": "w"}
    assert not served.engine.calls and served.get("/weight_info").json() == {"weight_version": "w"}
    served.post("/update_weight_version", {"new_version": "x", "abort_all_requests": True})
    assert served.engine.calls == [("abort", ["a"], True)]
    assert not served.supervisor.changes()


# --- pauses ---------------------------------------------------------------------------------------------------------


def test_a_pause_that_nobody_ends_ends_by_itself_and_undoes_what_came_in_it(tmp_path: Path) -> None:
    served = Served(tmp_path, terms=ControlTerms(0.3))
    served.post("/init_weights_update_group", joining())
    served.post("/pause_generation")
    served.post("/update_weights_from_distributed", SENT)
    until(lambda: served.supervisor.kinds()[-1] == "undo")
    assert served.engine.calls[-1] == "resume" and served.get("/is_paused").json() == {"is_paused": False}
    served.refused(served.post("/continue_generation"), 400, "ended by itself")
    assert served.post("/continue_generation").status_code == 200
    assert "commit" not in served.supervisor.kinds()
    served.close()


def test_a_pause_within_a_pause_begins_the_update_anew(served: Served) -> None:
    served.post("/init_weights_update_group", joining())
    for _ in range(2):
        served.post("/pause_generation")
        served.post("/update_weights_from_distributed", SENT)
    assert served.post("/continue_generation").status_code == 200
    assert served.supervisor.kinds() == ["join", "open", "receive", "undo", "open", "receive", "commit"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("abort", ("abort", True)), ("retract", ("keep", True)), ("in_place", ("keep", False)), (None, ("abort", True))],
)
def test_modes_of_a_pause_are_those_of_vllm(served: Served, mode: str | None, expected: tuple[str, bool]) -> None:
    assert served.post("/pause_generation", {"mode": mode}).status_code == 200
    assert served.engine.calls == [("pause", *expected)]
    served.refused(served.post("/pause_generation", {"mode": "sleep"}), 400, "retract")


def test_the_two_resumes_are_one(served: Served) -> None:
    served.post("/pause")
    assert served.post("/continue_generation").status_code == 200 and served.engine.calls[-1] == "resume"
    assert served.post("/resume").status_code == 200 and served.engine.calls.count("resume") == 1


# --- who may ask, and what -------------------------------------------------------------------------------------------


def routes_of(app: FastAPI) -> set[tuple[str, str]]:
    return {(method, route.path) for route in app.routes if isinstance(route, APIRoute) for method in route.methods}


def table(served: Served) -> list[tuple[str, str]]:
    """Method and path of each route for weights."""
    off = FastAPI()
    Routes("/none").attach_router(off)
    return sorted(routes_of(served.app) - routes_of(off) - {("POST", "/v1/completions")})


def test_no_route_exists_unless_it_is_turned_on(served: Served) -> None:
    assert len(table(served)) == 40, table(served)
    off = FastAPI()
    Routes("/none").attach_router(off)
    assert not {path for _, path in table(served)} & {path for _, path in routes_of(off)}
    with TestClient(off) as client:
        assert {client.request(method, path).status_code for method, path in table(served)} == {404}


def test_no_request_of_a_trainer_counts_as_a_users(served: Served) -> None:
    counted = {
        path for method, path in table(served) if method == "POST" and not user_requests.ASKS_NO_MODEL.fullmatch(path)
    }
    assert counted == set()


def test_without_the_key_nothing_is_answered_and_it_may_be_the_password_of_a_url(tmp_path: Path) -> None:
    served = Served(tmp_path, api_key=["secret"])
    at = served.url.removeprefix("http://")
    for method, path in table(served):
        for authorization in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic c2VjcmV0"}):
            answer = served.ask(method, path, headers=authorization)
            assert answer.status_code == 401, path
    assert not served.supervisor.asked and not served.engine.calls
    for user in ("x:secret", ":secret"):
        assert requests.get(f"http://{user}@{at}/weight_info", timeout=30).status_code == 200
    assert requests.get(f"http://secret:no@{at}/weight_info", timeout=30).status_code == 401
    assert served.get("/weight_info", headers={"Authorization": "Bearer secret"}).status_code == 200
    assert requests.get(f"http://x:secret@{at}/apollod/status", timeout=30).status_code == 401, "only for these routes"
    served.close()


def test_the_key_of_a_url_opens_the_routes_of_vllm_too() -> None:
    """Behind vLLM's own check, in the order in which it adds the two."""
    from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware

    app = FastAPI()
    app.add_api_route("/v1/models", lambda: {}, methods=["GET"])
    app.add_middleware(AuthenticationMiddleware, tokens=["secret"])
    app.add_middleware(UrlKeys)
    client = TestClient(app)
    asked = [("x", "secret"), ("x", "no"), ("secret", ""), None]
    assert [client.get("/v1/models", auth=auth).status_code for auth in asked] == [200, 401, 401, 401]
    assert client.get("/v1/models", auth=("x", "secret"), headers={"Origin": "http://testserver"}).status_code == 401


def test_no_page_may_ask_anything(served: Served) -> None:
    for method, path in table(served):
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            answer = served.ask(method, path, headers=headers)
            assert answer.status_code == 403, path
        if method == "POST":
            for kind in ("text/plain", "application/x-www-form-urlencoded", "application/octet-stream"):
                answer = served.ask("POST", path, data=b"{}", headers={"Content-Type": kind})
                assert answer.status_code == 415, path
    served.refused(served.get("/flush_cache", headers={"Sec-Fetch-Site": "cross-site"}), 400, "page")
    assert not served.supervisor.asked and not served.engine.calls


@pytest.mark.parametrize("kind", [None, "application/json", "application/octet-stream"])
@pytest.mark.parametrize("path", ["/resume", "/pause_generation", "/continue_generation", "/start_weight_update"])
def test_no_body_needs_no_type(served: Served, path: str, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    assert requests.post(f"{served.url}{path}", headers=headers, timeout=30).status_code == 200
    assert requests.post(f"{served.url}{path}", json={}, timeout=30).status_code in (200, 500)


def test_a_body_over_the_limit_is_refused_in_the_dialects_words(served: Served) -> None:
    body = b'{"update_info": "' + b"x" * (17 << 20) + b'"}'
    json_ = {"Content-Type": "application/json"}
    served.post("/init_weight_transfer_engine", {"init_info": joining()})
    served.post("/start_weight_update")
    answer = requests.post(f"{served.url}/update_weights", body, headers=json_, timeout=30)
    served.refused(answer, 413, "over 16777216 bytes", '"code":413')
    served.refused(served.post("/finish_weight_update"), 500)
    answer = requests.post(f"{served.url}/update_weights_from_tensor", body, headers=json_, timeout=30)
    served.refused(answer, 400, "pickled")
    assert served.supervisor.kinds() == ["join", "open", "undo"]


def test_too_many_joins_and_updates_in_a_minute_are_a_429_of_the_dialect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both dialects together; the supervisor is not asked, and the group that is there stays. With smaller numbers
    than those of docs/control.md."""
    assert (update_calls.JOINS, update_calls.UPDATES) == (60, 600)
    monkeypatch.setattr(update_calls, "JOINS", 4)
    monkeypatch.setattr(update_calls, "UPDATES", 7)
    served = Served(tmp_path)
    served.post("/init_weight_transfer_engine", {"init_info": joining()})
    for _ in range(3):
        assert served.post("/init_weights_update_group", joining()).status_code == 200
    before = len(served.supervisor.asked)
    told = served.post("/init_weight_transfer_engine", {"init_info": joining()})
    served.refused(told, 429, "more than 4 times in a minute", "RateLimitError", '"code":429')
    served.refused(served.post("/init_weights_update_group", joining()), 429, '"success":false')
    assert len(served.supervisor.asked) == before
    for _ in range(7):
        assert served.post("/start_weight_update").status_code != 429
    before = len(served.supervisor.asked)
    served.refused(served.post("/begin_weight_update"), 429, "updates were begun more than 7 times")
    assert len(served.supervisor.asked) == before
    assert served.post("/update_weights", {"update_info": INFO}).status_code == 200, "the one that was begun goes on"
    served.close()


def test_a_supervisor_that_is_gone_is_503_and_publishes_nothing(served: Served) -> None:
    served.post("/init_weight_transfer_engine", {"init_info": joining()})
    served.post("/start_weight_update")
    path, gone = served.host.path, served.host.path.with_suffix(".gone")
    os.rename(path, gone)
    served.refused(served.post("/update_weights", {"update_info": INFO}), 503, "ServiceUnavailable")
    served.refused(served.get("/health_generate"), 503)
    served.refused(served.post("/begin_weight_update"), 503, "success")
    os.rename(gone, path)
    served.refused(served.post("/finish_weight_update"), 500, "failed")
    assert served.supervisor.kinds() == ["join", "open"] and served.supervisor.version == 3


def test_answers_carry_the_version_that_is_served(served: Served) -> None:
    assert VERSION not in served.get("/weight_info").headers
    served.host.refresh(12)
    for answer in (served.get("/weight_info"), served.post("/pause_generation"), served.post("/continue_generation")):
        assert answer.headers[VERSION] == "12"


# --- requests of clients, byte by byte --------------------------------------------------------------------------------

LIBRARIES = {
    "requests": "User-Agent: python-requests/2.32.5\r\nAccept-Encoding: gzip, deflate\r\nAccept: */*\r\n",
    "aiohttp": "Accept: */*\r\nAccept-Encoding: gzip, deflate\r\nUser-Agent: Python/3.11 aiohttp/3.12.15\r\n",
}
"""headers of HTTP libraries"""
TRANSCRIBED = (Path(__file__).parents[1] / "support" / "client_requests.txt").read_text().split("\n== ")[1:]


def sent_bytes(address: str, library: str, method: str, path: str, body: str) -> bytes:
    """A request as this library writes it."""
    more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    if method == "POST" and not body:
        more = "Content-Length: 0\r\n" + ("Content-Type: application/octet-stream\r\n" if library == "aiohttp" else "")
    head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\n{LIBRARIES[library]}Connection: keep-alive\r\n{more}\r\n"
    return head.encode() + body.encode()


@pytest.mark.parametrize("told", TRANSCRIBED, ids=[one.partition(" |")[0] for one in TRANSCRIBED])
def test_requests_of_clients_are_answered_byte_by_byte(served: Served, told: str) -> None:
    """On one connection, as those libraries keep it. What cannot be served is refused by a 400 or 501 that says so."""
    title, *lines = told.strip().splitlines()
    library, address = title.split(" | ")[2], served.url.removeprefix("http://")
    with socket.create_connection(("127.0.0.1", int(address.split(":")[1])), timeout=30) as connection:
        for line in lines[:-1]:
            status, method, path, *rest = line.split(" ", 3)
            connection.sendall(sent_bytes(address, library, method, path, rest[0] if rest else ""))
            answer = HTTPResponse(connection, method=method)
            answer.begin()
            text = answer.read().decode()
            assert answer.status == int(status), (line, text)
            assert status == "200" or len(text) > 20, line
    assert served.supervisor.kinds() == lines[-1].split()[1:]
