"""Weights synced to a model directory, against `safetensors.torch.save_file` and an fsync of what it wrote.

A sync is timed twice. `sync_..._s`: until the new weights are durable and every process reads them, like the end of
the peer's save; a trainer answers here, and loaders get in. `sync_..._settled_s`: until the redo record is removed,
too, which only the next sync waits for. The goals are about the first; ratios of the second are shown beside them.

A bf16 model of 1 GiB in one file (`--mib` chooses another size), in memory and on disk. In every round, in turn: the
peer, syncs after 0.1, 1, 10 and 100 % of the 4 KiB blocks changed, for the first three the floor of writing in place
(that many blocks written one after the other to a new file, fsync, then each to its place in a file of the model's
size, fdatasync: no hashes, no block table, no other flushes), and one after an optimizer step (lr 1e-5 times a normal
deviate, stochastic rounding, weights of deviation 0.02). Each round begins with another variant, because a disk may be
fast until it has written much. Before each, the disk finishes its queue, and as much memory as the model takes is
touched and freed: a virtual machine that gave idle memory back to its host pays for the next page cache that it fills.
Ratios are within a round, figures medians over rounds: a disk changes its pace within
minutes. The peer runs in a process of its own, so that torch is only there. `--dir` chooses the disk.

Time held: a process of its own has as large a model in a memory file, as a trainer does, with APOLLO's state of rank
64; a step waits right behind the checkpoint until weights and state are copied out, to memory that is given back
afterwards. In turn with it: one plain copy of the weights, `clone()` of every tensor, also to new memory (without
MALLOC_MMAP_THRESHOLD_ the allocator would keep the memory of the last round), and, for what new memory costs, one to
memory that is there already.

The undo delta is that of the optimizer step; its goal is its size. Hash speed is that of the block hashes, on one
thread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from apollod.store.access import WeightsLock
from apollod.store.apply import recover_files
from apollod.store.block_table import BLOCK, block_hashes
from apollod.store.delta import apply_delta, write_delta
from apollod.store.disk import REAL
from apollod.store.model_files import SINGLE, read_files
from apollod.store.pieces import Piece
from apollod.store.sync import put_weights, sync
from benchmarks import report

ROUNDS, TENSORS, LR, DEVIATION, FLOOR_WRITES, HELD_ROUNDS = 6, 16, 1e-5, 0.02, 50, 11
SHARES = {"0.1": 0.001, "1": 0.01, "10": 0.1, "100": 1.0}
SPARSE = tuple(SHARES)[:3]
Array = np.ndarray[Any, Any]

SAVE = """
import os, sys, time
from safetensors.torch import load_file, save_file
tensors = {name: tensor.clone() for name, tensor in load_file(sys.argv[1]).items()}
print("ready", flush=True)
for path in sys.stdin:
    began = time.perf_counter()
    save_file(tensors, path.strip(), metadata={"format": "pt"})
    fd = os.open(path.strip(), os.O_RDONLY)
    os.fsync(fd)
    print(time.perf_counter() - began, flush=True)
    os.close(fd)
"""


HELD = """
import json, sys, threading, time
from types import SimpleNamespace
import torch
from apollod.trainer.checkpoints.weights_snapshot import Snapshot
from benchmarks.rollback import _Gradients, _optimizer, _parameters
parameters = _parameters(int(sys.argv[1]))
optimizer = _optimizer(parameters)
_Gradients().give(parameters, 1)
optimizer.set_step(1)
optimizer.step()
for _, parameter in parameters:
    parameter.grad = None
views = {name: parameter.data for name, parameter in parameters}
tensors = {name: SimpleNamespace(dtype="bfloat16") for name in views}
weights = SimpleNamespace(views=views, source=SimpleNamespace(tensors=tensors))
held, copies, there = [], [], []
target = [view.clone() for view in views.values()]

def hold():
    snapshot = Snapshot(weights, optimizer.state_tensors())
    thread = threading.Thread(target=snapshot.copy)
    thread.start()
    snapshot.wait()
    thread.join()
    held.append(snapshot.held_s)
    snapshot.drop()

def copy():
    began = time.perf_counter()
    copied = [view.clone() for view in views.values()]
    copies.append(time.perf_counter() - began)

def copy_there():
    began = time.perf_counter()
    for into, view in zip(target, views.values()):
        into.copy_(view)
    there.append(time.perf_counter() - began)

for number in range(int(sys.argv[2])):
    for turn in (hold, copy, copy_there) if number % 2 else (copy_there, copy, hold):
        turn()
