"""What the engine does after a step, on a device: nothing waits, and copies are made again in the order of the stream.

The same on a CPU, as far as it goes: tests/unit/engine/test_attention_copies.py."""

import time
from types import SimpleNamespace
from typing import Any

import torch

from apollod.engine.load.verification import WidenedSinks
from apollod.engine.worker import WorkerExtension

BUSY_CYCLES = 2_000_000_000  # about a second


def worker(*derived: Any) -> WorkerExtension:
    made = WorkerExtension()
    made.model_runner = SimpleNamespace(get_model=lambda: SimpleNamespace(apollod=SimpleNamespace(derived=derived)))
    return made


def seconds(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def test_a_refresh_does_not_wait_for_what_the_engine_runs() -> None:
    plain = torch.randn(64, device="cuda").to(torch.bfloat16)
    sinks = WidenedSinks(SimpleNamespace(sinks=plain.float()), plain)
    made = worker(sinks)
    made.apollod_rederive()
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY_CYCLES)
    refreshed = seconds(made.apollod_rederive)
    waited = seconds(made.apollod_synchronize)
    assert refreshed < 0.1 * waited, (refreshed, waited)


def test_a_copy_is_made_again_before_what_is_launched_next() -> None:
    """The address stays, which a CUDA graph holds; a graph that is replayed reads the new values."""
    plain = torch.randn(64, device="cuda").to(torch.bfloat16)
    impl = SimpleNamespace(sinks=plain.float())
    sinks, out = WidenedSinks(impl, plain), torch.empty(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(impl.sinks, 2, out=out)
    plain.add_(1)
    assert not sinks.verified()
    worker(sinks).apollod_rederive()
    graph.replay()
    assert sinks.verified() and torch.equal(out, plain.float() * 2)
