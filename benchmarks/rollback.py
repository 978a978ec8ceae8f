"""Measures the rollback of a step in memory, against one plain copy of the weights; and the cost of keeping steps.

A bf16 model of 1 GiB (`--mib`) in a memory file, matrices of hidden size 2048 and 5632, APOLLO of rank 64 at lr 1e-5
with stochastic rounding; gradients are half the same in every step and half noise, as large as in training. One thread.
In every round, in turn: a step that is not kept, a kept one, a copy of all weights to already mapped memory, and the
rollback of the step: weights, optimizer state and the fingerprint as proof. Ratios are of the same round, figures
medians over rounds.

The cost of keeping is measured on three models: this one and the optimizer benchmark's of 77 M parameters with the
optimizer alone, the model of `make demo` (`--kind`) with whole steps of `--tokens` tokens, in which forward and
backward have their share.

The real daemon with a private copy of a model of `--daemon-kind`: in every round it learns one example, and that step
is rolled back over the socket; the time is the daemon's and the caller's. Then it is stopped, and started again on the
weights from before those steps, until the engine answers: the way to roll back without apollod.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

from apollod.wire import messages as msg
from benchmarks import report
from benchmarks.daemon import Daemon, build_model

ROUNDS, WARM, LR, RANK = 9, 3, 1e-5, 64
HIDDEN, WIDE = 2048, 5632
SHAPES = {f"attention.{which}": (HIDDEN, HIDDEN) for which in "qkvo"}
SHAPES |= {"mlp.gate": (WIDE, HIDDEN), "mlp.up": (WIDE, HIDDEN), "mlp.down": (HIDDEN, WIDE)}
GOALS = {"rollback_to_copy": (4.0, True), "restart_to_live_rollback": (10.0, False)}
DAEMON_ROUNDS, RESTARTS = 7, 3
BUDGET = 4 << 30
Times = dict[str, list[float]]


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--mib", type=int, default=1024, help="size of the model (default 1024)")
    parser.add_argument("--kind", default="demo", help="model of apollod.demo.tiny_model for whole steps")
    parser.add_argument("--tokens", type=int, default=512, help="of an example in whole steps")
    parser.add_argument("--daemon-kind", default="demo", help="model of apollod.demo.tiny_model for the daemon")
    args = parser.parse_args()
    live = _daemon(args.daemon_kind)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    times, facts = _large(args.mib << 20)
    small, small_facts = _optimizer_alone()
    whole, whole_facts = _whole_steps(args)
    figures = {f"{name}_s": report.median(values) for name, values in times.items()} | facts
    figures |= {f"optimizer_77m_{name}_s": report.median(values) for name, values in small.items()} | small_facts
    figures |= {f"{args.kind}_{name}_s": report.median(values) for name, values in whole.items()} | whole_facts
    figures |= {f"daemon_{name}_s": report.median(values) for name, values in live.items()}
    ratios = {
        "restart_to_live_rollback": figures["daemon_restart_s"] / figures["daemon_rollback_seen_s"],
        "rollback_to_copy": _ratio(times["rollback"], times["copy"]),
        "rollback_without_fingerprint_to_copy": _ratio(times["undo"], times["copy"]),
        "kept_to_plain_optimizer_step": _ratio(times["kept"], times["plain"]),
        "kept_to_plain_optimizer_step_77m": _ratio(small["kept"], small["plain"]),
        f"kept_to_plain_whole_step_{args.kind}": _ratio(whole["kept"], whole["plain"]),
        "kept_bytes_to_weights": facts["kept_bytes"] / facts["weights_bytes"],
        "kept_bytes_without_state_to_weights": (facts["kept_bytes"] - facts["state_bytes"]) / facts["weights_bytes"],
    }
    goals = {name: report.goal(ratios[name], *bound) for name, bound in GOALS.items()}
    report.report("rollback", figures, ratios, goals, threads=1, as_json=args.json)


def _ratio(ours: list[float], other: list[float]) -> float:
    return report.median([a / b for a, b in zip(ours, other, strict=True)])


def _seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _in_turn(number: int, turns: dict[str, Callable[[], Any]], times: Times) -> None:
    """Time all of them, each round starting with another one."""
    names = list(turns)
    for name in names[number % len(names) :] + names[: number % len(names)]:
        times.setdefault(name, []).append(_seconds(turns[name]))


# --- the large model ----------------------------------------------------------------------------------------------


def _large(size: int) -> tuple[Times, dict[str, float]]:
    """Times of plain, kept, copy, undo, rollback; facts."""
    import torch

    from apollod.trainer.bind import live_fingerprint
    from apollod.trainer.undo.undo_ring import UndoRing

    torch.set_num_threads(1)
    parameters = _parameters(size)
    optimizer = _optimizer(parameters)
    ring = UndoRing(BUDGET)
    target = {name: torch.zeros_like(parameter.data) for name, parameter in parameters}
    gradients, numbers = _Gradients(), iter(range(1, 1 << 30))

    def mark() -> str:
        sums = ((n, live_fingerprint.tensor_fingerprint(p)) for n, p in parameters)
        return live_fingerprint.format(live_fingerprint.model_fingerprint(sums))

    def copy() -> None:
        for name, parameter in parameters:
            target[name].copy_(parameter.data)

    def step() -> float:
        number = next(numbers)
        optimizer.set_step(number)
        gradients.give(parameters, number)
        return _seconds(optimizer.step)

    for _ in range(WARM):
        step()
    copy()
    times: Times = {}
    changed, kept = [], []

    def plain() -> None:
        optimizer.undo = None
        times.setdefault("plain", []).append(step())

    def kept_step() -> None:
        """A kept step, followed by the copy and the rollback in turn."""
        before = mark()
        ring.restart(before)
        optimizer.undo = ring
        copy()
        times.setdefault("kept", []).append(step())
        ring.end(mark())
        kept.append(float(ring._steps[-1].nbytes))
        changed.append(
            sum(float((p.data.view(torch.int16) != target[n].view(torch.int16)).sum()) for n, p in parameters)
        )
        if len(kept) % 2:
            times.setdefault("copy", []).append(_seconds(copy))
        began = time.perf_counter()
        ring.undo(ring.leads_to(optimizer._next_step - 2, before) or 0)
        undone = time.perf_counter()
        found = mark()
        times.setdefault("rollback", []).append(time.perf_counter() - began)
        times.setdefault("undo", []).append(undone - began)
        assert found == before
        if not len(kept) % 2:
            times.setdefault("copy", []).append(_seconds(copy))

    for number in range(ROUNDS):
        for turn in (plain, kept_step) if number % 2 else (kept_step, plain):
            turn()
    elements = sum(p.numel() for _, p in parameters)
    facts = {
        "weights_bytes": 2.0 * elements,
        "state_bytes": float(optimizer.state_bytes()),
        "kept_bytes": report.median(kept),
        "elements_changed": report.median(changed) / elements,
    }
    return times, facts


def _parameters(size: int) -> list[tuple[str, Any]]:
    """(name, bf16 parameter) in a memory file, of as many layers as fit into about `size` bytes."""
    import torch

    from apollod.trainer.bind.mapped_memory import open_memory_file
    from apollod.wire.manifest import MemoryFile

    layers = max(1, round(size / (2 * sum(map(prod, SHAPES.values())))))
    shapes = {f"layers.{layer}.{name}.weight": shape for layer in range(layers) for name, shape in SHAPES.items()}
    total = 2 * sum(map(prod, shapes.values()))
    fd = os.memfd_create("weights", os.MFD_CLOEXEC)
    os.truncate(fd, total)
    memory, offset, made = open_memory_file(MemoryFile(total), fd).view(torch.bfloat16), 0, []
    generator = torch.Generator().manual_seed(0)
    for name, shape in shapes.items():
        view = memory[offset : offset + prod(shape)].view(shape)
        view.copy_(torch.randn(shape, generator=generator) * 0.02)
        offset += prod(shape)
        made.append((name, torch.nn.Parameter(view)))
    return made


class _Gradients:
    """Normally distributed gradients: half the same in every step, half shifted by a prime from step to step; shared by
    all layers."""

    def __init__(self) -> None:
        import torch

        generator = torch.Generator().manual_seed(1)
        self._parts = {
            shape: torch.randn((2, *shape), generator=generator).mul_(5e-4).bfloat16() for shape in set(SHAPES.values())
        }

    def give(self, parameters: list[tuple[str, Any]], number: int) -> None:
        now = {shape: same + noise.roll(number * 10_007) for shape, (same, noise) in self._parts.items()}
        for _, parameter in parameters:
            parameter.grad = now[tuple(parameter.shape)]


def _optimizer(parameters: list[tuple[str, Any]]) -> Any:
    from apollod.trainer.kernels import kernels_cpu
    from apollod.trainer.optim.optimizers import make_optimizer
    from apollod.wire.messages import OptimizerSettings

    if kernels_cpu.AVAILABLE:
        kernels_cpu.warm_up()
    optimizer = make_optimizer(OptimizerSettings(rank=RANK), parameters)
    optimizer.begin(1, LR)
    optimizer.stop()
    return optimizer


# --- cost of keeping ----------------------------------------------------------------------------------------------


def _optimizer_alone() -> tuple[Times, dict[str, float]]:
    from apollod.trainer.undo.undo_ring import UndoRing
    from benchmarks import optimizer as peers

    parameters = peers._parameters(6)
    optimizer, ring = _optimizer(parameters), UndoRing(256 << 20)

    def plain() -> None:
        optimizer.undo = None
        optimizer.step()

    def kept() -> None:
        optimizer.undo = ring
        optimizer.step()
        ring.end("some")

    for _ in range(WARM):
        plain()
        kept()
    times: Times = {}
    for number in range(3 * ROUNDS):
        _in_turn(number, {"plain": plain, "kept": kept}, times)
    return times, {"optimizer_77m_kept_bytes": float(ring._steps[-1].nbytes)}


def _whole_steps(args: argparse.Namespace) -> tuple[Times, dict[str, float]]:
    from apollod import foreign_wheels

    foreign_wheels.guard()
    from apollod.trainer.undo.undo_ring import UndoRing
    from benchmarks import step_child

    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        attached, optimizer, facts = step_child.attached(build_model(Path(directory) / "model", args.kind))
    from apollod.trainer.objectives.tokens import Tokens
    from apollod.trainer.step import run_step

    ids = [3 + index % 397 for index in range(args.tokens)]
    example = Tokens(ids, [index >= args.tokens // 2 for index in range(args.tokens)], 0)
    ring, numbers = UndoRing(1 << 30), iter(range(1, 1 << 30))

    def run(undo: UndoRing | None) -> None:
        optimizer.undo = undo
        run_step(attached, optimizer, [example], next(numbers), LR)

    for _ in range(WARM):
        run(None)
        run(ring)
    times: Times = {}
    for number in range(3 * ROUNDS):
        _in_turn(number, {"plain": lambda: run(None), "kept": lambda: run(ring)}, times)
    sys.stderr.write(f"{args.kind}: {len(ring)} steps kept\n")
    return times, {
        f"{args.kind}_kept_bytes": float(ring._steps[-1].nbytes),
        f"{args.kind}_state_bytes": facts["state_bytes"],
    }


# --- the daemon ---------------------------------------------------------------------------------------------------


def _daemon(kind: str) -> Times:
    """Times of rollback_reported, rollback_seen, restart."""
    times: Times = {}
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        root = Path(directory)
        model = build_model(root / "model", kind)
        shutil.copytree(model, root / "older")
        daemon = Daemon(root, model)
        daemon.start()
        try:
            daemon.wait_ready()
            for number in range(DAEMON_ROUNDS):
                step = daemon.status()["step"]
                question = {"role": "user", "content": f"What is number {number}?"}
                answer = {"role": "assistant", "content": f"It is number {number}."}
                daemon.submit(json.dumps({"messages": [question, answer]}))
                daemon.wait(lambda s, step=step: s["step"] > step and s["state"] == "serving", "to learn")  # type: ignore[misc]
                began = time.perf_counter()
                back = daemon.request(msg.RollbackRequest(step), 120.0)
                times.setdefault("rollback_seen", []).append(time.perf_counter() - began)
                times.setdefault("rollback_reported", []).append(back["seconds"])
        finally:
            began = time.perf_counter()
            daemon.stop()
        stopped = time.perf_counter() - began
        for number in range(RESTARTS):
            (root / f"again-{number}").mkdir()
            shutil.copytree(root / "older", root / f"again-{number}" / "model")
            again = Daemon(root / f"again-{number}", root / f"again-{number}" / "model")
            began = time.perf_counter()
            again.start()
            try:
                _wait_until_served(again)
                times.setdefault("restart", []).append(stopped + time.perf_counter() - began)
                again.wait_ready()
            finally:
                began = time.perf_counter()
                again.stop()
            stopped = time.perf_counter() - began
    return times


def _wait_until_served(daemon: Daemon) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{daemon.url}/health", timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.02)
    raise SystemExit("the engine did not answer in ten minutes")


if __name__ == "__main__":
    main()
