"""Measures the optimizer alone: APOLLO with stochastic rounding against `apollo-torch` with nearest rounding, rank 64,
one scale a channel, and a projection computed in every step by both (apollod stores none; the peer's gap is 1).

On one thread, bf16 weights and gradients of a 77 M parameter transformer (six layers of hidden size 1024). A variant
runs in a process of its own; times are CPU seconds (a neighbour on a shared machine costs waiting, not work), medians
of rounds in which all variants take turns. Temporary memory: the peak of the process during a step over its level
before, from /proc (VmHWM after a reset), with malloc returning everything above 16 KiB at once. On a GPU
(APOLLOD_DEVICE=cpu says no) the matrices are those of a 27 B model (hidden size 5120), times are the device's between
two events, temporary memory is that of torch's allocator, and the floor is 8 bytes a parameter (gradient twice, weight
read and written) at the speed of a memory copy on this GPU, measured in the same run. `apollo-torch` is not free
software (CC-BY-NC-4.0): it is measured if it is installed, and reported as missing otherwise.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from apollod.supervisor.child_commands import has_gpu
from benchmarks import report
from benchmarks.memory import gpu_peak, process_peak, resident

GPU = has_gpu()
PEER = "apollo_torch"
VARIANTS = (
    "apollo", PEER, "apollo_nearest", "apollo_master", "apollo_bf16_moments", "adamw", "adafactor", "adamw8bit",
    "torch_adamw_fused",
)  # fmt: skip
NEEDS = {PEER: PEER, "adamw8bit": "bitsandbytes"}  # variant: module that may be missing
HIDDEN, WIDE, LAYERS, RANK = (5120, 17408, 3, 64) if GPU else (1024, 2816, 6, 64)
ROUNDS, WARM = 9, 3
SIZES = (1, 2, 4, 8) if GPU else (3, 6, 12, 24)  # layers
LONG_LAYERS, LONG_STEPS, LONG_BLOCK = 1, 2000, 100
MMAP_THRESHOLD = 1 << 14  # bytes; see the docstring
GOALS = {  # bound, and whether it is an upper one
    "largest_to_smallest_cost_a_parameter": (1.25, True),
    "slowest_block_to_median": (1.25, True),
    "faster_than_apollo_torch": (2.5 if GPU else 1.5, False),
    "temporary_to_apollo_torch": (1 / 3, True),
    "share_of_bandwidth_floor": (0.7, False),
}
FLOOR_BYTES = 8  # a parameter


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--variant", choices=VARIANTS, help="internal: run one variant, commands on stdin")
    parser.add_argument("--layers", type=int, default=LAYERS, help="internal")
    args = parser.parse_args()
    if args.variant:
        _serve(args.variant, args.layers)
        return
    why_missing = {name: why for name, module in NEEDS.items() if (why := _why_missing(module))}
    variants = [name for name in VARIANTS if name not in why_missing]
    figures = (
        _side_by_side(variants)
        | _peaks([name for name in ("apollo", PEER) if name in variants])
        | _sizes()
        | _long_run()
    )
    ratios = _ratios(figures)
    goals = {name: report.goal(ratios[name], *GOALS[name]) for name in ratios}
    missing = [f"{NEEDS[name]} ({why})" for name, why in why_missing.items()]
    report.report("optimizer", figures, ratios, goals, threads=1, missing=missing, as_json=args.json)


def _ratios(figures: dict[str, float]) -> dict[str, float]:
    costs = [figures[f"ns_a_parameter_{layers}_layers"] for layers in SIZES]
    ratios = {
        "largest_to_smallest_cost_a_parameter": max(costs) / min(costs),
        "slowest_block_to_median": figures["long_run_slowest_block_s"] / figures["long_run_median_s"],
    }
    if f"{PEER}_s" in figures:
        ratios["faster_than_apollo_torch"] = figures[f"{PEER}_s"] / figures["apollo_s"]
        ratios["temporary_to_apollo_torch"] = figures["apollo_temporary_bytes"] / figures[f"{PEER}_temporary_bytes"]
    if GPU:
        floor = FLOOR_BYTES * figures["parameters"] / figures["copy_bytes_per_second"]
        ratios["share_of_bandwidth_floor"] = floor / figures["apollo_s"]
    return ratios


def _why_missing(module: str) -> str:
    """The import error; empty if it can be imported. `apollo-torch` needs bitsandbytes, too."""
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]


# --- measurements -------------------------------------------------------------------------------------------------


def _side_by_side(variants: list[str]) -> dict[str, float]:
    """Seconds a step and bytes of state, by variant."""
    children = {name: Child(name) for name in variants}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, child in children.items():
            times[name] += child.ask("time 1")
    states = {f"{name}_state_bytes": child.ask("state")[0] for name, child in children.items()}
    facts = {"parameters": children["apollo"].ask("parameters")[0]}
    if GPU:
        facts["copy_bytes_per_second"] = children["apollo"].ask("copy")[0]
    for child in children.values():
        child.end()
    return {f"{name}_s": report.median(times[name]) for name in variants} | states | facts


def _peaks(variants: list[str]) -> dict[str, float]:
    """Temporary bytes of a step, by variant."""
    peaks = {}
    for name in variants:
        child = Child(name, MALLOC_MMAP_THRESHOLD_=str(MMAP_THRESHOLD), MALLOC_TRIM_THRESHOLD_="0")
        peaks[f"{name}_temporary_bytes"] = child.ask("peak")[0]
        child.end()
    return peaks


def _sizes() -> dict[str, float]:
    """Nanoseconds a parameter of a step, at several sizes of one model, in turns."""
    children = {layers: Child("apollo", layers) for layers in SIZES}
    times: dict[int, list[float]] = {layers: [] for layers in SIZES}
    for _ in range(ROUNDS):
        for layers, child in children.items():
            times[layers] += child.ask("time 1")
    costs = {
        f"ns_a_parameter_{layers}_layers": 1e9 * report.median(times[layers]) / child.ask("parameters")[0]
        for layers, child in children.items()
    }
    for child in children.values():
        child.end()
    return costs


def _long_run() -> dict[str, float]:
    """Many steps in a row: medians of blocks of them, and how much the process grew."""
    child = Child("apollo", LONG_LAYERS)
    held = child.ask("resident")[0]
    times = child.ask(f"time {LONG_STEPS}")
    grown = child.ask("resident")[0] - held
    child.end()
    blocks = [report.median(times[i : i + LONG_BLOCK]) for i in range(0, LONG_STEPS, LONG_BLOCK)]
    return {
        "long_run_steps": LONG_STEPS, "long_run_median_s": report.median(blocks),
        "long_run_slowest_block_s": max(blocks),
        "long_run_grown_bytes": grown,
    }  # fmt: skip


# --- one variant in its process -----------------------------------------------------------------------------------


class Child:
    """A process of one variant, warm, waiting for commands; every answer is a list of numbers."""

    def __init__(self, variant: str, layers: int = LAYERS, **environment: str) -> None:
        command = [sys.executable, "-m", "benchmarks.optimizer", "--variant", variant, "--layers", str(layers)]
        environment = {
            **os.environ,
            **environment,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "NUMBA_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._read()

    def ask(self, command: str) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _read(self) -> list[float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("["):  # skip output of libraries
                return [float(value) for value in json.loads(line)]
        raise SystemExit(f"a child ended with {self._process.wait(60)}: {self._process.args}")


def _serve(variant: str, layers: int) -> None:
    import torch

    torch.set_num_threads(1)
    parameters = _parameters(layers)
    step, state_bytes = _build(variant, parameters)
    for _ in range(WARM):
        step()
    print("[]", flush=True)
    for line in sys.stdin:
        command, _, count = line.strip().partition(" ")
        match command:
            case "time":
                answer = [(_gpu_seconds if GPU else _cpu_seconds)(step) for _ in range(int(count))]
            case "peak":
                answer = [float(report.median([(gpu_peak if GPU else process_peak)(step) for _ in range(7)]))]
            case "copy":
                answer = [_copy_speed()]
            case "state":
                answer = [float(state_bytes())]
            case "parameters":
                answer = [float(sum(p.numel() for _, p in parameters))]
            case _:
                answer = [float(torch.cuda.memory_allocated() if GPU else resident("VmRSS"))]
        print(json.dumps(answer), flush=True)


def _parameters(layers: int) -> list[tuple[str, Any]]:
    """(name, bf16 parameter with a gradient): attention and MLP matrices, as in the measured peers' recipes."""
    import torch

    device = "cuda" if GPU else "cpu"
    generator = torch.Generator(device).manual_seed(0)
    shapes = {f"attention.{which}": (HIDDEN, HIDDEN) for which in "qkvo"}
    shapes |= {"mlp.gate": (WIDE, HIDDEN), "mlp.up": (WIDE, HIDDEN), "mlp.down": (HIDDEN, WIDE)}
    made = []
    for layer in range(layers):
        for name, shape in shapes.items():
            parameter = torch.nn.Parameter((torch.randn(shape, generator=generator, device=device) * 0.02).bfloat16())
            parameter.grad = (torch.randn(shape, generator=generator, device=device) * 1e-3).bfloat16()
            made.append((f"layers.{layer}.{name}.weight", parameter))
    return made


