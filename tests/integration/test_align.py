"""Alignment in the real daemon: sharing that is broken on purpose halts training with the right name; serving goes
on."""

import json
import os
import re
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from support.daemon import VLLM, Daemon, chat_line, free_port
from support.invariants import journal_of
from support.planted import PATH, PLANTED

from apollod.core import events as ev
from apollod.engine.http.versions import Served
from apollod.engine.http.weights.control_terms import ControlTerms
from apollod.engine.http.weights.route_table import weight_routes
from apollod.engine.http.weights.trainer_desk import Desk

pytestmark = pytest.mark.engine

PRIVATE = "model.layers.1.mlp.down_proj.weight"
BREAK = f"""
import os, sys
if sys.orig_argv[1:3] == ["-m", "apollod.trainer"] and os.path.exists(BROKEN):
    from apollod import foreign_wheels
    foreign_wheels.guard()
    import apollod.trainer.message_loop as loop
    attach = loop.attach
    def private_copy(*given):
        attached = attach(*given)
        parameter = dict(attached.trainable)[{PRIVATE!r}]
        parameter.data = parameter.data.roll(1, 0)
        return attached
    loop.attach = private_copy
"""
JUDGED = {
    # vLLM's, of which none changes weights: requests of users, text and tokens, and what monitors ask
    "/v1/chat/completions", "/v1/chat/completions/batch", "/v1/completions", "/v1/messages",
    "/v1/messages/count_tokens", "/v1/models", "/v1/responses", "/v1/responses/{response_id}",
    "/v1/responses/{response_id}/cancel", "/v1/systemone", "/generative_scoring", "/invocations", "/tokenize",
    "/detokenize", "/health", "/ping", "/load", "/metrics", "/version", "/kv_event_sources", "/is_scaling_elastic_ep",
    "/scale_elastic_ep",  # answers with an error where ranks are not in Ray
    # ours
    "/train", "/train/status", "/checkpoint", "/feedback", "/feedback/{response}", "/lessons", "/lessons/{lesson}",
    "/apollod/status", "/apollod/quality", "/apollod/users/next", "/generate", "/score",
}  # fmt: skip
HIDDEN = {
    # not in vLLM's schema: its own documentation, text to tokens and back, generation by tokens, aborts of that
    "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/v1/chat/completions/derender",
    "/v1/chat/completions/render", "/v1/completions/derender", "/v1/completions/render", "/v1/messages/render",
    "/v1/responses/render", "/inference/v1/abort_requests", "/inference/v1/generate",
    "/feedback/{response:path}",  # ours, as the schema does not write it
}  # fmt: skip
SKIPS = """
from support.planted_copy import Extension
class Forgetful(Extension):
    def apollod_rederive(self):
        return 0
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, a new trainer takes a private copy of one parameter."""
    return tmp_path_factory.mktemp("broken") / "yes"


@pytest.fixture(scope="module")
def daemon(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory, broken: Path) -> Iterator[Daemon]:
    """vLLM with a worker that never derives again, and a trainer with a private copy. Its tests run in order."""
    root, site = tmp_path_factory.mktemp("align"), tmp_path_factory.mktemp("site")
    broken.touch()
    (site / "sitecustomize.py").write_text(f"BROKEN = {str(broken)!r}\n{BREAK}")
    (site / "forgetful.py").write_text(SKIPS)
    made = Daemon(root, tiny_model, f'[control]\nenabled = true\nlisten = "127.0.0.1:{free_port()}"\n', engine=VLLM)
    text = (
        made.config.read_text().replace("[trainer]\n", "[trainer]\nalign_every = 2\n").replace("lr = 1e-3", "lr = 5e-2")
    )
    made.config.write_text(text.replace("args = [", 'args = ["--worker-extension-cls", "forgetful.Forgetful", '))
    made.start({"PYTHONPATH": os.pathsep.join([str(site), PATH["PYTHONPATH"]]), "VLLM_SERVER_DEV_MODE": "1"})
    try:
        yield made
    finally:
        made.end()


