"""A child process that measures one training step: what it holds before, and what it holds at the highest moment.

usage: python -m support.memory_child MODEL_DIR '{"tokens": 64, "rank": 16, "checkpointing": false, "rows": true}'

Prints one JSON object. `MALLOC_MMAP_THRESHOLD_` has to be small, so that what is freed is gone (`measured` sets it).
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent


def measured(model_dir: Path, **options: Any) -> dict[str, Any]:
    """What a child says of a step on this model."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": str(TESTS), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "support.memory_child", str(model_dir), json.dumps(options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def main(model_dir: Path, tokens: int, rank: int, checkpointing: bool = False, rows: bool = True, name: str = "apollo") -> None:
    """Two steps; the second is measured, when every kernel is compiled and every moment has its memory."""
    from apollod.trainer.guards import guard_torchvision

    guard_torchvision()
    import torch
    from support.trainer_host import Memory

    from apollod.trainer import kernels_cpu
    from apollod.trainer.attach import attach
    from apollod.trainer.data import Tokens
    from apollod.trainer.memory import open_memory_file
    from apollod.trainer.optimizers import make_optimizer
    from apollod.trainer.snapshot import Snapshot
    from apollod.trainer.step import be_deterministic, run_step
    from apollod.wire.messages import OptimizerSettings

    torch.set_num_threads(1)
    be_deterministic()
    kernels_cpu.warm_up()
    memory = Memory.of(model_dir)
    attached = attach(memory.manifest, [open_memory_file(memory.manifest.storages[0], memory.fd)], False, checkpointing)
    optimizer = make_optimizer(OptimizerSettings(name, rank=rank), attached.trainable, attached.round_to)
    optimizer.attach()
    if not rows:
        optimizer.takes_rows = lambda parameter: False
    example = Tokens([(7 * i) % 400 for i in range(tokens)], [False] + [True] * (tokens - 1))
    run_step(attached, optimizer, [example], 1, 1e-3)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from here
    before = resident("VmRSS")
    done = run_step(attached, optimizer, [example], 2, 1e-3)
    assert done.applied, done.note
    weights = sum(t.numel() * t.element_size() for t in attached.weights.views.values())
    found = {"peak": resident("VmHWM") - before, "fingerprint": done.fingerprint}
    before, snapshot = resident("RssAnon"), Snapshot(attached.weights, optimizer.state_tensors())
    assert snapshot.copy()
    found["snapshot"] = resident("RssAnon") - before
    json.dump(found | {"state_bytes": optimizer.state_bytes(), "weights_bytes": weights}, sys.stdout)


def resident(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
