"""Queues of the tiers, folded from events (transcripts/tiers.txt has the order of learning)."""

import time

import msgspec

from apollod.core import events as ev
from apollod.core.facts.intake.state import Waiting
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.wire.state_snapshot import dump_state, load_state


def record(state: State, *events: ev.Event) -> None:
    for event in events:
        fold(state, ev.Recorded(state.seq + 1, state.seq + 1, event))


def accepted(example: str, tier: ev.Tier = "bulk") -> ev.Event:
    return ev.ExampleAccepted(example=example, record=msgspec.Raw(b"{}"), source="s", line=1, tier=tier)


def encoded(example: str) -> ev.Event:
    return ev.ExampleEncoded(example=example, tokens=1, targets=1, cut=0, digest="d")


def started(step: int, *examples: str) -> ev.Event:
    several = examples if len(examples) > 1 else ()
    return ev.StepStarted(
        step=step, parent=step - 1, example=examples[0], digest="d", lr=1.0, window=1,
        examples=several, digests=("d",) * len(several),
    )  # fmt: skip


def test_a_journal_of_before_folds_to_a_state_that_goes_on():
    """Then a step took what had been accepted first, whatever its tier: it names its examples, and those are taken."""
    state = State()
    record(state, accepted("b1"), accepted("d1", "direct"), accepted("b2"), accepted("d2", "direct"), accepted("b3"))
    record(state, *map(encoded, ("b1", "d1", "b2", "d2")))
    record(state, started(1, "b1"))
    assert [one.example for one in state.intake.taken] == ["b1"]
    assert [one.example for one in state.intake.direct.waiting] == ["d1", "d2"]
    assert [one.example for one in state.intake.bulk.waiting] == ["b2", "b3"]
    assert [one.example for one in state.intake.untokenised] == ["b3"]
    assert load_state(dump_state(state)) == state


def test_a_step_takes_what_it_names_wherever_it_waits():
    state = State()
    record(state, *map(accepted, ("a", "b", "c")), *map(encoded, ("a", "b", "c")), started(1, "b"), started(2, "c"))
    assert [one.example for one in state.intake.bulk.waiting] == ["a"]
    record(state, accepted("d"), started(3, "d"))
    assert [one.example for one in state.intake.bulk.waiting] == ["a"] and not state.intake.bulk.untokenised
    record(state, started(4, "nobody"))
    assert [one.example for one in state.intake.taken] == ["nobody"] and state.intake.pending == 1


def a_correction(state: State, number: int) -> None:
    example = f"d{number}"
    record(state, accepted(example, "direct"), encoded(example), started(number, example))


def test_what_a_correction_costs_does_not_depend_on_how_many_bulk_examples_wait():
    seconds = []
    for waiting in (1_000, 1_000_000):
        state = State()
        state.intake.bulk.waiting.extend(Waiting(f"b{number}") for number in range(waiting))
        state.intake.bulk.untokenised.extend(state.intake.bulk.waiting)
        seconds.append(min(timed(state, first) for first in range(1, 4_001, 1_000)))
    assert seconds[1] < 5 * seconds[0], seconds


def timed(state: State, first: int) -> float:
    begun = time.process_time()
    for number in range(first, first + 1_000):
        a_correction(state, number)
    return time.process_time() - begun
