"""Shows how fast a version of the weights is written for engines elsewhere: bridges `memmap` and `disk`, fingerprints
and digests included, against `safetensors.save_file` with fsync of the same tensors; and how fast `apollod.reader`
reads it. Bridge `lora`, of rank 64, is measured in bytes and seconds beside `disk`, of weights that all changed.

`--model DIR` takes a real model; without it the demo's small one. Each is measured `--times` times in turn; the medians
count.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from apollod.engine.gateway.bridges import Disk, Memmap, Staged
from apollod.engine.gateway.lora import Lora
from apollod.engine.gateway.weights import Weights
from apollod.reader import Reader
from apollod.wire.engine_terms import SendTerms
from benchmarks import report
from benchmarks.daemon import build_model


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-", dir=Path.cwd()) as directory:
        figures = _measure(Path(directory), args.model, args.times)
    ratios = {f"{name}_to_save_file": figures[f"{name}_gb_per_s"] / figures["save_file_gb_per_s"] for name in NAMES}
    ratios |= {f"lora_to_disk_{what}": figures[f"lora_{what}"] / figures[f"disk_{what}"] for what in ("mb", "s")}
    goals = {"memmap_to_save_file": report.goal(ratios["memmap_to_save_file"], 0.7, at_most=False)}
    report.report("sending", figures, ratios, goals, torch.get_num_threads(), [], args.json)


NAMES = ("memmap", "disk")


def _measure(root: Path, source: Path | None, times: int) -> dict[str, float]:
    model = root / "model"
    if source is None:
        build_model(model, "demo")
    else:
        shutil.copytree(source, model)
    tensors = {name: one for file in sorted(model.glob("*.safetensors")) for name, one in load_file(file).items()}
    weights = Weights(model, "memmap")
    weights.load(memoryview(bytearray(weights.manifest.storages[0].bytes)))
    size = sum(one.nbytes for one in tensors.values())
    memmap, disk, reader = Memmap(root / "memmap"), Disk(root / "disk"), Reader(root / "memmap")
    lora = Lora(SendTerms("lora", (), str(root / "lora"), base=str(model)), weights)
    _change(weights)
    seconds, staged = defaultdict[str, list[float]](list), list[Staged]()
    for number in range(times + 1):  # the first one makes files
        for name, work in (
            ("save_file", lambda number=number: _save(tensors, root / f"saved{number % 2}")),
            ("memmap", lambda number=number: memmap.stage(weights, number)),
            ("read", reader.poll),
            ("disk", lambda number=number: disk.stage(weights, number)),
            ("lora", lambda number=number: staged.append(lora.stage(weights, number))),
        ):
            seconds[name].append(_seconds(work))
    taken = {name: statistics.median(each[1:]) for name, each in seconds.items()}
    whole = {name: one for name, one in taken.items() if name != "lora"}
    return {
        "bytes_mb": size / 1e6, **{f"{name}_gb_per_s": size / 1e9 / one for name, one in whole.items()},
        "disk_mb": size / 1e6, "disk_s": taken["disk"], "lora_mb": staged[-1].bytes / 1e6, "lora_s": taken["lora"],
    }  # fmt: skip


def _change(weights: Weights) -> None:
    """Change every tensor a little, by no low rank: the longest work for an adapter."""
    torch.manual_seed(0)
    for name in weights.changing:
        tensor = weights.tensor(name)
        tensor += (0.001 * torch.randn(tensor.shape)).to(tensor.dtype)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _save(tensors: dict[str, torch.Tensor], directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    save_file(tensors, directory / "model.safetensors")
    for path in (directory / "model.safetensors", directory):
        opened = os.open(path, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)


if __name__ == "__main__":
    main()
