"""z0 of ratings, figures of pairs, and which weights gave a reference."""

import msgspec
import pytest
from property.test_continuation import archived
from support.world import SETTINGS, World

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.continuation import carried_state
from apollod.core.facts.preferences import KEPT, PreferencesState
from apollod.core.inputs import Batch, Line
from apollod.core.rules.preferences import status
from apollod.core.settings import JudgeSettings


class ComparedWorld(World):
    """Every example is learned by `objective`, with these metrics, from a reference that is computed once."""

    objective, metrics = "kto", {"gained": 0.5, "right": 1.0}

    def encoded(self, example: str) -> inp.Encoded:
        known = any(e.example == example for e in self.of(ev.ExampleEncoded))
        file = b"" if known else b"1234"
        return msgspec.structs.replace(
            super().encoded(example), objective=self.objective, file=file, reference=f"{example}-file"
        )

    def give(self, input_: inp.Input) -> list[ev.Event]:
        if isinstance(input_, inp.StepDone):
            input_ = msgspec.structs.replace(input_, metrics=self.metrics)
        return super().give(input_)


def learning(objective: str, *gained: float, name: str = "gained") -> ComparedWorld:
    world = ComparedWorld()
    world.objective = objective
    world.up()
    for number, value in enumerate(gained):
        world.metrics = {name: value, "right": float(value > 0)}
        world.lines(f"e{number}")
        world.settle()
    return world


def zeros(world: World) -> list[float]:
    return [e.zero for e in world.of(ev.StepStarted)]


def test_z0_is_the_mean_gain_of_the_ratings_before_and_never_below_0() -> None:
    world = learning("kto", 0.5, 1.5, -8.0, 2.0)
    assert zeros(world) == [0.0, 0.5, 1.0, 0.0]
    assert status(world.state).z0 == 0.0 and status(world.state).gained == -1.0
    assert status(world.state).right == 0.75 and status(world.state).ratings == 4
    long = learning("kto", *[1.0] * KEPT, 33.0)
    assert zeros(long)[-1] == 1.0 and long.state.preferences.zero == 2.0, "the first one is forgotten"


def test_pairs_have_a_margin_and_no_z0() -> None:
    world = learning("dpo", 0.25, -0.75, name="margin")
    assert zeros(world) == [0.0, 0.0]
    assert world.state.preferences == PreferencesState(2, 0, (0.25, -0.75), (1.0, 0.0))
    assert status(world.state).margin == -0.25
    mixed = learning("kto", 0.5)
    mixed.objective = "dpo"
    mixed.lines("pair")
    mixed.settle()
    assert zeros(mixed) == [0.0, 0.0] and mixed.state.preferences.zero == 0.5


@pytest.mark.parametrize("objective", ["sft", "grpo"])
def test_other_objectives_leave_it_alone(objective: str) -> None:
    assert learning(objective, 1.0).state.preferences == PreferencesState()


def test_a_repeated_step_has_the_z0_of_the_first_time() -> None:
    world = learning("kto", 0.5, 1.5)
    before = world.of(ev.StepStarted)[1]
    world.give(inp.ForgetRequested(examples=("e0",), by="me", reason="no"))
    world.settle()
    again = world.of(ev.StepStarted)[-1]
    assert (again.example, again.again_of, again.zero) == ("e1", before.step, before.zero) and before.zero == 0.5


def test_the_weights_of_a_reference_are_recorded_once() -> None:
    world = learning("kto", 0.5, 1.5)
    first, second = world.of(ev.ExampleEncoded)
    assert (first.reference, first.weights) == ("e0-file", 0) and second.weights == 1
    world.give(inp.ForgetRequested(examples=("e1",), by="me", reason="no"))
    world.settle()
    world.give(inp.RelearnRequested((("e1", "direct"),), "me"))
    world.settle()
    last = world.of(ev.ExampleEncoded)[-1]
    assert (last.example, last.reference, last.weights) == ("e1", "e1-file", -1), "another event has them"


def test_another_journal_goes_on_with_the_figures() -> None:
    world = learning("kto", 0.5, 1.5)
    world.give(ev.ShutdownRequested("test"))
    world.settle()
    assert carried_state(archived(world).state).preferences == world.state.preferences != PreferencesState()


def test_neither_evidence_nor_a_judge_decides_about_what_a_person_said() -> None:
    """The same line twice, once as an answer of a log and once as a rated one."""
    for decided in (False, True):
        world = ComparedWorld(msgspec.structs.replace(SETTINGS, judge=JudgeSettings(mode="all"))).up()
        line = Line(1, "e", b"{}", of_log=True, decided=decided)
        world.give(inp.LinesRead(Batch("log", "/log", 9, 1, (line,), learn="positive"), frozenset()))
        assert [e.kind for e in world.of(ev.ExampleHeld)] == ([] if decided else ["example.held"])
