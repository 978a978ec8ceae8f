"""Torch as a trainer sets it, and as it was."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    """For modules that import it: every test of theirs computes as a trainer does."""
    import torch

    from apollod.trainer.step import be_deterministic

    before = torch.are_deterministic_algorithms_enabled()
    be_deterministic()
    yield
    torch.use_deterministic_algorithms(before)
