"""What a comparison may cost, and its bound (transcripts/alignment.txt has the rest)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apollod.core.facts.alignment import (
    CEILINGS,
    FORWARDS,
    NOTHING,
    TOKENS,
    bound_of,
    noticed,
    patience_s,
    tokens_before,
    usual_of,
)


@pytest.mark.parametrize("step", [54, 89, 300, 900, 4096, 32768])
def test_a_step_waits_at_most_a_twentieth_of_what_it_costs(step):
    """A forward pass over n tokens takes n seconds here, and a step three times as long as one over its own."""
    probe = tokens_before(step)
    assert probe + patience_s(step, probe, float(probe)) <= 0.05 * FORWARDS * step + 1e-6
    assert probe <= TOKENS


@given(st.lists(st.floats(0.0, 1.0), max_size=20), st.floats(0.0, 1.0), st.sampled_from(sorted(CEILINGS)))
def test_the_bound_stays_between_what_halts_nothing_and_the_ceiling(past, mean, kind):
    usual = usual_of(past)
    assert NOTHING[kind] <= bound_of(kind, 0.0, usual) <= CEILINGS[kind]
    assert bound_of(kind, 0.7, usual) == 0.7
    assert not noticed(mean, usual) or mean > usual > 0
