"""What a benchmark's JSON says of the machine."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import report


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    report.report("x", {}, {}, {}, threads=1, as_json=True)
    return json.loads(capsys.readouterr().out)["environment"]["device"]


def test_without_a_gpu_it_names_the_processor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "has_gpu", lambda: False)
    device = said(capsys)
    assert device["kind"] == "cpu" and device["name"] == report._cpu() and device["name"]


def test_a_gpu_is_named_with_its_driver_and_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "version").write_text("580.65.06\n")
    monkeypatch.setattr(report, "_DRIVER", tmp_path / "version")
    monkeypatch.setattr(report, "has_gpu", lambda: True)
    monkeypatch.setattr(
        torch, "cuda", SimpleNamespace(is_available=lambda: True, get_device_name=lambda index: "NVIDIA H200")
    )
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert said(capsys) == {"kind": "gpu", "name": "NVIDIA H200", "driver": "580.65.06", "cuda": "13.0"}


def test_a_gpu_that_torch_does_not_see_is_not_what_computes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "has_gpu", lambda: True)
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(is_available=lambda: False))
    assert "sees none" in said(capsys)["why_not_gpu"]
