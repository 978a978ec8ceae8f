"""Comparisons of engine and trainer without a process: when, over how much, who waits for them, and what a difference
leads to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.alignment import (
    CEILINGS,
    FORWARDS,
    JUMP,
    NOTHING,
    NOTICED,
    TOKENS,
    bound_of,
    noticed,
    patience_s,
    tokens_before,
    usual_of,
)


def kinds_of(world: World, *kinds: type[ev.Event]) -> list[str]:
    return [r.event.kind for r in world.journal if isinstance(r.event, kinds)]


def waiting(settings: ev.Settings = SETTINGS) -> World:
    """A trainer is attached while an example waits."""
    world = World(settings)
    world.start()
    world.lines("a", "b", "c")
    world.engine_up()
    return world


def idle(settings: ev.Settings = SETTINGS) -> World:
    """A trainer was attached while nothing waits, and is asked to score the whole text."""
    world = World(settings)
    world.start()
    world.engine_up()
    world.settle_until(fx.ProbeTrainer)
    return world


# --- who waits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", [fx.ProbeTrainer, fx.ScoreProbe])
def test_a_rollback_does_not_wait_for_a_comparison(half):
    """Right after another rollback, say: the comparison that follows an attach is in nobody's way."""
    world = World().up()
    world.lines("a", "b", "c")
    world.settle()
    world.give(inp.RollbackWanted(2, "test"))
    world.settle_until(half)
    world.give(inp.RollbackWanted(1, "test"))
    assert any(isinstance(asked, fx.PlanRollback) for asked in world.asked)
    assert not any(isinstance(asked, fx.ScoreProbe) for asked in world.asked), "nobody wants the engine's answer"
    world.settle()
    assert [e.to for e in world.of(ev.RollbackCompleted)] == [2, 1]
    assert kinds_of(world, ev.RollbackStarted, ev.RollbackCompleted, ev.AlignmentMeasured)[-3:] == [
        "rollback.started", "rollback.completed", "alignment.measured"
    ]  # fmt: skip


@pytest.mark.parametrize("half", [fx.ProbeTrainer, fx.ScoreProbe])
def test_an_example_does_not_wait_for_a_comparison_that_began_while_nobody_waited(half):
    world = idle()
    world.settle_until(half)
    number = world.asked[0].number
    world.lines("a")
    assert [(e.number, e.doubted) for e in world.of(ev.AlignmentAbandoned)] == [(number, False)]
    world.settle()
    kinds = kinds_of(world, ev.AlignmentMeasured, ev.StepStarted)
    assert kinds == ["alignment.measured", "step.started", "alignment.measured"], "a short one, the step, a whole one"
    assert [e.tokens for e in world.of(ev.AlignmentStarted)] == [TOKENS, tokens_before(0), TOKENS]


def test_a_checkpoint_that_is_due_does_not_end_it():
    """It would be due again and again after a rollback, and a step could come before any comparison."""
    world = World().up()
    world.lines("a", "b")
    world.settle()
    world.give(inp.RollbackWanted(1, "test"))
    world.settle()
    kinds = kinds_of(world, ev.RollbackCompleted, ev.AlignmentMeasured, ev.AlignmentAbandoned, ev.CheckpointStarted)
    assert kinds[kinds.index("rollback.completed") :] == ["rollback.completed", "alignment.measured"]
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    world.give(inp.RollbackWanted(0, "test"))
    world.settle()
    kinds = kinds_of(world, ev.RollbackCompleted, ev.AlignmentMeasured, ev.AlignmentAbandoned, ev.CheckpointStarted)
    assert kinds[-3:] == ["rollback.completed", "alignment.measured", "checkpoint.started"]


def test_whatever_else_the_trainer_is_asked_ends_it_and_it_is_made_again():
    world = idle()
    world.give(inp.Probed(0, number=world.asked.popleft().number, gave_way=True))
    world.settle()
    assert world.of(ev.AlignmentAbandoned) and world.state.alignment.measured is not None


