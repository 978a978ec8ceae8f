"""What a binding records of what it runs on: all that the bits of a step may depend on besides weights, settings and
example."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from apollod.trainer.environment import environment

CPU = torch.device("cpu")
LIBRARIES = {"torch", "transformers", "tokenizers", "numba"}


@pytest.fixture
def threads() -> Iterator[int]:
    """Another number of them than before."""
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    yield before + 1
    torch.set_num_threads(before)


def test_exactly_these_facts_are_recorded_with_their_values(threads: int) -> None:
    found = environment(CPU)
    assert found.keys() == LIBRARIES | {"device", "kernels", "threads"}
    assert {name: found[name] for name in LIBRARIES} == {name: version(name) for name in LIBRARIES}
    assert (found["kernels"], found["threads"]) == ("eager", str(threads))


def test_a_library_that_only_one_optimizer_uses_is_recorded_with_that_one() -> None:
    pytest.importorskip("bitsandbytes")
    assert environment(CPU, optimizer="adamw8bit") == environment(CPU) | {"bitsandbytes": version("bitsandbytes")}


def test_the_device_is_the_processor_and_what_torch_uses_of_it() -> None:
    """The same code takes other instructions, in another order, on another processor."""
    kind, *processor, capability = environment(CPU)["device"].split()
    assert kind == "cpu" and capability == torch.backends.cpu.get_cpu_capability()
    models = [
        line.split(":")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    assert processor == (models[0].split() if models else [])
