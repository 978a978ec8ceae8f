"""The learning rate that `apollod init` writes."""

import pytest

from apollod.cli.config_command import RATE, WIDTH, rate_for


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        ({"hidden_size": WIDTH}, RATE),
        ({"hidden_size": 64}, RATE),  # what is narrower takes no more than was measured
        ({"hidden_size": 1024}, 6e-5),
        ({"text_config": {"hidden_size": 5120}, "hidden_size": 100}, 1e-5),
        ({"hidden_size": "5120"}, 1e-5),
        ({}, 1e-5),
    ],
)
def test_the_rate_falls_with_the_width_of_the_model(config: dict[str, object], rate: float) -> None:
    assert rate_for(config) == rate