found = {"held_s": held[1:], "plain_copy_s": copies[1:], "plain_copy_to_old_memory_s": there[1:]}
print(json.dumps(found | {"state_bytes": optimizer.state_bytes()}))
"""


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--mib", type=int, default=1024, help="size of the model (default 1024)")
    parser.add_argument("--dir", help="directory on the disk to measure (default: a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apollod-bench-", dir=args.dir) as directory:
        _measure(args, Path(directory))


def _measure(args: argparse.Namespace, root: Path) -> None:
    chance = np.random.default_rng(0)
    weights = _weights(chance, args.mib << 20)
    header = _header(weights.size // TENSORS)
    model = root / "model"
    model.mkdir()
    with (model / SINGLE).open("wb") as file:
        file.write(header)
        file.write(weights.tobytes())
    rounds, delta = _rounds(root, model, weights, chance, len(header))
    figures = {name: report.median(values) for name, values in rounds.items()} | delta
    held = _held(args.mib << 20)
    figures |= {name: report.median(held[name]) for name in ("held_s", "plain_copy_s", "plain_copy_to_old_memory_s")}
    figures["held_state_bytes"] = held["state_bytes"]
    figures |= {"hash_gb_per_s": _hash_speed(weights), "fsync_floor_ms": 1000 * _fsync_floor(root)}
    ratios = {}
    for name in [f"sync_{share}_percent" for share in SHARES] + ["sync_step"]:
        costs = [own / peer for own, peer in zip(rounds[f"{name}_s"], rounds["save_file_s"], strict=True)]
        if name in ("sync_100_percent", "sync_step"):
            ratios[f"{name}_to_save_file"] = report.median(costs)
        else:
            ratios[f"{name}_faster_than_save_file"] = report.median([1 / cost for cost in costs])
    ratios["undo_delta_smaller_than_model"] = (args.mib << 20) / figures["undo_delta_bytes"]
    ratios["held_to_plain_copy"] = report.median(
        [own / plain for own, plain in zip(held["held_s"], held["plain_copy_s"], strict=True)]
    )
    goals = {name: report.goal(value, *_bound(name)) for name, value in ratios.items()}
    for name in [f"sync_{share}_percent" for share in SHARES] + ["sync_step"]:
        pairs = zip(rounds[f"{name}_settled_s"], rounds["save_file_s"], strict=True)
        ratios[f"{name}_settled_faster_than_save_file"] = report.median([peer / own for own, peer in pairs])
    for share in SPARSE:
        pairs = zip(rounds[f"floor_{share}_percent_s"], rounds["save_file_s"], strict=True)
        floor = report.median([peer / own for own, peer in pairs])
        goals[f"sync_{share}_percent_faster_than_save_file"]["floor"] = round(floor, 4)
    report.report("checkpoint", figures, ratios, goals, 1, as_json=args.json)


def _held(size: int) -> dict[str, Any]:
    command = [sys.executable, "-c", HELD, str(size), str(HELD_ROUNDS)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    found: dict[str, Any] = json.loads(subprocess.check_output(command, env=environment, text=True))
    return found


def _bound(name: str) -> tuple[float, bool]:
    if name == "held_to_plain_copy":
        return 1.3, True
    return (1.15, True) if name.endswith("to_save_file") else (5.0, False)


Found = dict[str, list[float]]


def _rounds(
    root: Path, model: Path, weights: Array, chance: np.random.Generator, start: int
) -> tuple[Found, dict[str, float]]:
    """Seconds and bytes of everything in every round, and the cost of the undo delta of the last step."""
    found: Found = {}
    sync(model, _pieces(weights, start))  # makes the block table
    command = [sys.executable, "-c", SAVE, str(model / SINGLE)]
    turns = [
        "save_file",
        *(f"sync_{name}_percent" for name in SHARES),
        "sync_step",
        *(f"floor_{name}_percent" for name in SPARSE),
    ]
    with (root / "floor").open("wb") as file:
        file.write(weights.tobytes())
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin and peer.stdout and peer.stdout.readline() == "ready\n"
        for number in range(ROUNDS):
            for turn in [*turns[number % len(turns) :], *turns[: number % len(turns)]]:
                if turn == "save_file":
                    _settle(weights.size)
                    peer.stdin.write(f"{root / 'peer.safetensors'}\n")
                    peer.stdin.flush()
                    found.setdefault("save_file_s", []).append(float(peer.stdout.readline()))
                    continue
                if turn.startswith("floor"):
                    found.setdefault(f"{turn}_s", []).append(
                        _in_place_floor(root, weights, chance, SHARES[turn.split("_")[1]])
                    )
                    continue
                if turn == "sync_step":
                    _step(weights, chance)
                else:
                    _change(weights, chance, SHARES[turn.split("_")[1]])
                _timed_sync(found, turn, model, weights, start)
        peer.stdin.close()
    before = weights.copy()
    _step(weights, chance)
    return found, _delta(root, model, before, weights, start)


def _timed_sync(found: Found, name: str, model: Path, weights: Array, start: int) -> None:
    _settle(weights.size)
    began = time.perf_counter()
    with WeightsLock(model) as lock:
        recover_files(REAL, model)
        put = put_weights(REAL, model, _pieces(weights, start))
        with lock.settling() as ours:
            found.setdefault(f"{name}_s", []).append(time.perf_counter() - began)
            assert ours
            done = put.settle()
    found.setdefault(f"{name}_settled_s", []).append(time.perf_counter() - began)
    found.setdefault(f"{name}_bytes_written", []).append(done.bytes_written)
    found.setdefault(f"{name}_blocks_share", []).append(done.changed_blocks / done.blocks)


def _in_place_floor(root: Path, weights: Array, chance: np.random.Generator, share: float) -> float:
    """Seconds to write so many blocks twice, with two flushes."""
    blocks = np.flatnonzero(chance.random(weights.size // BLOCK) < share)
    images = memoryview(weights.reshape(-1, BLOCK)[blocks].reshape(-1))
    _settle(weights.size)
    began = time.perf_counter()
    for path, places in ((root / "floor.redo", None), (root / "floor", blocks.tolist())):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        if places is None:
            os.pwrite(fd, images, 0)
            os.fsync(fd)
        else:
            for number, place in enumerate(places):
                os.pwrite(fd, images[number * BLOCK : (number + 1) * BLOCK], place * BLOCK)
            os.fdatasync(fd)
        os.close(fd)
    took = time.perf_counter() - began
    (root / "floor.redo").unlink()
    return took


def _settle(size: int) -> None:
    """Establish the same initial state for everything that is timed."""
    os.sync()
    np.ones(size, np.uint8)


def _delta(root: Path, model: Path, before: Array, after: Array, start: int) -> dict[str, float]:
    files, path = read_files(model), root / "delta"
    _settle(before.size)
    began = time.perf_counter()
    written = write_delta(path, files, _pieces(before, start), _pieces(after, start), (0, 1))
    wrote = time.perf_counter()
    undone = np.concatenate([piece.data for piece in apply_delta(path, files, _pieces(after, start))])
    took = time.perf_counter() - wrote
    assert np.array_equal(undone, before)
    changed = float((before.view(np.uint16) != after.view(np.uint16)).mean())
    return {
        "undo_delta_bytes": written.bytes,
        "undo_delta_write_s": wrote - began,
        "undo_delta_apply_s": took,
        "step_elements_changed": changed,
    }


def _pieces(weights: Array, start: int) -> Iterator[Piece]:
    """Pieces in a trainer's order: one tensor after the other, no copies."""
    each = weights.size // TENSORS
    for number in range(TENSORS):
        yield Piece(SINGLE, start + number * each, weights[number * each : (number + 1) * each])