def test_a_step_begins_beside_a_comparison_that_takes_the_engine_too_long():
    world = waiting()
    world.settle_until(fx.ScoreProbe)
    score = world.asked[0]
    assert score.patience_s == patience_s(10, 2, 0.01)
    world.late()
    assert world.state.training.running is not None and world.state.alignment.open is not None
    world.answer()
    world.answer()
    world.settle()
    assert [e.number for e in world.of(ev.AlignmentOvertaken)] == [score.number]
    assert world.state.training.version == 3 and world.state.daemon.halted == ""
    assert world.of(ev.AlignmentMeasured)[0].number == score.number


def test_a_difference_that_a_step_may_have_made_is_looked_at_again_at_rest_before_the_next_one():
    world = waiting()
    world.settle_until(fx.ScoreProbe)
    score = world.asked[0]
    world.late()
    assert world.asked.pop() is score and world.state.training.running is not None
    world.give(inp.Scored(0, score.number, "ids", score.trainer, (-9.0,), 0.1))
    assert [e.doubted for e in world.of(ev.AlignmentAbandoned)] == [True] and not world.state.daemon.halted
    world.settle_until(fx.ScoreProbe)
    again = world.of(ev.AlignmentStarted)[-1]
    assert (again.step, again.tokens, again.gives_way) == (1, TOKENS, False) and world.asked[0].patience_s is None
    assert world.state.training.running is None, "the next step waits for as long as it takes"
    score = world.asked.popleft()
    world.give(inp.Scored(1, score.number, "ids", score.trainer, (-9.0,), 0.1))
    world.settle()
    assert "give other log-probabilities" in world.state.daemon.halted and world.state.training.version == 1


def test_a_few_tokens_halt_nothing_but_no_step_begins_before_all_of_them_are_compared():
    world = waiting()
    world.settle_until(fx.ScoreProbe)
    score = world.asked.popleft()
    world.give(inp.Scored(0, score.number, "ids", score.trainer, (-9.0,), 0.1))
    world.settle_until(fx.ScoreProbe)
    assert world.of(ev.AlignmentAbandoned)[-1].doubted and not world.of(ev.AlignmentMeasured)
    whole = world.of(ev.AlignmentStarted)[-1]
    assert (whole.tokens, whole.gives_way, world.of(ev.StepStarted)) == (TOKENS, False, [])
    world.settle()
    assert world.state.training.version == 3 and not world.state.daemon.halted and not world.state.alignment.doubted


def test_a_rollback_waits_until_it_is_known_where_a_difference_comes_from():
    world = World(changed(SETTINGS, align_every=1)).up()
    world.lines("a", "b")
    world.settle()
    world.lines("c", source="g")
    world.view = type(world.view)(world.view.weights)
    while not world.state.alignment.differs:
        world.answer()
    world.give(inp.RollbackWanted(1, "test"))
    assert world.state.alignment.open and not any(isinstance(asked, fx.PlanRollback) for asked in world.asked)
    while not world.state.daemon.halted:
        world.answer()
    assert "w (another memory)" in world.state.daemon.halted


def test_an_answer_about_an_earlier_trainer_says_nothing_about_this_one():
    world = waiting()
    world.settle_until(fx.ScoreProbe)
    old = world.asked[0]
    world.exit("trainer")
    world.pass_time(2)
    while not (world.state.alignment.open and world.state.alignment.open.number != old.number):
        world.answer()
    assert world.give(inp.Scored(0, old.number, "ids", old.trainer, old.trainer, 0.1)) == []


# --- how much -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [54, 89, 300, 900, 4096, 32768])
def test_a_step_waits_at_most_a_twentieth_of_what_it_costs(step):
    """A forward pass over n tokens takes n seconds here, and a step three times as long as one over its own."""
    probe = tokens_before(step)
    assert probe + patience_s(step, probe, float(probe)) <= 0.05 * FORWARDS * step + 1e-6
    assert probe <= TOKENS


# --- when -----------------------------------------------------------------------------------------------------------


