"""The mutants of the core (`python tests/core_mutants.py`) still apply: one that does not shows nothing."""

from core_mutants import MUTANTS, times


def test_every_mutant_applies_once() -> None:
    assert {one.name: times(one) for one in MUTANTS if times(one) != 1} == {}
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)
