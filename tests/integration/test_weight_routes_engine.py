"""Routes for weights in a real vLLM, at an address of their own: what it pauses, aborts, flushes and generates, and
that its own are not in the way."""

import copy
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.engine_host import Engine
from support.updating_supervisor import UpdatingSupervisor

from apollod.testing.daemon import free_port
from apollod.wire import messages as msg

pytestmark = pytest.mark.engine
CONTROL_PORT = free_port()
LONG = {"input_ids": [5, 6, 7, 8], "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}


@pytest.fixture(scope="module")
def public(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A vLLM with an engine core of its own, as a daemon starts it, in an environment that opens vLLM's own routes."""
    environment = {
        "APOLLOD_CONTROL": "1", "APOLLOD_CONTROL_LISTEN": f"127.0.0.1:{CONTROL_PORT}",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_SERVER_DEV_MODE": "1",
    }  # fmt: skip
    made = Engine(tmp_path_factory.mktemp("w"), tiny_model, environment=environment)
    made.host.answerer = UpdatingSupervisor()
    try:
        yield made.wait_ready()
    finally:
        made.close()


@pytest.fixture(scope="module")
def engine(public: Engine) -> Engine:
    """The same at the address for trainers."""
    seen = copy.copy(public)
    seen.port = CONTROL_PORT
    return seen


def active(engine: Engine) -> tuple[int, int]:
    (load,) = engine.get("/get_load")[1]
    return load["num_running_reqs"], load["num_waiting_reqs"]


def begin(client: ThreadPoolExecutor, engine: Engine) -> Future[tuple[int, Any]]:
    """An answer that is being generated, after those before it have ended: one that was aborted counts for a moment."""
    while active(engine) != (0, 0):
        time.sleep(0.005)
    answer = client.submit(engine.post, "/generate", LONG)
    while active(engine) != (1, 0):
        time.sleep(0.005)
    return answer


def test_requests_that_run_are_held_by_a_pause_and_go_on_or_end_aborted(engine: Engine) -> None:
    assert not engine.host.refresh(3).error
    assert engine.get("/health_generate")[0] == 200
    with ThreadPoolExecutor(1) as client:
        for mode, finished in (("retract", "length"), ("abort", "abort")):
            answer = begin(client, engine)
            assert engine.post("/pause_generation", {"mode": mode})[0] == 200
            if mode == "retract":
                assert active(engine) == (0, 1) and not answer.done()
                assert engine.get("/health_generate")[0] == 200 and engine.get("/is_paused")[1] == {"is_paused": True}
                assert engine.host.order(msg.Pause(True, 60.0), msg.Paused).error == ""
                assert engine.host.order(msg.ResumeEngine(), msg.EngineResumeReport).seconds > 0
                time.sleep(0.3)
                assert not answer.done(), "the end of a write does not end the caller's pause"
                assert engine.post("/continue_generation", {})[0] == 200
            status, told = answer.result(60)
            assert status == 200 and told["meta_info"]["finish_reason"]["type"] == finished, told
            assert (told["meta_info"]["completion_tokens"] == 400) == (mode == "retract")
            assert engine.post("/continue_generation", {})[0] == 200
        answer = begin(client, engine)
        assert engine.post("/abort_requests", {})[1] == {"status": "aborted", "aborted": 1}
        assert answer.result(60)[1]["meta_info"]["finish_reason"]["type"] == "abort"
    assert engine.post("/reset_prefix_cache", {})[1] == {"success": True}


def test_each_token_of_an_answer_has_the_version_that_sampled_it(engine: Engine) -> None:
    """New weights come in the middle of an answer of one prompt and of three."""
    assert not engine.host.refresh(5).error
    many = {"input_ids": [[5, 6, 7]] * 3, "sampling_params": LONG["sampling_params"]}
    with ThreadPoolExecutor(2) as client:
        answers = [client.submit(engine.post, "/generate", body) for body in (LONG, many)]
        while active(engine) != (2, 0):
            time.sleep(0.005)
        time.sleep(0.2)
        assert engine.host.order(msg.Pause(True, 60.0), msg.Paused).error == ""
        assert not engine.host.refresh(6).error
        engine.host.order(msg.ResumeEngine(), msg.EngineResumeReport)
        (_, one), (_, three) = (answer.result(120) for answer in answers)
    for meta in (each["meta_info"] for each in (one, *three)):
        first, last = meta["weight_versions"]
        assert (first["version"], first["start"], last["version"], last["end"]) == ("5", 0, "6", 400)
        assert 0 < first["end"] == last["start"] < 400 and meta["weight_version"] == "5-6"
    _, told = engine.post("/generate", {"prompt": {"prompt_token_ids": [5, 6]}, "max_tokens": 3, "n": 2})
    assert told["weight_versions"] == [[{"version": "6", "start": 0, "end": len(ids)}] for ids in told["token_ids"]]
    assert told["weight_version"] == "6"


def test_vllms_own_routes_of_the_same_names_are_replaced(engine: Engine) -> None:
    """With the variable that opens them, which a daemon never sets."""
    info = engine.get("/server_info")[1]
    assert info["model_config"]["dtype"] == "torch.bfloat16" and info["vllm_env"] == {}
    assert info["logprobs_mode"] == "raw_logprobs" and info["context_length"] == 512
    status, told = engine.post("/weight_checker", {"action": "reset"})
    assert status == 400 and "zero" in told["error"]["message"]
    assert engine.post("/update_weights", {"update_info": {"names": []}})[0] == 400
    assert engine.get("/model_info")[1]["served_model_name"] == "tiny"


def test_none_of_them_is_at_the_address_for_users(public: Engine) -> None:
    """Neither ours nor vLLM's own, which are open here."""
    for path in ("/update_weights", "/init_weight_transfer_engine", "/pause", "/resume", "/weight_checker"):
        assert public.post(path, {})[0] == 404, path
    for path in ("/server_info", "/is_paused", "/get_world_size", "/model_info"):
        assert public.get(path)[0] == 404, path
    assert public.post("/generate", {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 2}})[0] == 200