def _weights(chance: np.random.Generator, size: int) -> Array:
    """uint8 [size]: bf16 numbers of normal distribution, another order in every 64 MiB."""
    part = min(size, 64 << 20)
    values = (chance.standard_normal(part // 2, np.float32) * np.float32(DEVIATION)).view(np.uint32) >> 16
    parts = [np.roll(values.astype(np.uint16), number * 1_000_003) for number in range(size // part)]
    return np.concatenate(parts).view(np.uint8)


def _header(tensor_bytes: int) -> bytes:
    entries = [
        f'"w.{number:02}":{{"dtype":"BF16","shape":[{tensor_bytes // 2048},1024],'
        f'"data_offsets":[{number * tensor_bytes},{(number + 1) * tensor_bytes}]}}'
        for number in range(TENSORS)
    ]
    text = ('{"__metadata__":{"format":"pt"},' + ",".join(entries) + "}").encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _change(weights: Array, chance: np.random.Generator, share: float) -> None:
    blocks = np.flatnonzero(chance.random(weights.size // BLOCK) < share)
    weights.reshape(-1, BLOCK)[blocks, 7] ^= 1


def _step(weights: Array, chance: np.random.Generator) -> None:
    """w += lr * normal deviate, stochastically rounded to bf16, in place."""
    words = weights.view(np.uint16)
    for part in np.array_split(words, max(1, words.size >> 24)):
        values = (part.astype(np.uint32) << 16).view(np.float32)
        values += np.float32(LR) * chance.standard_normal(part.size, np.float32)
        part[:] = (values.view(np.uint32) + chance.integers(0, 1 << 16, part.size, np.uint32)) >> 16


def _hash_speed(weights: Array) -> float:
    speeds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        block_hashes(weights)
        speeds.append(weights.size / (time.perf_counter() - began) / 1e9)
    return report.median(speeds)


def _fsync_floor(root: Path) -> float:
    """Seconds to append a block and fsync it."""
    fd, times = os.open(root / "floor.fsync", os.O_WRONLY | os.O_CREAT, 0o600), []
    for number in range(FLOOR_WRITES):
        began = time.perf_counter()
        os.pwrite(fd, bytes(BLOCK), number * BLOCK)
        os.fsync(fd)
        times.append(time.perf_counter() - began)
    os.close(fd)
    return report.median(times)


if __name__ == "__main__":
    main()
