"""What every engine has to do, on the stub and on vLLM: whoever passes may be started as the engine.

`APOLLOD_ENGINE_MODULE` names it; tests of journal, recovery and processes run on the stub because of what is shown
here.
"""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.daemon import STUB, VLLM
from support.engine_host import Engine, refused

from apollod.engine import worker
from apollod.engine.load.bits import checkpoint_tensors, equal_bits
from apollod.wire import messages as msg

CAST, LIVE = "model.layers.1.linear_attn.A_log", "lm_head.weight"
GENERATES = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 1}
ENGINES = [STUB, pytest.param(VLLM, marks=pytest.mark.engine)]


@pytest.fixture(scope="module")
def stub(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("s"), tiny_model, module=STUB)
    try:
        yield engine.wait_ready()
    finally:
        engine.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[Engine]:
    """Alive, with the checkpoint's weights before and after."""
    found: Engine = request.getfixturevalue("stub" if request.param == STUB else "vllm")
    yield found
    for name, tensor in checkpoint_tensors(tiny_model):
        found.host.view(found.host.entry(name)).copy_(tensor)
    assert not found.host.refresh(0).error


def derived(engine: Engine) -> str:
    """A tensor that this engine multiplies with a copy of. vLLM's depend on the processor, one is planted; the stub's
    do not."""
    return next(entry.name for entry in engine.host.manifest.tensors if entry.status == "rederive")


def test_the_manifest_names_every_tensor_and_the_memory_holds_it(engine: Engine, tiny_model: Path) -> None:
    manifest = engine.host.manifest
    assert manifest is not None and (manifest.bridge, manifest.model_dir) == ("memfd", str(tiny_model))
    manifest.check()
    stored = dict(checkpoint_tensors(tiny_model))
    assert [entry.name for entry in manifest.tensors] == list(stored)
    for name, tensor in stored.items():
        entry = engine.host.entry(name)
        view = engine.host.view(entry)
        assert equal_bits(view, tensor.to(view.dtype)), name
        assert entry.stored_dtype == str(tensor.dtype).removeprefix("torch.")
    assert [engine.host.entry(name).status for name in (CAST, derived(engine), LIVE)] == ["cast", "rederive", "live"]
    assert engine.host.entry(CAST).dtype == "float32"
    assert engine.host.load_seconds > 0


def test_no_two_tensors_share_a_byte(engine: Engine) -> None:
    manifest = engine.host.manifest
    assert manifest is not None
    spans = sorted((entry.offset, entry.last_byte()) for entry in manifest.tensors)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_both_of_its_connections_come_from_its_own_processes(engine: Engine) -> None:
    assert sorted(hello.role for hello in engine.host.hellos) == ["engine-api", "engine-worker"]
    assert all(hello.pid in engine.group() and hello.protocol == msg.PROTOCOL for hello in engine.host.hellos)
    assert next(h.versions for h in engine.host.hellos if h.role == "engine-worker")


def test_it_says_that_it_lives_and_what_it_serves(engine: Engine) -> None:
    assert engine.get("/health")[0] == 200
    assert engine.get("/v1/models")[1]["data"][0]["id"] == "tiny"


def test_a_refresh_derives_again_and_labels_what_comes_after(engine: Engine) -> None:
    derived = sum(entry.status == "rederive" for entry in engine.host.manifest.tensors)
    for version, forget in ((41, "reset"), (42, "salt"), (43, "keep")):
        answer = engine.host.refresh(version, forget)
        assert (answer.version, answer.rederived, answer.error) == (version, derived, "")
        assert generate(engine) == str(version)


def test_a_comparison_names_what_differs_and_why(engine: Engine) -> None:
    def compared(digests: dict[str, str]) -> dict[str, str]:
        answer = engine.host.order(msg.CompareWeights(7, 0, digests), msg.Compared)
        assert (answer.step, answer.error) == (7, "")
        return answer.differing

    same, packed = engine.host.digests(), derived(engine)
    assert compared(same) == {}
    other = {
        name: "0" * 16 if name in (LIVE, CAST) else digest
        for name, digest in same.items()
        if name != "model.norm.weight"
    }
    assert compared(other) == {LIVE: worker.OTHER, CAST: worker.OTHER, "model.norm.weight": worker.MISSING}
    for name in (LIVE, packed):
        view = engine.host.view(engine.host.entry(name))
        view.copy_(view.roll(1, 0))
    assert compared(engine.host.digests()) == {packed: worker.STALE}
    assert compared(same) == {packed: worker.STALE, LIVE: worker.OTHER}
    assert engine.host.refresh(8).error == ""
    assert compared(engine.host.digests()) == {}


