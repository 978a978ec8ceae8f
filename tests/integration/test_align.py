"""Alignment in the real daemon: sharing that is broken on purpose halts training with the right name; serving goes on."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, chat_line
from support.invariants import journal_of

from apollod.core import events as ev

pytestmark = pytest.mark.engine

PRIVATE = "model.layers.1.mlp.down_proj.weight"
BREAK = f"""
import sys
if sys.orig_argv[1:3] == ["-m", "apollod.trainer"]:
    import apollod.trainer.guards
    apollod.trainer.guards.guard_torchvision()
    import apollod.trainer.loop as loop
    attach = loop.attach
    def private_copy(*given):
        attached = attach(*given)
        parameter = dict(attached.trainable)[{PRIVATE!r}]
        parameter.data = parameter.data.roll(1, 0)
        return attached
    loop.attach = private_copy
"""


@pytest.fixture
def daemon(tiny_model: Path, tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path, tiny_model)
    made.config.write_text(made.config.read_text().replace("[trainer]\n", "[trainer]\nalign_every = 2\n"))
    try:
        yield made
    finally:
        if made.alive():
            made.stop()


def path(directory: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])}


def test_a_private_copy_in_the_trainer_halts_before_the_first_step(daemon: Daemon, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BREAK)
    daemon.start(path(site))
    daemon.drop("learn.jsonl", chat_line("a?", "b."))
    status = daemon.wait(lambda s: "weights not shared" in s["error"], "the halt")
    assert f"look at {PRIVATE} (the trainer holds other values);" in status["error"]
    assert status["state"] == "degraded" and status["step"] == 0 and not status["weights"]["alignment"]["aligned"]
    assert daemon.post("/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 2})[0] == 200
    kinds = [e.kind for e in journal_of(daemon)]
    assert "step.started" not in kinds and kinds.index("alignment.measured") < kinds.index("training.halted")


SKIPS = """
from apollod.engine.worker import WorkerExtension
class Forgetful(WorkerExtension):
    def apollod_rederive(self):
        return 0
"""


def test_a_rederive_that_is_skipped_halts_with_the_derived_tensors(daemon: Daemon, tmp_path: Path) -> None:
    """At attach all is well; then steps write convolutions that the engine goes on multiplying with as they were."""
    (tmp_path / "forgetful.py").write_text(SKIPS)
    text = daemon.config.read_text().replace("lr = 1e-3", "lr = 5e-2")
    daemon.config.write_text(text.replace('args = [', 'args = ["--worker-extension-cls", "forgetful.Forgetful", '))
    daemon.start(path(tmp_path))
    daemon.wait(lambda s: s["weights"]["alignment"] and s["state"] == "serving", "the first comparison")
    assert daemon.status()["weights"]["alignment"]["aligned"]
    daemon.drop("learn.jsonl", *[chat_line(f"what is {i}?", f"it is {i}.") for i in range(6)])
    status = daemon.wait(lambda s: s["error"], "the halt")
    assert "weights not shared" in status["error"] and status["step"] == 2, status["error"]
    named = re.findall(r"(\S+) \(([^)]+)\)", status["error"].partition("look at")[2])
    assert named and all("conv1d" in name and what == "the engine multiplies with an old packed copy" for name, what in named)
    assert status["queue"]["pending"] == 4
    assert daemon.post("/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 2})[0] == 200
    measured = [e for e in journal_of(daemon) if isinstance(e, ev.AlignmentMeasured)]
    assert [(e.step, e.aligned) for e in measured] == [(0, True), (2, False)] and measured[0].tokens == 255
    assert measured[0].mean_abs_diff < 0.02 < 0.1 < measured[1].mean_abs_diff