def test_a_private_copy_in_the_trainer_halts_before_the_first_step(daemon: Daemon) -> None:
    daemon.wait(lambda s: "weights not shared" in s["error"], "the halt")
    daemon.drop("learn.jsonl", *[chat_line(f"what is {i}?", f"it is {i}.") for i in range(6)])
    status = daemon.wait(lambda s: s["queue"]["pending"] == 6, "the examples")
    assert f"look at {PRIVATE} (the trainer holds other values);" in status["error"]
    assert status["state"] == "degraded" and status["step"] == 0 and status["weights"]["alignment"]["same_at"] is None
    assert daemon.post("/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 2})[0] == 200
    kinds = [e.kind for e in journal_of(daemon)]
    assert "step.started" not in kinds and kinds.index("alignment.measured") < kinds.index("training.halted")


def test_no_route_is_open_that_nobody_has_judged(daemon: Daemon) -> None:
    """Although the daemon was started with the variable that opens vLLM's routes for weights. At the engine's port, and
    at that for trainers, which has those of outside trainers besides."""
    with urllib.request.urlopen(f"{daemon.url}/openapi.json") as answer:
        open_ones = set(json.load(answer)["paths"])
    assert open_ones - JUDGED == set(), "vLLM opened more: see whether they touch weights, and whom they ask for a key"
    for path in ("/collective_rpc", "/sleep", "/init_weight_transfer_engine", "/weight_checker", "/reset_prefix_cache"):
        assert daemon.post(path, {})[0] == 404, path
    listen = tomllib.loads(daemon.config.read_text())["control"]["listen"]
    routes = re.findall(r"Route: (\S+), Methods: (.+)", (daemon.root / "state" / "log" / "engine.log").read_text())
    logged = {(one, path) for path, methods in routes for one in methods.split(", ")}
    weights = {(method, path) for method, path, _ in weight_routes(Desk(ControlTerms(), None, Served()))}
    assert weights <= logged and {path for _, path in logged - weights} - open_ones - HIDDEN == set()
    for method, path in weights:
        answers = [requests.request(method, f"{url}{path}", data=b"no", headers={"Content-Type": "text/plain"})
                   for url in (daemon.url, f"http://{listen}")]  # fmt: skip
        assert answers[0].status_code == 404 and (answers[1].status_code == 415) == (method == "POST"), (method, path)
        assert answers[1].status_code not in (404, 405), (method, path)
    assert requests.get(f"http://{listen}/v1/models").json()["data"][0]["id"] == "tiny"


def test_a_rederive_that_is_skipped_halts_with_the_derived_tensors(daemon: Daemon, broken: Path) -> None:
    """With another trainer all is well at attach; then steps write weights of which the engine goes on multiplying with
    copies as they were. These steps take less than an answer of the engine: they begin beside the comparison, and the
    difference is looked at again at rest."""
    broken.unlink()
    daemon.ctl("resume")
    status = daemon.wait(lambda s: s["error"] and s["step"], "the halt")
    assert "weights not shared" in status["error"] and 0 < status["step"] < 6, status["error"]
    named = dict(re.findall(r"(\S+) \(([^)]+)\)", status["error"].partition("look at")[2]))
    assert len(named) == status["weights"]["rederive"] and PLANTED in named, named
    assert set(named.values()) == {"the engine computes with an old copy"}
    assert status["queue"]["pending"] == 6 - status["step"]
    assert daemon.post("/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 2})[0] == 200
    measured = [e for e in journal_of(daemon) if isinstance(e, ev.AlignmentMeasured)]
    assert measured[0].step == 0 and measured[0].compares and measured[0].tokens == 255
    assert measured[-1].step == status["step"] and measured[-1].compares
    compared = [e for e in journal_of(daemon) if isinstance(e, ev.AlignmentCompared)]
    assert (compared[0].differing, compared[-1].differing) == (1, len(named)), "the private copy, then the old ones"
