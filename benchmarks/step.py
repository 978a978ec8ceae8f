"""Measures a training step: apollod's against forward+backward alone and against a plain Hugging Face step with AdamW.

Each variant runs in a process of its own (peak memory is its own then), on one thread, on the same model and tokens;
times are medians over interleaved rounds of all variants, and a ratio is the median of the ratios of the rounds, so
that a slow phase of the machine affects all of them alike. Elapsed time, and on CPU CPU seconds beside it: a neighbour
costs waiting, not work. Processes are restarted a few times: the place of its heap's end decides how many pages a
process returns and faults in again in each step, up to 3% of the time of any variant. Memory: the peak of the process
during steps above its level before the first one, from /proc (VmHWM after a reset). On a GPU (APOLLOD_DEVICE=cpu says
no) the default model is a random Qwen3 of 1.5 billion parameters, memory is that of torch's allocator, and `apollod`
steps on device memory of its own. `apollod` steps on a shared memory file, fingerprint included, as the trainer does;
its optimizer state is counted. `apollod_undo` is the same with the ring that keeps the last steps for undoing them, the
daemon's default; it grows in all rounds, so its memory is new.
"""

import tempfile
from pathlib import Path

from benchmarks import report
from benchmarks.daemon import build_model
from benchmarks.step_child import GPU, VARIANTS, WITH_RING, Variant

STEP_GOAL, MEMORY_GOAL = (1.25, 0.02) if GPU else (1.10, 0.40)
PROCESSES, ROUNDS, STEPS_A_ROUND, WARM = 4, 7, 3, 3


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--kind", default="wide", help="model of apollod.demo.tiny_model")
    parser.add_argument("--model", help="a model directory instead")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="of each variant, one after the other")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of all variants in turns, for each process")
    args = parser.parse_args()
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
    """Elapsed and CPU times by variant, peaks (the median over processes), sizes of the model."""
    elapsed, cpu = ({v: [] for v in VARIANTS} for _ in range(2))
    peaks: dict[str, list[float]] = {}
    facts: dict[str, float] = {}
    for _ in range(processes):
        children = {v: Variant(v, model, tokens, WARM) for v in VARIANTS}
        for _ in range(rounds):
            for name, child in children.items():
                answer = child.times(STEPS_A_ROUND)
                elapsed[name] += answer["seconds"]
                cpu[name] += answer["cpu_seconds"]
        for name in set(VARIANTS) - {WITH_RING}:
            taken = children[name].memory(tokens, tokens - tokens // 2)
            peaks.setdefault(name, []).append(taken["peak_bytes"])
            if name == "forward_backward":
                peaks.setdefault("forward_backward_activations", []).append(taken["activations_bytes"])
            facts |= children[name].facts()
        for child in children.values():
            child.end()
    return elapsed, cpu, {name: report.median(values) for name, values in peaks.items()}, facts


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


if __name__ == "__main__":
    main()