def test_a_pause_holds_requests_until_it_is_ended(engine: Engine) -> None:
    engine.host.refresh(1)
    assert engine.host.order(msg.Pause(clear=False, at_most_s=60), msg.Paused).error == ""
    waiting = threading.Thread(target=generate, args=(engine,))
    waiting.start()
    waiting.join(1.0)
    assert waiting.is_alive()
    resumed = engine.host.order(msg.ResumeEngine(), msg.EngineResumeReport)
    assert 0.9 < resumed.seconds < 30 and not resumed.expired and resumed.active == 1
    waiting.join(30)
    assert not waiting.is_alive()
    assert engine.host.order(msg.ResumeEngine(), msg.EngineResumeReport) == msg.EngineResumeReport(0.0)


def test_a_pause_ends_by_itself_and_says_so(engine: Engine) -> None:
    engine.host.refresh(1)
    assert engine.host.order(msg.Pause(clear=True, at_most_s=0.5), msg.Paused).error == ""
    began = time.monotonic()
    generate(engine)
    assert 0.3 < time.monotonic() - began < 10
    told = engine.host.told(msg.EngineResumeReport, 10)
    assert told.expired and 0.4 < told.seconds < 10
    assert engine.host.order(msg.ResumeEngine(), msg.EngineResumeReport) == msg.EngineResumeReport(0.0)


def generate(engine: Engine) -> str:
    """Ask for a token, which the stub has none of; the version that the answer names."""
    request = urllib.request.Request(
        engine.url("/v1/completions"), json.dumps(GENERATES).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.headers["X-Apollod-Weights-Version"])
    except urllib.error.HTTPError as error:
        assert error.code == 501, error.read()
        return str(error.headers["X-Apollod-Weights-Version"])


# --- the stub alone: with vLLM these cost a start each, see test_engine_share
# --------------------------------------------


def test_the_stub_refuses_a_quantized_model(tiny_model: Path, tmp_path: Path) -> None:
    quantized = tmp_path / "quantized"
    quantized.mkdir()
    for file in tiny_model.iterdir():
        (quantized / file.name).symlink_to(file)
    config = json.loads((tiny_model / "config.json").read_text())
    (quantized / "config.json").unlink()
    (quantized / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    refusal = refused(Engine(tmp_path, quantized, module=STUB))
    assert "quantized (fp8)" in refusal.reason and "unquantized" in refusal.hint


def test_the_stub_has_one_tensor_for_tied_weights_and_ends_when_it_is_told(tiny_model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = tmp_path / "tied"
    model.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (model / name).write_bytes((tiny_model / name).read_bytes())
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    tensors = load_file(tiny_model / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    engine = Engine(tmp_path, model, module=STUB)
    try:
        host = engine.wait_ready().host
        assert host.manifest is not None and host.manifest.tied == {"lm_head.weight": "model.embed_tokens.weight"}
        assert host.entry("lm_head.weight").offset == host.entry("model.embed_tokens.weight").offset
        assert torch.equal(host.view(host.entry("lm_head.weight")), tensors["lm_head.weight"])
        engine.process.terminate()
        assert engine.process.wait(5) == 0 and engine.group() == []
    finally:
        engine.close()


def test_the_stub_lets_requests_go_on_when_its_supervisor_is_gone(tiny_model: Path, tmp_path: Path) -> None:
    engine = Engine(tmp_path, tiny_model, module=STUB)
    try:
        engine.wait_ready().host.refresh(1)
        assert engine.host.order(msg.Pause(clear=False, at_most_s=600), msg.Paused).error == ""
        waiting = threading.Thread(target=generate, args=(engine,))
        waiting.start()
        engine.host.hang_up()
        waiting.join(10)
        assert not waiting.is_alive()
    finally:
        engine.close()


def test_the_stub_imports_nothing_that_takes_time() -> None:
    """It is what makes a daemon in a test come up in a second."""
    heavy = ("torch", "numpy", "transformers", "vllm", "pytest")
    code = f"import sys, {STUB}; sys.exit(' '.join(name for name in {heavy} if name in sys.modules) or 0)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
