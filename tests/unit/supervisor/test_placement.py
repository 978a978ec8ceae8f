"""Environments and arguments of the children, and what can be told of memory and kernels before they start."""

import json
import os
import shutil
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from support.other_user import NOBODY, needs_root
from support.real_shapes import H200, QWEN_27B

from apollod.adapters.system import hardware
from apollod.cli.main import main
from apollod.errors import ConfigError, DoesNotFit
from apollod.model.memory_plan import MemoryPlan
from apollod.supervisor import child_commands, memory_budget
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.executor import child_effects


def config(root: Path, *more: str) -> Config:
    return load_config(None, [f"model.path={root / 'model'}", f"state.dir={root / 'state'}", *more], {})


def test_tritons_cache_lies_in_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service has a home that it cannot write to."""
    monkeypatch.setattr(child_commands, "has_gpu", lambda: True)
    (tmp_path / "state").mkdir()
    both = (child_commands.trainer_environment, child_commands.engine_environment)
    for environment in both:
        assert environment(config(tmp_path))["TRITON_CACHE_DIR"] == str(tmp_path / "state/cache/triton")
    monkeypatch.setattr(child_commands, "has_gpu", lambda: False)
    assert "TRITON_CACHE_DIR" not in child_commands.trainer_environment(config(tmp_path))


def test_a_gpu_without_a_compiler_samples_without_flashinfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would be compiled at the first start, and end it."""
    monkeypatch.setattr(child_commands, "has_gpu", lambda: True)
    monkeypatch.setattr(child_commands, "CUDA_HOME", str(tmp_path / "nowhere"))
    wanted = child_commands.sampler_environment
    assert wanted({"PATH": str(tmp_path)}) == {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
    assert wanted({"PATH": str(tmp_path), "VLLM_USE_FLASHINFER_SAMPLER": "1"}) == {}, "as the person said"
    (compiler := tmp_path / "bin" / "nvcc").parent.mkdir()
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    for found in ({"PATH": str(compiler.parent)}, {"PATH": "", "CUDA_HOME": str(tmp_path)}):
        assert wanted(found) == {}, "vLLM decides"
    monkeypatch.setattr(child_commands, "has_gpu", lambda: False)
    assert wanted({"PATH": ""}) == {}


@needs_root
def test_where_the_home_cannot_be_written_caches_lie_with_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under contrib/systemd (ProtectHome), with its CacheDirectory or without."""
    monkeypatch.setattr(child_commands, "has_gpu", lambda: True)
    (home := tmp_path / "home").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    found = partial(child_commands.cache_environment, config(tmp_path))
    ours = tmp_path / "state/cache"
    assert found({"HOME": str(home)}) == {"TRITON_CACHE_DIR": str(ours / "triton")}, "the home can be written"
    expected = {"TRITON_CACHE_DIR": "triton", "VLLM_CACHE_ROOT": "vllm", "FLASHINFER_WORKSPACE_BASE": "flashinfer"}
    os.seteuid(NOBODY)
    try:
        assert found({"HOME": str(home)}) == {name: str(ours / place) for name, place in expected.items()}
        assert found({"HOME": "/nonexistent"}).keys() == expected.keys()
        assert "VLLM_CACHE_ROOT" not in found({"HOME": str(home), "VLLM_CACHE_ROOT": "/mine"})
    finally:
        os.seteuid(0)
    service = {"HOME": str(home), "CACHE_DIRECTORY": "/var/cache/apollod"}
    assert found(service) == {name: f"/var/cache/apollod/{place}" for name, place in expected.items()}
    assert "TRITON_CACHE_DIR" not in found(service | {"TRITON_CACHE_DIR": "/mine"})


def test_the_service_has_a_cache_directory() -> None:
    unit = (Path(__file__).parents[3] / "contrib/systemd/apollod.service").read_text().splitlines()
    assert {"ProtectHome=read-only", "CacheDirectory=apollod"} <= set(unit)


@pytest.mark.parametrize(
    ("kernels", "gpu", "installed", "word"),
    [("auto", False, False, ""), ("eager", False, False, ""), ("triton", True, True, ""),
    ("triton", False, True, "needs an NVIDIA GPU"),
     ("triton", True, False, "pip install triton")],
)  # fmt: skip
def test_kernels_that_cannot_run_are_found_before_the_start(
    kernels: str, gpu: bool, installed: bool, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_commands, "has_gpu", lambda: gpu)
    monkeypatch.setattr(child_commands, "find_spec", lambda name: sys if installed else None)
    found = child_commands.kernels_refused(config(tmp_path, f"trainer.kernels={kernels}"))
    assert word in found and bool(found) == bool(word)


def test_config_check_says_so(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("APOLLOD_DEVICE", "cpu")
    check = ["config", "check", "--set", f"model.path={tiny_model}", "--set", f"state.dir={tmp_path}"]
    assert main(check) == 0
    assert main([*check, "--set", "trainer.kernels=triton"]) == 1
    assert 'set [trainer] kernels = "auto"' in capsys.readouterr().err


def test_other_optimizers_have_no_triton_kernels(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="adamw has none"):
        config(tmp_path, "trainer.kernels=triton", "trainer.optimizer=adamw")


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """The 27B model without its weights."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(QWEN_27B))
    return tmp_path


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An H200, as the driver describes it."""
    monkeypatch.setattr(child_commands, "has_gpu", lambda: True)
    monkeypatch.setattr(memory_budget, "has_gpu", lambda: True)
    monkeypatch.setattr(hardware, "device_bytes", lambda: H200)


def command(root: Path, *more: str) -> tuple[list[str], MemoryPlan | None]:
    asked = config(root, *more)
    plan = memory_budget.fitted(asked, root / "model")
    return child_commands.engine_command(asked, "m", plan.kv if plan else None), plan


def kv_cache(arguments: list[str]) -> list[str]:
    return [after for name, after in pairwise(arguments) if name == "--kv-cache-memory-bytes"]


def test_the_engine_leaves_a_gpu_to_the_trainer(target: Path, gpu: None) -> None:
    arguments, plan = command(target)
    assert plan is not None and plan.gradient_checkpointing and not plan.missing
    assert kv_cache(arguments) == [str(plan.kv)] and 50e9 < plan.kv < 90e9
    assert kv_cache(command(target, "engine.kv_cache_mib=4096")[0]) == [str(4 << 30)]


@pytest.mark.parametrize("own", [["--gpu-memory-utilization", "0.5"], ["--kv-cache-memory-bytes=3G"]])
def test_who_sizes_the_cache_is_not_told_another_size(target: Path, gpu: None, own: list[str]) -> None:
    arguments, plan = command(target, f"engine.args={json.dumps(own)}")
    assert not kv_cache(arguments) and arguments[-len(own) :] == own
    assert plan is not None and plan.kv_given and plan.gradient_checkpointing


def test_a_gpu_of_which_nobody_says_how_large_it_is_is_left_to_vllm(
    target: Path, gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "device_bytes", lambda: None)
    arguments, plan = command(target)
    assert plan is None and not kv_cache(arguments)
    assert kv_cache(command(target, "engine.kv_cache_mib=4096")[0]) == [str(4 << 30)]


def test_a_machine_without_a_gpu_has_the_cache_it_always_had(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "host_free_bytes", lambda: 16 << 30)
    asked = config(tmp_path, f"model.path={tiny_model}")
    plan = memory_budget.fitted(asked, tiny_model)
    assert plan is not None and not plan.gradient_checkpointing and plan.kv == 512 << 20
    assert kv_cache(child_commands.engine_command(asked, "m", plan.kv)) == [str(512 << 20)]
    assert memory_budget.ring(asked, plan).bytes >= 1 << 30


def test_an_engine_beside_which_training_would_not_fit_is_not_started(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "host_bytes", lambda: 2_500_000_000)
    asked = config(tmp_path, "engine.port=1")
    asked.state_dir.mkdir()
    shutil.copytree(tiny_model, tmp_path / "model")
    with pytest.raises(DoesNotFit, match=r"this machine of 2\.5 GB, 0\.\d GB are missing"):
        anyio.run(child_effects._make_ready, asked, str(tmp_path / "model"))


def test_config_check_says_what_does_not_fit_in_the_same_words(
    target: Path, gpu: None, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = config(target, "trainer.gradient_checkpointing=false")
    found = memory_budget.refusal(asked)
    assert found is not None and "set [trainer] gradient_checkpointing = true" in found.hint
    memory = ["config", "check", "--memory", "--set", f"model.path={target / 'model'}"]
    assert main([*memory, "--set", "trainer.gradient_checkpointing=false"]) == 1
    assert found.line() in capsys.readouterr().out
    assert main(memory) == 0


def test_a_replay_computes_layers_again_where_this_machine_is_too_small(
    target: Path, gpu: None, tiny_model: Path
) -> None:
    """Whatever the machine had that made the steps: it changes no bit."""
    settings = config(target).optimizer()
    bound = settings.max_tokens
    assert memory_budget.recomputes(target / "model", settings, 1, bound, gpu=True)
    assert not memory_budget.recomputes(tiny_model, settings, 1, bound, gpu=True)
    assert not memory_budget.recomputes(tiny_model, settings, 4, bound, gpu=False)
    assert not memory_budget.recomputes(target, settings, 1, bound, gpu=True), "no model, nothing is known"