def test_the_first_comparison_comes_before_the_first_step_and_then_every_n():
    world = World(changed(SETTINGS, align_every=2))
    world.start()
    world.lines(*"abcde")
    world.engine_up()
    world.settle()
    kinds = kinds_of(world, ev.StepCompleted, ev.AlignmentStarted, ev.AlignmentMeasured)
    pair, steps = ["alignment.started", "alignment.measured"], ["step.completed"] * 2
    assert kinds == [*pair, *steps, *pair, *steps, *pair, "step.completed", *pair]
    assert [e.step for e in world.of(ev.AlignmentMeasured)] == [0, 2, 4, 5] and world.state.alignment.measured.aligned
    assert [e.gives_way for e in world.of(ev.AlignmentStarted)] == [False] * 3 + [True], "the last one: nobody waits"


def test_no_step_begins_between_the_two_halves_of_a_comparison():
    world = waiting()
    world.settle_until(fx.ScoreProbe)
    world.give(inp.EncodeDone([world.encoded("a")]))
    assert world.state.alignment.open and not world.of(ev.StepStarted)
    world.settle()
    assert world.state.training.version == 3


def test_a_trainer_on_another_memory_halts_training_with_the_names():
    world = World(changed(SETTINGS, align_every=1)).up()
    world.view = type(world.view)(world.view.weights)
    world.lines("a", "b")
    world.settle()
    assert "weights not shared" in world.state.daemon.halted and "w (another memory)" in world.state.daemon.halted
    assert len(world.of(ev.StepCompleted)) == 1, "no second step on weights that nobody serves"
    measured = world.of(ev.AlignmentMeasured)[-1]
    assert (measured.mean_abs_diff, measured.aligned, measured.tokens) == (1.0, False, 1)


def test_a_difference_that_is_no_number_is_not_aligned():
    world = World()
    world.start()
    world.engine_up()
    world.settle_until(fx.ScoreProbe)
    world.asked.popleft()
    world.give(inp.Scored(0, 1, "ids", (-1.0, float("-inf")), (-1.0, -2.0), 0.1))
    measured = world.of(ev.AlignmentMeasured)[-1]
    assert (measured.nonfinite, measured.aligned, measured.mean_abs_diff) == (1, False, 0.0)


@pytest.mark.parametrize("half", ["trainer", "engine"])
def test_a_comparison_that_fails_is_recorded_and_training_goes_on(half):
    world = World()
    world.start()
    world.lines("a")
    world.engine_up()
    world.settle_until(fx.ProbeTrainer if half == "trainer" else fx.ScoreProbe)
    world.asked.popleft()
    failed = inp.Scored(0, 1, "", (), (), 0.0, "HTTP 400")
    world.give(inp.Probed(0, error="too long", number=1) if half == "trainer" else failed)
    world.settle()
    assert [e.step for e in world.of(ev.AlignmentFailed)] == [0] and world.state.training.version == 1


@pytest.mark.parametrize("who", ["trainer", "engine", "supervisor"])
@pytest.mark.parametrize("at", [fx.ProbeTrainer, fx.ScoreProbe])
def test_a_comparison_that_a_death_interrupts_is_made_again(who, at):
    world = World()
    world.start()
    world.lines("a")
    world.engine_up()
    world.settle_until(at)
    if who == "supervisor":
        world = world.crash_and_return()
    else:
        world.exit(who)
        world.settle()
        world.pass_time(5)
        if who == "engine":
            world.engine_up()
        world.settle()
    assert (
        world.state.training.version == 1
        and world.state.alignment.open is None
        and world.state.alignment.measured is not None
    )


def test_after_a_death_in_a_step_the_step_comes_first():
    world = World().up()
    world.lines("a")
    world.settle_until(fx.RunStep)
    world.exit("trainer")
    world.pass_time(2)
    world.settle()
    assert kinds_of(world, ev.StepCompleted, ev.AlignmentStarted)[-2:] == ["step.completed", "alignment.started"]


def test_answers_that_nobody_waits_for_change_nothing():
    world = World().up()
    for answer in (
        inp.Probed(0, (1, 2), (-1.0,), number=1),
        inp.Probed(0, number=1, gave_way=True),
        inp.ScoreLate(1),
        inp.Scored(0, 1, "ids", (-1.0,), (-9.0,), 0.1),
        inp.Compared(0, {"w": "x"}, number=1),
    ):
        assert world.give(answer) == [] and not world.asked


