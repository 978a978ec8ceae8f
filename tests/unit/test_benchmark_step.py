"""The step that benchmarks measure takes the models that people have."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.small_models import small_model

from benchmarks.step_child import Steps, example_of


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    """A step of ours makes its process so, for good."""
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(params=[False, True], ids=["head of its own", "tied head"])
def model_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    small_model(tie=request.param).save_pretrained(tmp_path)
    return tmp_path


def test_a_step_of_a_model_with_and_without_a_head_of_its_own(model_dir: Path) -> None:
    ours, plain, example = Steps("apollod_undo", model_dir), Steps("forward_backward", model_dir), example_of(12, 6)
    ours.step(example)
    plain.step(example)
    assert ours.facts()["state_bytes"] and plain.facts()["weights_bytes"]
