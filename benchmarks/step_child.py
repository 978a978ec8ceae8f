"""Runs one variant of a training step in a process of its own: `Variant` starts it and asks; as a module it answers.

forward_backward   loss and gradients of a plain Hugging Face model, the gradients dropped
apollod            a step as the trainer does it, on a shared memory file, fingerprint included
apollod_undo       the same with the ring that keeps the last steps for undoing them, the daemon's default
adamw              a plain Hugging Face step with torch's AdamW
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from apollod.supervisor.child_commands import has_gpu
from apollod.trainer import memory
from benchmarks.memory import gpu_peak, process_peak

GPU = has_gpu()
WITH_RING = "apollod_undo"
VARIANTS = ("forward_backward", "apollod", WITH_RING, "adamw")
UNDO_BYTES = 1 << 30
"""the value of [checkpoint] undo_bytes = "auto" for a small model"""


class Variant:
    """The process, ready: built, and warmed up by `warm` steps of `tokens` tokens."""

    def __init__(
        self, name: str, model: Path, tokens: int, warm: int = 3, threads: int = 1,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        arguments = [name, str(model), str(tokens), str(warm), str(threads)]
        command = [sys.executable, "-m", "benchmarks.step_child", *arguments]
        environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **env}  # as the trainer has it
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answered(name)

    def times(self, steps: int) -> dict[str, list[float]]:
        """`seconds` and `cpu_seconds` of that many consecutive steps."""
        return self._ask({"ask": "time", "steps": steps})

    def memory(self, tokens: int, learned: int) -> dict[str, float]:
        """`peak_bytes` of a step above the level before it, and of a forward pass alone (`activations_bytes`)."""
        return self._ask({"ask": "memory", "tokens": tokens, "learned": learned})

    def facts(self) -> dict[str, float]:
        """`weights_bytes` of a plain model; for apollod's variants `state_bytes` of the optimizer, and
        `fingerprint_s`."""
        return self._ask({"ask": "facts"})

    def end(self) -> None:
        """Close its stdin and wait for its exit."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(60)

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()
        return dict(self._answered(str(question["ask"])))

    def _answered(self, to: str) -> Any:
        assert self._child.stdout is not None
        if not (line := self._child.stdout.readline()):
            raise SystemExit(f"a variant of the step ended before it answered: {to} (its error is above)")
        return json.loads(line)


# --- the process --------------------------------------------------------------------------------------------------


def main(variant: str, model: str, tokens: str, warm: str, threads: str) -> None:
    """Build, warm up, then answer questions until stdin ends."""
    import torch

    torch.set_num_threads(int(threads))
    steps = Steps(variant, Path(model))
    example = example_of(int(tokens), int(tokens) - int(tokens) // 2)
    for _ in range(int(warm)):
        steps.step(example)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        match asked["ask"]:
            case "time":
                answer: dict[str, Any] = _timed(lambda: steps.step(example), asked["steps"])
            case "memory":
                answer = _peaks(steps, example_of(asked["tokens"], asked["learned"]))
            case _:
                answer = steps.facts()
        print(json.dumps(answer), flush=True)


def _timed(step: Callable[[], None], steps: int) -> dict[str, list[float]]:
    elapsed, cpu = [], []
    for _ in range(steps):
        began, cpu_began = time.perf_counter(), time.process_time()
        step()
        _settle()
        cpu.append(time.process_time() - cpu_began)
        elapsed.append(time.perf_counter() - began)
    return {"seconds": elapsed, "cpu_seconds": cpu}


def _peaks(steps: "Steps", example: Any) -> dict[str, float]:
    steps.step(example)  # allocates buffers for this length, which are kept
    peak = gpu_peak if GPU else process_peak
    return {"peak_bytes": peak(lambda: steps.step(example)), "activations_bytes": peak(lambda: steps.forward(example))}


def _settle() -> None:
    """Wait until the GPU has finished its work."""
    if GPU:
        import torch

        torch.cuda.synchronize()


def example_of(tokens: int, learned: int) -> Any:
    """An example of random ids, the last `learned` of which are learned."""
    import torch

    from apollod import foreign_wheels

    foreign_wheels.guard()  # before imports of transformers
    from apollod.trainer.objectives.tokens import Tokens

    ids = torch.randint(3, 400, (tokens,), generator=torch.Generator().manual_seed(0)).tolist()
    return Tokens(ids, [index >= tokens - learned for index in range(tokens)], 0)


class Steps:
    """A variant of the step on its own model."""

    def __init__(self, variant: str, model_dir: Path) -> None:
        from apollod import foreign_wheels

        foreign_wheels.guard()
        self._attached: Any = None
        self._facts: dict[str, float] = {}
        self._plain(model_dir, variant == "adamw") if variant in ("forward_backward", "adamw") else self._ours(
            model_dir, variant == WITH_RING
        )

    def step(self, example: Any) -> None:
        """Run one step."""
        if self._attached is not None:
            from apollod.trainer.step import run_step

            done = run_step(self._attached, self._optimizer, [example], self._number, 1e-5)
            assert done.applied, done.note
            self._number += 1
            return
        from apollod.trainer.objectives.loss import loss_of

        loss_of(self._model, example).backward()
        if self._optimizer is not None:
            self._optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None

    def forward(self, example: Any) -> None:
        """Run a forward pass that keeps its graph: its peak is that of the activations."""
        from apollod.trainer.objectives.loss import loss_of

        loss_of(self._model, example).item()

    def facts(self) -> dict[str, float]:
        """See `Variant.facts`."""
        if self._attached is None:
            return self._facts
        began = time.perf_counter()
        self._attached.weights.fingerprint()
        return {**self._facts, "fingerprint_s": time.perf_counter() - began}

    def _ours(self, model_dir: Path, ring: bool) -> None:
        if "MALLOC_MMAP_THRESHOLD_" not in os.environ:  # as the trainer does
            memory.keep_pages()
        self._attached, self._optimizer, self._facts = attached(model_dir)
        self._model, self._number = self._attached.model, 1
        if ring:
            from apollod.trainer.undo.undo_ring import UndoRing

            self._optimizer.undo = UndoRing(int(os.environ.get("BENCHMARK_UNDO_BYTES", UNDO_BYTES)))
            self._optimizer.undo.restart(self._attached.weights.fingerprint())

    def _plain(self, model_dir: Path, adamw: bool) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
        self._model = model.to("cuda" if GPU else "cpu")
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._facts = {"weights_bytes": float(sum(p.numel() * p.element_size() for p in self._parameters))}
        self._optimizer: Any = torch.optim.AdamW(self._parameters, lr=1e-5) if adamw else None


def attached(model_dir: Path) -> tuple[Any, Any, dict[str, float]]:
    """A trainer's model on a memory file, as beside an engine; its optimizer, with hooks; sizes."""
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
    made = attach(memory.manifest, [held.cuda() if GPU else held], True, False)
    optimizer = Apollo(made.trainable, rank=64, round_to=made.round_to)
    optimizer.attach()
    return made, optimizer, {"state_bytes": float(optimizer.state_bytes())}


if __name__ == "__main__":
    main(*sys.argv[1:])
