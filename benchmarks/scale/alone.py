"""Measures a training step and its parts against forward and backward alone, without daemon and engine.

Three processes take turns on one model and the same tokens: a plain Hugging Face model's forward and backward pass (its
gradients whole, and dropped), the trainer's step, and that step with the ring for undoing it. Shares are of the last
one, which the daemon uses.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.scale.progress import say
from benchmarks.step_child import WITH_RING, Variant

PLAIN, OURS = "forward_backward", "apollod"
MEASURED = (PLAIN, OURS, WITH_RING)
EXACT = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""freed memory is returned at once, and no longer counted"""


def step_figures(model: Path, tokens: int, rounds: int, threads: int) -> dict[str, float]:
    """Seconds of a step and its parts, and their shares of it (`..._share`): medians over `rounds`, all of them in each
    round; `cpu_...`: CPU time, which a busy machine disturbs less."""
    say(f"alone: {len(MEASURED)} processes with a model each")
    children = {name: Variant(name, model, tokens, warm=1, threads=threads) for name in MEASURED}
    elapsed: dict[str, list[float]] = {name: [] for name in MEASURED}
    cpu: dict[str, list[float]] = {name: [] for name in MEASURED}
    fingerprint: list[float] = []
    for number in range(rounds):
        for name, child in children.items():
            found = child.times(1)
            elapsed[name] += found["seconds"]
            cpu[name] += found["cpu_seconds"]
        fingerprint.append(children[OURS].facts()["fingerprint_s"])
        say(f"alone: round {number + 1} of {rounds}: " + ", ".join(f"{n} {elapsed[n][-1]:.2f} s" for n in MEASURED))
    for child in children.values():
        child.end()
    figures = {f"alone_{name}_s": report.median(elapsed[name]) for name in MEASURED}
    figures |= {f"alone_{name}_cpu_s": report.median(cpu[name]) for name in MEASURED}
    figures["fingerprint_s"] = report.median(fingerprint)
    for prefix, times in (("", elapsed), ("cpu_", cpu)):
        whole = times[WITH_RING]
        figures[f"{prefix}beyond_share"] = _share([w - p for w, p in zip(whole, times[PLAIN], strict=True)], whole)
        figures[f"{prefix}undo_share"] = _share([w - o for w, o in zip(whole, times[OURS], strict=True)], whole)
    figures["fingerprint_share"] = _share(fingerprint, elapsed[WITH_RING])
    return figures


def _share(part: Sequence[float], whole: Sequence[float]) -> float:
    return report.median([a / b for a, b in zip(part, whole, strict=True)])


def memory_figures(model: Path, lengths: Sequence[int], threads: int) -> dict[str, float]:
    """For each length in tokens, every one learned: the peak of a step above the level before it, and the prediction of
    `config check --memory` (`..._told`), optimizer state included in both."""
    say("memory: one process")
    child = Variant(OURS, model, min(lengths), warm=1, threads=threads, env=EXACT)
    state = child.facts()["state_bytes"]
    figures: dict[str, float] = {"state_bytes": state}
    for tokens in lengths:
        told, peak = memory_told(model, tokens), child.memory(tokens, tokens - 1)["peak_bytes"]
        figures |= {f"training_{tokens}_bytes": state + peak, f"training_{tokens}_told_bytes": told["training_bytes"]}
        figures |= {"state_told_bytes": told["state_bytes"], "weights_told_bytes": told["weights_bytes"]}
        say(f"memory: {tokens} tokens {(state + peak) / 1e9:.3f} GB, told {told['training_bytes'] / 1e9:.3f}")
    child.end()
    return figures


def memory_told(model: Path, tokens: int) -> dict[str, Any]:
    """The prediction of `apollod config check --memory`."""
    command = [sys.executable, "-m", "apollod", "config", "check", "--memory", "--json"]
    command += ["--set", f"model.path={model}", "--set", f"trainer.max_tokens={tokens}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))