# --- the bound ------------------------------------------------------------------------------------------------------


def scored(world: World, apart: float, kind: str = "dense", probe: str = "ids") -> ev.AlignmentMeasured:
    """The next comparison is answered with this difference, and its tensors as they are."""
    world.settle_until(fx.ScoreProbe)
    asked = world.asked.popleft()
    world.give(inp.Scored(asked.step, asked.number, probe, (-1.0,), (-1.0 - apart,), 0.1, kind=kind))
    measured = world.of(ev.AlignmentMeasured)[-1]
    world.settle()
    return measured


def lived(*apart: float, settings: ev.Settings = SETTINGS) -> World:
    """At rest, after whole comparisons with these differences, a step before each but the first."""
    world = idle(changed(settings, align_every=1))
    for number, one in enumerate(apart):
        if number:
            world.lines(f"example {number}")
            world.settle_until(fx.ScoreProbe)
            while world.state.alignment.open.tokens != TOKENS:  # the short one before the step
                world.answer()
                world.settle_until(fx.ScoreProbe)
        scored(world, one)
    return world


def again(world: World, apart: float, probe: str = "ids") -> ev.AlignmentMeasured:
    """One more step, and the whole comparison after it."""
    world.lines(f"one more {world.state.training.version}")
    world.settle_until(fx.ScoreProbe)
    while world.state.alignment.open.tokens != TOKENS:
        world.answer()
        world.settle_until(fx.ScoreProbe)
    return scored(world, apart, probe=probe)


@pytest.mark.parametrize("kind", CEILINGS)
@pytest.mark.parametrize("configured", [0.0, 0.5])
def test_the_bound_is_that_of_the_kind_of_model_unless_one_is_set(kind, configured):
    world = idle(changed(SETTINGS, align_max=configured))
    bound = configured or CEILINGS[kind]
    measured = scored(world, bound * 1.01, kind)
    assert (measured.bound, measured.aligned) == (bound, False)


def test_a_real_models_rounding_halts_nothing_once_every_tensor_is_the_same():
    """SmolLM2-135M at its first attach: 0.0535, which halted it when the bound was 0.05."""
    world = idle()
    measured = scored(world, 0.0535)
    assert measured.aligned and measured.compares == "not compared since the trainer was attached"
    compared = world.of(ev.AlignmentCompared)
    assert [(e.number, e.differing) for e in compared] == [(measured.number, 0)]
    assert world.state.alignment.same == 0 and world.state.alignment.open is None and not world.state.daemon.halted


def test_a_tensor_that_differs_halts_however_little_the_log_probabilities_do():
    """A private copy, say, that has the same values still."""
    world = idle()
    world.view = type(world.view)(world.view.weights)
    measured = scored(world, 0.0)
    assert measured.aligned and "weights not shared" in world.state.daemon.halted
    assert "w (another memory)" in world.state.daemon.halted
    assert [e.names for e in world.of(ev.AlignmentCompared)] == [{"w": "another memory"}]


def test_a_mistake_in_a_models_code_halts_without_a_tensor_that_differs():
    world = idle()
    measured = scored(world, CEILINGS["dense"] * 1.01)
    assert not measured.aligned and world.of(ev.AlignmentCompared)[-1].differing == 0
    assert "weights not shared" not in world.state.daemon.halted
    assert "every tensor is the same" in world.state.daemon.halted and "align_max" in world.state.daemon.halted


def test_tensors_are_compared_at_an_attach_and_once_after_a_write():
    world = lived(0.02, 0.02, 0.02, 0.02)
    assert [e.step for e in world.of(ev.AlignmentCompared)] == [0, 1]
    numbers = {started.number for started in world.of(ev.AlignmentStarted) if started.whole}
    whole = [e for e in world.of(ev.AlignmentMeasured) if e.number in numbers]
    assert [e.usual for e in whole] == pytest.approx([0.0, 0.02, 0.02, 0.02])


def test_more_than_usual_has_the_tensors_compared_and_training_goes_on():
    world = lived(0.02, 0.02, 0.02)
    measured = again(world, 0.02 * NOTICED * 1.2)
    assert measured.aligned and "1.8 times" in measured.compares
    assert world.state.alignment.same == measured.step and not world.state.daemon.halted


