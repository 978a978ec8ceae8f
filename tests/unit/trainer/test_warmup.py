"""The learning rate rises with the updates of moments that begin at zero, on the real model in a real memory file."""

from pathlib import Path

import pytest
from support.attached import attached_to, learning

from apollod.core.facts.training import StepTerms
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.step import run_step

EXAMPLES = [Tokens(list(range(40 + 7 * n, 60 + 7 * n)), [False] * 4 + [True] * 16) for n in range(6)]
RISING = StepTerms(warmup=4)


class Trained:
    """A model with fresh moments."""

    def __init__(self, directory: Path, optimizer: str) -> None:
        self.model = attached_to(directory)
        self.optimizer = learning(self.model, optimizer)

    def learn(self, number: int, lr: float, terms: StepTerms) -> str:
        return run_step(self.model, self.optimizer, [EXAMPLES[number % 6]], number + 1, lr, terms).fingerprint


@pytest.mark.parametrize("optimizer", ["apollo", "adamw", "adafactor"])
def test_the_first_updates_have_a_part_of_the_rate(tiny_model: Path, optimizer: str) -> None:
    rising, told = Trained(tiny_model, optimizer), Trained(tiny_model, optimizer)
    for number in range(6):
        lr = 1e-3 * min(1.0, (number + 1) / 4)
        assert rising.learn(number, 1e-3, RISING) == told.learn(number, lr, StepTerms())
        assert rising.optimizer.applied() == number + 1


def test_it_counts_updates_and_not_steps(tiny_model: Path) -> None:
    """A replay that leaves the first steps out warms its moments up; older records, without it, keep their rate."""
    late, first, old = (Trained(tiny_model, "apollo") for _ in range(3))
    assert late.learn(5, 1e-3, RISING) == first.learn(5, 1e-3 / 4, StepTerms()) != old.learn(5, 1e-3, StepTerms())


def test_a_step_that_writes_nothing_does_not_count(tiny_model: Path) -> None:
    trained, other = Trained(tiny_model, "apollo"), Trained(tiny_model, "apollo")
    trained.learn(0, 1e-3, StepTerms(warmup=4, loss_limit=1e-9))
    assert trained.optimizer.applied() == 0
    assert trained.learn(1, 1e-3, RISING) == other.learn(1, 1e-3 / 4, StepTerms())
