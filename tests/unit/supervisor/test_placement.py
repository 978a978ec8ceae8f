"""Environments of the children, and what can be told of the trainer's kernels without it."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest
from support.other_user import NOBODY, needs_root

from apollod.cli.main import main
from apollod.errors import ConfigError
from apollod.supervisor import child_commands
from apollod.supervisor.config import Config, load_config


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