def _build(variant: str, parameters: list[tuple[str, Any]]) -> tuple[Callable[[], Any], Callable[[], float]]:
    """A step of the variant; bytes of its state."""
    import torch

    if variant in (PEER, "torch_adamw_fused"):
        plain = [p for _, p in parameters]
        optimizer: Any = torch.optim.AdamW(plain, lr=1e-5, fused=True) if variant != PEER else _peer(plain)
        return optimizer.step, lambda: _tensor_bytes(optimizer.state)
    from apollod.trainer.kernels import kernels_cpu
    from apollod.trainer.optim.optimizers import make_optimizer
    from apollod.wire.messages import OptimizerSettings

    if kernels_cpu.AVAILABLE:
        kernels_cpu.warm_up()
    options: dict[str, Any] = {
        "apollo_nearest": {"rounding": "nearest"},
        "apollo_master": {"rounding": "master"},
        "apollo_bf16_moments": {"moments": "bfloat16"},
    }.get(variant, {})
    ours = make_optimizer(OptimizerSettings(variant.partition("_")[0], rank=RANK, **options), parameters)
    return ours.step, lambda: float(ours.state_bytes())


def _peer(parameters: list[Any]) -> Any:
    from apollo_torch import APOLLOAdamW

    group = {
        "params": parameters, "rank": RANK, "proj": "random", "scale_type": "channel", "scale": HIDDEN / RANK,
        "update_proj_gap": 1, "proj_type": "std",
    }  # fmt: skip
    return APOLLOAdamW([group], lr=1e-5)


def _tensor_bytes(held: Any) -> float:
    """Bytes of all tensors in nested containers and objects, for the peer including its stored projections."""
    import torch

    if isinstance(held, torch.Tensor):
        return float(held.nbytes)
    if isinstance(held, dict):
        return math.fsum(_tensor_bytes(value) for value in held.values())
    return _tensor_bytes(vars(held)) if hasattr(held, "__dict__") else 0.0


def _cpu_seconds(step: Callable[[], Any]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began


def _gpu_seconds(step: Callable[[], Any]) -> float:
    import torch

    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    step()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1000


def _copy_speed() -> float:
    """Bytes read and written in a second by a copy of 2 GiB, median of 7."""
    import torch

    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * source.numel() / report.median([_gpu_seconds(lambda: target.copy_(source)) for _ in range(7)])


if __name__ == "__main__":
    main()
