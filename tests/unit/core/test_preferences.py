"""z0 of ratings, figures of pairs, and which weights gave a reference."""

import msgspec
import pytest
from property.test_continuation import archived
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.continuation import carried_state
from apollod.core.facts.preferences import KEPT, PreferencesState
from apollod.core.inputs import Batch, Line
from apollod.core.rules.preferences import status
from apollod.core.settings import JudgeSettings, PreferenceSettings, Settings


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


def rated(ratings_per_step: int, **trainer: object) -> Settings:
    settings = msgspec.structs.replace(SETTINGS, preferences=PreferenceSettings(ratings_per_step=ratings_per_step))
    return changed(settings, **trainer)


def learning(objective: str, *gained: float, name: str = "gained") -> ComparedWorld:
    """One example after the other, each in a step of its own."""
    world = ComparedWorld(rated(1))
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


def test_a_reference_by_the_untrained_weights_is_recorded_as_theirs() -> None:
    class FromUntrained(ComparedWorld):
        def encoded(self, example: str) -> inp.Encoded:
            return msgspec.structs.replace(super().encoded(example), untrained=True)

    world = FromUntrained(rated(1)).up()
    for name in ("a", "b"):
        world.lines(name)
        world.settle()
    assert [e.weights for e in world.of(ev.ExampleEncoded)] == [0, 0] and world.state.training.version == 2
    asked = [e for e in world.seen if isinstance(e, fx.EncodeExamples)]
    assert {e.untrained for e in asked} == {world.state.recovery.base_fingerprint} != {""}


def test_another_journal_goes_on_with_the_figures() -> None:
    world = learning("kto", 0.5, 1.5)
    world.give(ev.ShutdownRequested("test"))
    world.settle()
    assert carried_state(archived(world).state).preferences == world.state.preferences != PreferencesState()


def test_neither_evidence_nor_a_judge_decides_about_what_a_person_said() -> None:
    """The same line twice, once as an answer of a log and once as a rated one."""
    for decided in (False, True):
        world = ComparedWorld(msgspec.structs.replace(rated(1), judge=JudgeSettings(mode="all"))).up()
        line = Line(1, "e", b"{}", of_log=True, decided=decided)
        world.give(inp.LinesRead(Batch("log", "/log", 9, 1, (line,), learn="positive"), frozenset()))
        assert [e.kind for e in world.of(ev.ExampleHeld)] == ([] if decided else ["example.held"])


# --- ratings that wait for others ------------------------------------------------------------------------------------


def steps_of(world: World) -> list[tuple[tuple[str, ...], bool]]:
    return [(ev.all_examples(e), e.together) for e in world.of(ev.StepStarted)]


def test_ratings_wait_until_there_are_enough_for_a_step_and_are_learned_as_one_batch() -> None:
    world = ComparedWorld(rated(3)).up()
    world.lines("a", "b")
    world.settle()
    assert steps_of(world) == [] and world.state.queued == 2 and not world.state.due and not world.state.intake.pending
    told = status(world.state)
    assert (told.gathered, told.ratings_per_step) == (2, 3)
    world.lines("c", "d")
    world.settle()
    assert steps_of(world) == [(("a", "b", "c"), True)], "the fourth waits for others"
    told = status(world.state)
    assert (told.gathered, told.ratings) == (1, 3) and not world.state.training.window


@pytest.mark.parametrize("share_max", [1.0, 0.5])
def test_others_go_on_meanwhile(share_max: float) -> None:
    queue = msgspec.structs.replace(SETTINGS.queue, share_max=share_max)
    world = ComparedWorld(msgspec.structs.replace(rated(3), queue=queue)).up()
    world.lines("a", "b")
    world.settle()
    world.objective = "dpo"
    world.lines("pair")
    world.settle()
    assert steps_of(world) == [(("pair",), False)]
    world.objective = "kto"
    world.lines("c")
    world.settle()
    assert steps_of(world)[1:] == [(("a", "b", "c"), True)]


def test_a_batch_of_ratings_keeps_to_the_memory_of_a_step() -> None:
    """Three of 100 tokens fit into 300; a long one is learned alone."""
    world = ComparedWorld(rated(4, max_tokens=300, hold=0.0))
    world.sizes = {"wide": 250, "": 100}
    world.up()
    world.lines("a", "b", "c", "d", "e", "f", "wide", "g")
    world.settle()
    assert steps_of(world) == [(("a", "b", "c"), True), (("d", "e", "f"), True)]
    assert list(world.state.intake.gathered) == ["wide", "g"]
    world.lines("h", "i")
    world.settle()
    assert steps_of(world)[2:] == [(("wide",), False)] and list(world.state.intake.gathered) == ["g", "h", "i"]


def test_a_rating_whose_batch_failed_waits_for_no_other() -> None:
    world = ComparedWorld(rated(2)).up()
    world.lines("a", "large")
    world.settle()
    assert next((e.examples, e.apart) for e in world.of(ev.StepFailed)) == (("a", "large"), True)
    assert (("a",), False) in steps_of(world) and world.state.preferences.ratings == 1
    assert not world.state.intake.ratings and list(world.state.review.held) == ["large"]


def test_ratings_that_wait_are_taken_out_and_come_back() -> None:
    world = ComparedWorld(rated(3)).up()
    world.lines("a", "b")
    world.settle()
    world.give(inp.ExampleWithdrawn(("a",), "me"))
    assert list(world.state.intake.gathered) == ["b"]
    world.give(inp.RelearnRequested((("a", "bulk"),), "me"))
    world.lines("c")
    world.settle()
    assert [sorted(examples) for examples, _ in steps_of(world)] == [["a", "b", "c"]]


def test_another_journal_and_another_life_go_on_gathering() -> None:
    world = ComparedWorld(rated(3)).up()
    world.objective = "dpo"
    world.lines("pair")
    world.settle()
    world.objective = "kto"
    world.lines("a", "b")
    world.settle()
    world.give(ev.ShutdownRequested("test"))
    world.settle()
    assert list(archived(world).state.intake.ratings) == ["a", "b"]
    world.settings = rated(2)
    world.up()
    world.settle()
    assert steps_of(world)[1:] == [(("a", "b"), True)], "two are enough now"
