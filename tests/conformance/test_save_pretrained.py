"""Directories that `save_pretrained` of transformers writes, read by POST /update_weights_from_disk."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.daemon import Daemon

from apollod.trainer.bind import live_fingerprint

pytestmark = pytest.mark.engine


def fingerprint(directory: Path) -> str:
    files = sorted(directory.glob("*.safetensors"))
    found = (
        (name, live_fingerprint.tensor_fingerprint(one)) for file in files for name, one in load_file(file).items()
    )
    return live_fingerprint.format(live_fingerprint.model_fingerprint(found))


def saved(source: Path, to: Path, seed: int, **how: Any) -> Path:
    """A model of this architecture with other weights."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    torch.manual_seed(seed)
    with torch.no_grad():
        for one in model.parameters():
            one.add_((0.01 * torch.randn(one.shape)).to(one.dtype))
    model.save_pretrained(to, **how)
    return to


def update(daemon: Daemon, directory: Path, label: str = "") -> tuple[int, Any]:
    return daemon.post("/update_weights_from_disk", {"model_path": str(directory), "weight_version": label})


def served_bits(daemon: Daemon) -> str:
    return daemon.status()["weights"]["fingerprint"]


@contextmanager
def a_writer(file: Path) -> Iterator[None]:
    """Somebody who writes to a file all the time."""
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            now = time.time_ns()
            os.utime(file, ns=(now, now))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("shard", ["5GB", "400KB"])
def test_what_it_saved_is_served_bit_by_bit(served, shard: str) -> None:
    daemon, place = served
    directory = saved(daemon.model, place / f"of-{shard}", len(shard), max_shard_size=shard)
    files = sorted(directory.glob("*.safetensors"))
    assert (len(files) > 2) == (directory / "model.safetensors.index.json").exists() == (shard == "400KB")
    status, answer = update(daemon, directory, shard)
    assert (status, answer["success"]) == (200, True), answer
    assert served_bits(daemon) == fingerprint(directory)
    assert daemon.get("/model_info")[1]["weight_version"] == shard
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 2}
    assert daemon.post("/v1/completions", body)[0] == 200


def test_what_it_did_not_write_or_is_still_writing_is_refused(served, tmp_path: Path) -> None:
    daemon, place = served
    whole = saved(daemon.model, tmp_path / "whole", 7)
    before = daemon.status()["weights"]
    refused = {
        "link": (linked(whole, place / "link"), "is not below a directory"),
        "file": (linked_file(whole, place / "file"), "model.safetensors is a link"),
        "pickle": (pickled(place / "pickle"), "neither model.safetensors nor"),
        "half": (half(whole, place / "half"), "model.safetensors"),
        "lacking": (lacking(daemon.model, place / "lacking"), "cannot be read"),
        "outside": (whole, "is not below a directory"),
    }
    for name, (directory, words) in refused.items():
        status, answer = update(daemon, directory)
        assert (status, answer["success"]) == (400, False) and words in answer["message"], (name, status, answer)
        assert daemon.status()["weights"] == before, name
    written = place / "written"
    shutil.copytree(whole, written)
    with a_writer(written / "model.safetensors"):
        status, answer = update(daemon, written)
    assert status == 400 and "is being written" in answer["message"], answer
    assert daemon.status()["weights"] == before
    assert update(daemon, written)[0] == 200 and served_bits(daemon) == fingerprint(written)


def linked(whole: Path, to: Path) -> Path:
    """A directory that is a link out of the place."""
    to.symlink_to(whole)
    return to


def linked_file(whole: Path, to: Path) -> Path:
    """A directory whose weights are a link out of the place."""
    shutil.copytree(whole, to, ignore=shutil.ignore_patterns("*.safetensors"))
    (to / "model.safetensors").symlink_to(whole / "model.safetensors")
    return to


def pickled(to: Path) -> Path:
    """Weights as `torch.save` writes them."""
    to.mkdir()
    torch.save({"model.norm.weight": torch.zeros(3)}, to / "pytorch_model.bin")
    return to


def half(whole: Path, to: Path) -> Path:
    """A file of which half is written."""
    shutil.copytree(whole, to)
    file = to / "model.safetensors"
    os.truncate(file, file.stat().st_size // 2)
    return to


def lacking(source: Path, to: Path) -> Path:
    """A directory of which one file is not there yet."""
    saved(source, to, 9, max_shard_size="400KB")
    sorted(to.glob("*.safetensors"))[-1].unlink()
    return to
