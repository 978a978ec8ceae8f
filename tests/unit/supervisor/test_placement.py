"""Environments of the children, and what can be told of the trainer's kernels without it."""

import sys
from pathlib import Path

import pytest

from apollod.cli.main import main
from apollod.errors import ConfigError
from apollod.supervisor import child_commands
from apollod.supervisor.config import Config, load_config


def config(root: Path, *more: str) -> Config:
    return load_config(None, [f"model.path={root / 'model'}", f"state.dir={root / 'state'}", *more], {})


def test_tritons_cache_lies_in_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service has a home that it cannot write to."""
    monkeypatch.setattr(child_commands, "has_gpu", lambda: True)
    assert child_commands.trainer_environment(config(tmp_path))["TRITON_CACHE_DIR"] == str(
        tmp_path / "state" / "triton"
    )
    monkeypatch.setattr(child_commands, "has_gpu", lambda: False)
    assert "TRITON_CACHE_DIR" not in child_commands.trainer_environment(config(tmp_path))


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