def test_a_jump_beyond_its_own_past_halts():
    world = lived(0.02, 0.02, 0.02)
    measured = again(world, 0.02 * JUMP * 1.01)
    assert not measured.aligned and measured.bound == pytest.approx(JUMP * 0.02)
    assert "usually 0.02" in world.state.daemon.halted


def test_a_little_more_over_a_few_tokens_has_everything_compared_before_the_next_step_and_halts_nothing():
    """The real model before its first step: nothing is known of what is usual yet."""
    world = waiting()
    world.settle_until(fx.ScoreProbe)
    score = world.asked.popleft()
    world.give(inp.Scored(0, score.number, "short", score.trainer, (-1.06,), 0.1))
    assert world.of(ev.AlignmentAbandoned)[-1].doubted
    measured = scored(world, 0.0556)
    assert measured.compares == "engine and trainer differed over a few tokens" and not world.state.daemon.halted
    kinds = kinds_of(world, ev.AlignmentCompared, ev.StepStarted)
    assert kinds[:2] == ["alignment.compared", "step.started"] and world.state.training.version == 3


def test_a_jump_from_next_to_nothing_halts_nothing():
    world = lived(0.001, 0.001)
    assert again(world, NOTHING["dense"] * 0.99).aligned and not world.state.daemon.halted


def test_the_past_is_of_this_text():
    """Another tokenizer, another length: other tokens have another usual mean."""
    world = lived(0.02, 0.02, 0.02)
    measured = again(world, 0.1, probe="other ids")
    assert (measured.usual, measured.bound, measured.aligned) == (0.0, CEILINGS["dense"], True)
    assert world.state.alignment.past == pytest.approx([0.1])


def test_comparing_tensors_gives_way_to_an_example_and_is_made_again():
    world = idle()
    world.settle_until(fx.ScoreProbe)
    world.answer()
    assert world.state.alignment.comparing and world.asked[0].digests and world.asked[0].gives_way
    world.lines("a")
    assert [e.doubted for e in world.of(ev.AlignmentAbandoned)] == [False]
    world.settle()
    assert world.state.training.version == 1 and [e.step for e in world.of(ev.AlignmentCompared)] == [1]


def test_a_trainer_without_digests_is_a_warning_and_not_asked_for_ever():
    world = idle()
    world.settle_until(fx.ScoreProbe)
    world.answer()
    asked = world.asked.popleft()
    assert asked.digests
    world.give(inp.Probed(asked.step, (1, 2), (-1.0,), number=asked.number))
    world.settle()
    assert [e.reason for e in world.of(ev.AlignmentFailed)] == ["the trainer gave no digests"]
    assert len(world.of(ev.AlignmentMeasured)) == 1


def test_tensors_that_cannot_be_compared_are_a_warning_and_not_asked_for_again():
    world = idle()
    world.settle_until(fx.CompareWeights)
    asked = world.asked.popleft()
    world.give(inp.Compared(asked.step, error="out of memory", number=asked.number))
    world.settle()
    assert [e.reason for e in world.of(ev.AlignmentFailed)] == ["out of memory"]
    assert world.state.alignment.open is None and not world.state.daemon.halted


def test_a_new_trainer_is_looked_at_anew():
    world = lived(0.02, 0.02, 0.02)
    world.exit("trainer")
    world.settle()
    world.pass_time(5)
    world.settle()
    assert [e.step for e in world.of(ev.AlignmentCompared)] == [0, 1, 2]
    assert world.state.alignment.past[:3] == pytest.approx([0.02] * 3), "what is usual outlives it"


@given(st.lists(st.floats(0.0, 1.0), max_size=20), st.floats(0.0, 1.0), st.sampled_from(sorted(CEILINGS)))
def test_the_bound_stays_between_what_halts_nothing_and_the_ceiling(past, mean, kind):
    usual = usual_of(past)
    assert NOTHING[kind] <= bound_of(kind, 0.0, usual) <= CEILINGS[kind]
    assert bound_of(kind, 0.7, usual) == 0.7
    assert not noticed(mean, usual) or mean > usual > 0
