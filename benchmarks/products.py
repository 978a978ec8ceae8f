"""Measures a step on a CPU without bf16 instructions, at the dimensions of Qwen3-0.6B: float32 products of bf16 weights
against a plain float32 forward and backward, and against torch's own products of bf16.

On a processor with these instructions they are disabled first (ONEDNN_MAX_CPU_ISA and two more). One thread, one
process, random weights and tokens, the second half learned; CPU seconds, medians over interleaved rounds, a ratio is
the median of the ratios of the rounds. `--layers` of 28, since time goes with them; the vocabulary is whole, its head
not tied. `floor`: transformers' model with float32 weights, forward and backward, gradients dropped.
`forward_backward`: the same with bf16 weights in float32 products. `step`: apollod's, with optimizer and fingerprint.
`fallback`, on request: forward and backward with torch's own bf16 products, once.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apollod.adapters.system.hardware import bf16_instructions
from benchmarks import report

GOAL = 1.3
WITHOUT_BF16 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
LAYERS, TOKENS, VOCABULARY, ROUNDS = 4, 89, 151936, 5


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--layers", type=int, default=LAYERS, help="of 28")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--fallback", action="store_true", help="measure torch's own products of bf16, too")
    args = parser.parse_args()
    if bf16_instructions():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **WITHOUT_BF16})
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        ways, once = _ways(Path(directory) / "model", args.layers, args.tokens, args.vocabulary)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for step in ways.values():
            step()
        for _ in range(args.rounds):
            for name, step in ways.items():
                times[name].append(_cpu_seconds(step))
        figures = {f"{name}_cpu_s": report.median(found) for name, found in times.items()}
        ratios = {
            f"{name}_to_floor": report.median([a / b for a, b in zip(times[name], times["floor"], strict=True)])
            for name in ("forward_backward", "step")
        }
        if args.fallback:
            figures["fallback_cpu_s"] = _cpu_seconds(once)
            ratios["fallback_to_forward_backward"] = figures["fallback_cpu_s"] / figures["forward_backward_cpu_s"]
    report.report(
        "products",
        figures | {"layers": args.layers, "tokens": args.tokens, "rounds": args.rounds},
        ratios,
        {"step_to_floor": report.goal(ratios["step_to_floor"], GOAL, True)},
        threads=1,
        as_json=args.json,
    )


def _cpu_seconds(step: Callable[[], object]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began


def _ways(
    path: Path, layers: int, tokens: int, vocabulary: int
) -> tuple[dict[str, Callable[[], object]], Callable[[], object]]:
    """The variants measured in rounds, and the one measured once."""
    from apollod import foreign_wheels

    foreign_wheels.guard()
    import torch
    from transformers import AutoModelForCausalLM

    from apollod.products import products_in
    from apollod.trainer.objectives.loss import loss_of
    from apollod.trainer.objectives.tokens import Tokens
    from apollod.trainer.step import run_step
    from benchmarks.step_child import attached as attached_to

    torch.set_num_threads(1)
    _build(path, layers, vocabulary)
    wide = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    attached, optimizer, _ = attached_to(path)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, vocabulary, (tokens,), generator=generator).tolist()
    example = Tokens(ids, [False] * (tokens // 2) + [True] * (tokens - tokens // 2), 0)
    number = iter(range(1, 1 << 30))

    def forward_backward(model: Any) -> None:
        with optimizer.accumulating():
            loss_of(model, example).backward()
        for parameter in model.parameters():
            parameter.grad = None

    def in_float32() -> None:
        with products_in("float32"):
            forward_backward(attached.model)

    def step() -> None:
        with products_in("float32"):
            run_step(attached, optimizer, [example], next(number), 1e-5)

    ways = {"floor": lambda: forward_backward(wide), "forward_backward": in_float32, "step": step}
    return ways, lambda: forward_backward(attached.model)


def _build(path: Path, layers: int, vocabulary: int) -> None:
    """Random weights, in one file."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=1024, intermediate_size=3072, num_hidden_layers=layers,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    Qwen3ForCausalLM(config).save_pretrained(path, max_shard_size="100GB")
    torch.set_default_dtype(torch.float32)


if __name__ == "__main__":
    main()
