"""Measures the whole daemon at the size of a real model, on CPU.

A random model with the dimensions of Qwen3-0.6B, or with `--kind qwen3.5-0.8b` those of the text model of Qwen3.5-0.8B;
`--layers` makes it smaller for a trial. Parts, each of which `--skip` leaves out:

alone       a step of `--tokens` tokens, half of them learned, against forward and backward of a plain Hugging Face
            model; the shares of fingerprint and undo in it; in processes of their own, in turns, on as many threads as
            the daemon's trainer has
memory      the highest moment of a step, every token learned, against `config check --memory`
daemon      time to ready; PSS of every process, and of the memory file of the weights: one copy; steps without a pause
rollback    one step taken back, and five more right after it, against a plain copy of as many bytes
checkpoint  one of all that changed so far, and one after another step: seconds, and those in which no step could run
recovery    SIGKILL of the trainer in the middle of a step, of the engine, of the supervisor: time until all is as
            before, with steps that are in no checkpoint; memory is compared with SHA-256 before and after

Progress goes to stderr. The daemon's settings are the defaults but for times of checkpoints.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apollod.supervisor.child_commands import core_split
from apollod.supervisor.config import Config
from apollod.supervisor.sections import ModelSection
from benchmarks import report
from benchmarks.scale import models, table
from benchmarks.scale.alone import memory_figures, step_figures
from benchmarks.scale.life import Life
from benchmarks.scale.progress import say

PARTS = ("alone", "memory", "daemon", "rollback", "checkpoint", "recovery")
MEMORY_LENGTHS = (300, 900)
EXAMPLES = 24


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kind", choices=models.KINDS, default=models.KINDS[0])
    parser.add_argument("--layers", type=int, default=0, help="fewer than the model has")
    parser.add_argument("--tokens", type=int, default=300, help="of an example (default 300)")
    parser.add_argument("--rounds", type=int, default=5, help="of the part `alone`, after one to warm up (default 5)")
    parser.add_argument("--skip", action="append", choices=PARTS, default=[], help="may be given more than once")
    parser.add_argument("--checkpoint", default="", help="more lines of that section, such as 'undo_bytes = 0'")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the figures as a table, too")
    parser.add_argument("--dir", help="where the model and the state are made (a disk with some 10 GB)")
    args = parser.parse_args()
    os.environ["APOLLOD_DEVICE"], began = "cpu", time.monotonic()
    threads = len(core_split(Config(ModelSection("")))[1])
    with tempfile.TemporaryDirectory(prefix="apollod-bench-", dir=args.dir) as directory:
        figures, equal = _measure(Path(directory), args, threads)
    figures["whole_run_s"] = time.monotonic() - began
    ratios = _ratios(figures)
    goals = _goals(figures, ratios, equal)
    if args.markdown:
        args.markdown.write_text(table.markdown(figures, ratios, goals), encoding="utf-8")
    report.report("scale", figures, ratios, goals, threads, missing=args.skip, as_json=args.json)


def _measure(root: Path, args: argparse.Namespace, threads: int) -> tuple[dict[str, float], list[bool]]:
    """Figures of all parts; for each recovery, if the memory was unchanged."""
    wanted = set(PARTS) - set(args.skip)
    say(f"making a random {args.kind}")
    command = [sys.executable, "-m", "benchmarks.scale.models", str(root), "--kind", args.kind]
    command += ["--layers", str(args.layers), "--tokens", str(args.tokens), "--examples", str(EXAMPLES)]
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    model = root / "model"
    figures = {"model_bytes": float(sum(file.stat().st_size for file in model.glob("*.safetensors")))}
    if "alone" in wanted:
        figures |= step_figures(model, args.tokens, args.rounds, threads)
    if "memory" in wanted:
        figures |= memory_figures(model, MEMORY_LENGTHS, threads)
    equal: list[bool] = []
    if wanted - {"alone", "memory"}:
        lines = (root / "examples.jsonl").read_text(encoding="utf-8").splitlines()
        with _life(Life(root, model, lines, f"{args.checkpoint}\n")) as life:
            life.start()
            life.one_copy()
            life.learn(args.tokens)
            life.one_copy()
            for part, run in {
                "rollback": life.roll_back,
                "checkpoint": life.checkpoint,
                "recovery": life.recover,
            }.items():
                if part in wanted:
                    run()
            life.stop()
        figures |= life.figures
        equal = life.equal
    return figures, equal


@contextmanager
def _life(life: Life) -> Iterator[Life]:
    """Yields `life` and always ends it."""
    try:
        yield life
    finally:
        life.end()


def _ratios(figures: Mapping[str, float]) -> dict[str, float]:
    """The ratios of all measured parts."""
    pairs = {
        "weights_pss_to_model": ("weights_pss_bytes", "model_bytes"),
        "step_to_forward_backward": ("alone_apollod_undo_s", "alone_forward_backward_s"),
        "step_to_forward_backward_cpu": ("alone_apollod_undo_cpu_s", "alone_forward_backward_cpu_s"),
        "daemon_step_to_forward_backward": ("step_s", "alone_forward_backward_s"),
        "daemon_period_to_forward_backward": ("step_period_s", "alone_forward_backward_s"),
        "checkpoint_held_to_step": ("checkpoint_second_held_s", "step_s"),
        "checkpoint_to_step": ("checkpoint_second_s", "step_s"),
        "state_told_to_measured": ("state_told_bytes", "state_bytes"),
        "weights_told_to_file": ("weights_told_bytes", "weights_file_bytes"),
    }
    pairs |= {
        f"training_told_to_measured_{tokens}": (f"training_{tokens}_told_bytes", f"training_{tokens}_bytes")
        for tokens in MEMORY_LENGTHS
    }
    return {name: figures[a] / figures[b] for name, (a, b) in pairs.items() if a in figures and b in figures}


def _goals(figures: Mapping[str, float], ratios: Mapping[str, float], equal: list[bool]) -> dict[str, Any]:
    """The goals of all measured parts."""
    goals: dict[str, Any] = {}
    if "weights_pss_to_model" in ratios:
        goals["copies_of_the_weights"] = report.goal(ratios["weights_pss_to_model"], 1.01, True)
    if "beyond_share" in figures:
        goals["share_beyond_forward_backward"] = report.goal(figures["beyond_share"], 0.15, True)
    if "daemon_period_to_forward_backward" in ratios:
        share = 1 - 1 / ratios["daemon_period_to_forward_backward"]
        goals["share_beyond_forward_backward_in_the_daemon"] = report.goal(share, 0.15, True)
    for name in ("first", "second"):
        if f"rollback_{name}_s" in figures:
            beyond = figures[f"rollback_{name}_s"] - figures["copy_s"]
            goals[f"rollback_{name}_beyond_a_copy_s"] = report.goal(beyond, 1.0, True)
    for tokens in MEMORY_LENGTHS:
        if (name := f"training_told_to_measured_{tokens}") in ratios:
            goals[f"memory_told_wrong_by_{tokens}"] = report.goal(abs(ratios[name] - 1), 0.10, True)
    if equal:
        goals["recovered_to_the_bit"] = report.goal(sum(equal) / len(equal), 1.0, False)
    return goals


if __name__ == "__main__":
    main()
