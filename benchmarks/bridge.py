"""Shows how fast an outside trainer's weights reach a running engine: by gloo, through shared memory (`tensor`) and
from a directory, against a plain copy of the same bytes in memory and against `safetensors.save_file` with fsync.

`--model DIR` takes a real model, a copy of it; without it the demo's small one. A user asks all the time. Each way is
measured `--times` times, the medians count; every update is of other weights. Seconds held: from the pause of
generation before the write to its end, as `engine.resumed` says.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from apollod.sender import SEGMENT, Sender
from apollod.testing.daemon import Daemon, config_of, free_port
from apollod.wire import messages as msg
from benchmarks import report
from benchmarks.daemon import build_model

EMPTY = 20
"""updates of no tensors"""
CHUNK = 64 << 20


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        figures = _measure(Path(directory), args.model, args.times)
    names = ("gloo", "tensor", "directory", "save_file")
    ratios = {f"{name}_to_copy": figures[f"{name}_gb_per_s"] / figures["copy_gb_per_s"] for name in names}
    ratios["gloo_to_save_file"] = figures["gloo_gb_per_s"] / figures["save_file_gb_per_s"]
    goals = {
        "gloo_to_copy": report.goal(ratios["gloo_to_copy"], 0.5, at_most=False),
        "tensor_to_copy": report.goal(ratios["tensor_to_copy"], 0.5, at_most=False),
        "empty_ms": report.goal(figures["empty_ms"], 20.0, at_most=True),
        "scratch_to_chunk": report.goal(figures["scratch_mb"] * 1e6 / (1.05 * CHUNK), 1.0, at_most=True),
        "tensor_scratch_to_chunk": report.goal(figures["tensor_scratch_mb"] * 1e6 / (1.05 * CHUNK), 1.0, at_most=True),
    }
    missing = ["vLLM's own reload from disk: its route is closed, since it would allocate the shared weights anew"]
    report.report("bridge", figures, ratios, goals, torch.get_num_threads(), missing, args.json)


def _measure(root: Path, source: Path | None, times: int) -> dict[str, float]:
    model = root / "model"
    if source is None:
        build_model(model, "demo")
    else:
        shutil.copytree(source, model)
    weights = {name: one for file in sorted(model.glob("*.safetensors")) for name, one in load_file(file).items()}
    size = sum(one.nbytes for one in weights.values())
    port, outside = free_port(), root / "outside"
    config = config_of(
        root, model, port, engine='served_name = "bench"\nargs = ["--max-model-len", "1024"]\n',
        control=f'enabled = true\ndirectories = ["{outside}"]\n',
    )  # fmt: skip
    daemon = Daemon(root, config, port)
    try:
        daemon.start()
        daemon.wait_ready()
        user = _User(daemon)
        target = [torch.zeros_like(one) for one in weights.values()]
        copied, by_tensor = list[float](), list[float]()
        with Sender(daemon.url, chunk_bytes=CHUNK, bridge="tensor") as sender:
            sender.send([min(weights.items(), key=lambda one: one[1].nbytes)])  # begins the process that takes
            rest_mb = _resident_mb(daemon)
            sender.send(weights.items())  # warms up
            for number in range(times):
                other = {name: one + one * 2.0 ** -(number + 6) for name, one in weights.items()}
                by_tensor.append(_seconds(lambda other=other: sender.send(other.items())))
                copied.append(_seconds(partial(_copy, target, list(other.values()))))
            taking_mb = _resident_mb(daemon, "VmHWM") - rest_mb
            segment_mb = sum(one.stat().st_size for one in Path("/dev/shm").glob(f"{SEGMENT}*")) / 1e6
        with Sender(daemon.url, chunk_bytes=CHUNK) as sender:
            sender.send(weights.items())  # joins the group and warms up
            idle_mb, gloo, saved, directories = _resident_mb(daemon), list[float](), list[float](), list[float]()
            for number in range(times):
                other = {name: one + one * 2.0 ** -(number + 6) for name, one in weights.items()}
                gloo.append(_seconds(lambda other=other: sender.send(other.items())))
                copied.append(_seconds(partial(_copy, target, list(other.values()))))
                saved.append(_seconds(partial(_save, other, outside / str(number))))
                directories.append(_seconds(lambda number=number: _by_directory(daemon, outside / str(number))))
            peak_mb = _resident_mb(daemon, "VmHWM")
        empty = [_seconds(lambda: _empty(daemon)) for _ in range(EMPTY)]
        held = [float(row[0]) for row in daemon.query(
            "SELECT body ->> '$.seconds' FROM events WHERE kind = 'engine.resumed' ORDER BY seq"
        )]  # fmt: skip
        largest = max(one.nbytes for one in weights.values())
        return {
            "bytes": size, "largest_tensor_mb": largest / 1e6, "gloo_s": report.median(gloo),
            "gloo_gb_per_s": size / 1e9 / report.median(gloo),
            "tensor_s": report.median(by_tensor), "tensor_gb_per_s": size / 1e9 / report.median(by_tensor),
            "tensor_scratch_mb": segment_mb + max(0.0, taking_mb),
            "directory_gb_per_s": size / 1e9 / report.median(directories),
            "save_file_gb_per_s": size / 1e9 / report.median(saved),
            "copy_gb_per_s": size / 1e9 / report.median(copied), "held_s": report.median(held),
            "empty_ms": 1e3 * report.median(empty), "receiver_mb": idle_mb, "scratch_mb": max(0.0, peak_mb - idle_mb),
            "user_answers": user.stop(),
        }  # fmt: skip
    finally:
        daemon.end()


class _User:
    """Asks all the time, in a thread."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._stopped, self._answers = daemon, threading.Event(), 0
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stopped.is_set():
            self._daemon.post("/v1/completions", {"model": "bench", "prompt": "Hello", "max_tokens": 8})
            self._answers += 1

    def stop(self) -> int:
        self._stopped.set()
        self._thread.join()
        return self._answers


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _save(weights: dict[str, torch.Tensor], directory: Path) -> None:
    directory.mkdir(parents=True)
    file = directory / "model.safetensors"
    save_file(weights, file)
    fd = os.open(file, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def _copy(target: list[torch.Tensor], source: list[torch.Tensor]) -> None:
    for into, one in zip(target, source, strict=True):
        into.copy_(one)


def _by_directory(daemon: Daemon, directory: Path) -> None:
    status, body = daemon.post("/update_weights_from_disk", {"model_path": str(directory)})
    if status != 200:
        raise SystemExit(f"the directory was refused: {json.dumps(body)}")


def _empty(daemon: Daemon) -> None:
    daemon.request(msg.UpdateOpenRequest("vllm", "benchmark"))
    daemon.request(msg.UpdateUndoRequest("it has no tensors", "benchmark"))


def _resident_mb(daemon: Daemon, field: str = "VmRSS") -> float:
    """Memory of the process that receives, in megabytes."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if b"apollod.receiver" in (entry / "cmdline").read_bytes():
                lines = (entry / "status").read_text().splitlines()
                return float(next(line for line in lines if line.startswith(field)).split()[1]) * 1024 / 1e6
        except OSError:
            continue
    return 0.0


if __name__ == "__main__":
    main()
