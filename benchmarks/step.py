"""One training step: apollod's against forward+backward alone and against a plain Hugging Face step with torch AdamW.

Each variant runs in a process of its own (peak memory is its own then), on one thread, on the same model and tokens;
times are medians over interleaved rounds of all variants, and a ratio is the median of the ratios of the rounds, so
that a slow phase of the machine hits all of them alike. Elapsed time, and on CPU CPU seconds beside it: a neighbour
costs waiting, not work. Processes are started afresh a few times: where its heap ends decides how many pages a process
gives back and faults in again in each step, up to 3% of the time of any variant. Memory: the peak of the process during
steps over what it held before the first one, from /proc (VmHWM after a reset). On a GPU (APOLLOD_DEVICE=cpu says no)
the default model is a random Qwen3 of 1.5 billion parameters, memory is what torch's allocator counts, and `apollod`
steps on device memory of its own. `apollod` steps on a shared memory file, fingerprint included, as the trainer does;
its optimizer state is counted. `apollod_undo` does so with the ring that keeps the last steps to undo them, which is
the daemon's default; it grows in all rounds, so its memory is new.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apollod.supervisor.child_commands import has_gpu
from benchmarks import report
from benchmarks.daemon import build_model
from benchmarks.memory import gpu_peak, process_peak

GPU = has_gpu()
STEP_GOAL, MEMORY_GOAL = (1.25, 0.02) if GPU else (1.10, 0.40)
WITH_RING = "apollod_undo"
VARIANTS = ("forward_backward", "apollod", WITH_RING, "adamw")
PROCESSES, ROUNDS, STEPS_A_ROUND, WARM = 4, 7, 3, 3
UNDO_BYTES = 1 << 30  # what [checkpoint] undo_bytes = "auto" is for a small model


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--kind", default="wide", help="model of apollod.demo.tiny_model")
    parser.add_argument("--model", help="a model directory instead")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="of each variant, one after the other")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of all variants in turns, for each process")
    parser.add_argument("--variant", choices=VARIANTS, help="internal: run one variant, commands on stdin")
    args = parser.parse_args()
    if args.variant:
        _serve(args.variant, Path(args.model), args.tokens)
        return
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        build = _build_large if GPU else build_model
        model = Path(args.model) if args.model else build(Path(directory) / "model", args.kind)
        elapsed, cpu, peaks, facts = _measure(model, args.tokens, args.processes, args.rounds)
    ratios = {
        f"{name}{suffix}": _ratio(times[ours], times[other])
        for suffix, times in (("", elapsed), ("_cpu", cpu))
        for name, ours, other in (
            ("step_to_forward_backward", "apollod", "forward_backward"),
            ("step_with_undo_to_forward_backward", WITH_RING, "forward_backward"),
            ("step_to_adamw_step", "apollod", "adamw"),
        )
    }
    extra = peaks["apollod"] - peaks["forward_backward_activations"]
    report.report(
        "step",
        {f"{v}_s": report.median(elapsed[v]) for v in VARIANTS}
        | {f"{v}_cpu_s": report.median(cpu[v]) for v in VARIANTS}
        | {f"{v}_peak_bytes": peaks[v] for v in peaks if v in VARIANTS}
        | {"activations_bytes": peaks["forward_backward_activations"], "tokens": args.tokens}
        | {"processes": args.processes, "rounds": args.rounds}
        | facts,
        ratios
        | {
            "peak_to_adamw_peak": peaks["apollod"] / max(1, peaks["adamw"]),
            "peak_to_forward_backward_peak": peaks["apollod"] / max(1, peaks["forward_backward"]),
            "extra_to_weights": extra / facts["weights_bytes"],
        },
        {
            name: report.goal(ratios[name], STEP_GOAL, True)
            for name in ("step_to_forward_backward", "step_with_undo_to_forward_backward")
        }
        | {"extra_memory_to_weights": report.goal(extra / facts["weights_bytes"], MEMORY_GOAL, True)},
        threads=1,
        as_json=args.json,
    )


def _ratio(ours: list[float], other: list[float]) -> float:
    """Median over rounds of the ratio of their medians."""
    rounds = range(0, len(ours), STEPS_A_ROUND)
    return report.median(
        [report.median(ours[i : i + STEPS_A_ROUND]) / report.median(other[i : i + STEPS_A_ROUND]) for i in rounds]
    )


Times = dict[str, list[float]]


def _measure(
    model: Path, tokens: int, processes: int, rounds: int
) -> tuple[Times, Times, dict[str, float], dict[str, float]]:
    """Elapsed and CPU times by variant, peaks (the median over processes), facts of the model."""
    elapsed, cpu = ({v: [] for v in VARIANTS} for _ in range(2))
    peaks: dict[str, list[float]] = {}
    facts: dict[str, float] = {}
    for _ in range(processes):
        children = {v: _spawn(v, model, tokens) for v in VARIANTS}
        for _ in range(rounds):
            for variant in VARIANTS:
                answer = _ask(children[variant], "time")
                elapsed[variant] += answer["seconds"]
                cpu[variant] += answer["cpu_seconds"]
        for variant in set(VARIANTS) - {WITH_RING}:
            answer = _ask(children[variant], "memory")
            peaks.setdefault(variant, []).append(answer["peak_bytes"])
            if variant == "forward_backward":
                peaks.setdefault("forward_backward_activations", []).append(answer["activations_bytes"])
            facts |= answer["facts"]
        for child in children.values():
            assert child.stdin is not None
            child.stdin.close()
            child.wait(60)
    return elapsed, cpu, {name: report.median(values) for name, values in peaks.items()}, facts


def _spawn(variant: str, model: Path, tokens: int) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "benchmarks.step",
        "--variant",
        variant,
        "--model",
        str(model),
        "--tokens",
        str(tokens),
    ]
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # as the trainer has it
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert child.stdout is not None and child.stdout.readline() == "ready\n", f"{variant} did not start"
    return child


def _ask(child: "subprocess.Popen[str]", command: str) -> dict[str, Any]:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(command + "\n")
    child.stdin.flush()
    return dict(json.loads(child.stdout.readline()))


def _serve(variant: str, model_dir: Path, tokens: int) -> None:
    """A child: build, warm up, then answer `time` and `memory`."""
    import torch

    torch.set_num_threads(1)
    step, forward_only, facts = _build(variant, model_dir, tokens)
    for _ in range(WARM):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "time\n":
            elapsed, cpu = [], []
            for _ in range(STEPS_A_ROUND):
                began, cpu_began = time.perf_counter(), time.process_time()
                step()
                _settle()
                cpu.append(time.process_time() - cpu_began)
                elapsed.append(time.perf_counter() - began)
            print(json.dumps({"seconds": elapsed, "cpu_seconds": cpu}), flush=True)
        else:
            peak = gpu_peak if GPU else process_peak
            answer = {"peak_bytes": peak(step), "activations_bytes": peak(forward_only), "facts": facts}
            print(json.dumps(answer), flush=True)


def _settle() -> None:
    """Until the GPU has done what it was given."""
    if GPU:
        import torch

        torch.cuda.synchronize()


def _build_large(path: Path, _kind: str) -> Path:
    """A random dense model of 1.5 billion parameters, in one file."""
    from apollod import foreign_wheels

    foreign_wheels.guard()
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=32768, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        Qwen3ForCausalLM(config).save_pretrained(path, max_shard_size="100GB")
    return path


def _build(
    variant: str, model_dir: Path, tokens: int
) -> tuple[Callable[[], None], Callable[[], None], dict[str, float]]:
    """The step to measure, the forward pass that holds its activations, and facts."""
    import torch

    from apollod import foreign_wheels

    foreign_wheels.guard()  # before anything of transformers
    from apollod.trainer.objectives.loss import loss_of
    from apollod.trainer.objectives.tokens import Tokens

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 400, (tokens,), generator=generator).tolist()
    example = Tokens(ids, [False] * (tokens // 2) + [True] * (tokens - tokens // 2), 0)
    if variant in ("apollod", WITH_RING):
        attached, optimizer, facts = _attached(model_dir)
        if variant == WITH_RING:
            from apollod.trainer.undo.undo_ring import UndoRing

            optimizer.undo = UndoRing(UNDO_BYTES)
            optimizer.undo.restart(attached.weights.fingerprint())
        number = iter(range(1, 1 << 30))

        def step() -> None:
            from apollod.trainer.step import run_step

            run_step(attached, optimizer, [example], next(number), 1e-5)

        return step, lambda: _hold(loss_of(attached.model, example)), facts
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval().to("cuda" if GPU else "cpu")
    parameters = [p for p in model.parameters() if p.requires_grad]
    facts = {"weights_bytes": float(sum(p.numel() * p.element_size() for p in parameters))}
    adamw = torch.optim.AdamW(parameters, lr=1e-5) if variant == "adamw" else None

    def plain() -> None:
        loss_of(model, example).backward()
        if adamw is not None:
            adamw.step()
        for p in parameters:
            p.grad = None

    return plain, lambda: _hold(loss_of(model, example)), facts


def _hold(loss: Any) -> None:
    """Keep the graph until here: its peak is the activations'."""
    loss.item()


def _attached(model_dir: Path) -> tuple[Any, Any, dict[str, float]]:
    """A trainer's model on a memory file, as it would be beside an engine."""
    from apollod.trainer.bind.attach import attach
    from apollod.trainer.bind.mapped_memory import open_memory_file
    from apollod.trainer.kernels import kernels_cpu
    from apollod.trainer.optim.apollo import Apollo
    from apollod.trainer.step import be_deterministic
    from apollod.wire.manifest import MemoryFile
    from tests.support.model_memory import Memory

    be_deterministic()
    if kernels_cpu.AVAILABLE:
        kernels_cpu.warm_up()
    memory = Memory.of(model_dir)
    storage = memory.manifest.storages[0]
    assert isinstance(storage, MemoryFile)
    held = open_memory_file(storage, memory.fd)
    attached = attach(memory.manifest, [held.cuda() if GPU else held], True, False)
    optimizer = Apollo(attached.trainable, rank=64, round_to=attached.round_to)
    optimizer.attach()
    return attached, optimizer, {"state_bytes": float(optimizer.state_bytes())}


if __name__ == "__main__":
    main()
