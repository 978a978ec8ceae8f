"""Which examples a step learns, at which rate, and what becomes of those it does not learn."""

import math

import msgspec
import pytest
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.fixed_bits import BITS_DEPEND_ON
from apollod.core.schedules import SPIKE_AFTER, UNLEARNED_MAX
from apollod.core.settings import OptimizerSettings


def world(**settings: object) -> World:
    return World(changed(SETTINGS, **settings)).up()


def batches(world: World) -> list[tuple[str, ...]]:
    return [ev.all_examples(e) for e in world.of(ev.StepCompleted)]


def rates(world: World) -> list[float]:
    return [e.lr for e in world.of(ev.StepStarted)]


# --- rates --------------------------------------------------------------------------------------------------------


def test_the_tier_of_an_example_decides_its_rate():
    w = world(lr=1e-5, lr_direct=1e-4)
    w.lines("a")
    w.lines("b", tier="direct", source="ctl")
    w.lines("c", tier="dream", source="dreams")
    w.settle()
    assert [e.tier for e in w.of(ev.ExampleAccepted)] == ["bulk", "direct", "dream"]
    assert {e.example: e.lr for e in w.of(ev.StepStarted)} == {"a": 1e-5, "b": 1e-4, "c": 1e-5}


def test_the_rate_rises_over_the_first_steps_from_the_untrained_weights():
    w = world(warmup_steps=4)
    for name in "abcdef":
        w.lines(name, source=name)
        w.settle()
    assert rates(w) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0] and len(w.of(ev.WindowOpened)) == 6


def test_a_window_of_a_decaying_rate_ends_with_its_examples_and_what_came_meanwhile_has_its_own():
    w = world(schedule="cosine", lr_floor=0.1, warmup=0.25)
    w.lines(*"abcd")
    w.settle_until(fx.RunStep)
    w.lines(*"efgh", source="later")  # the window is open
    w.settle()
    assert [(e.window, e.planned) for e in w.of(ev.WindowOpened)] == [(1, 4), (2, 4)]
    assert [e.window for e in w.of(ev.StepStarted)] == [1] * 4 + [2] * 4
    assert rates(w)[:4] == rates(w)[4:] == sorted(rates(w)[:4], reverse=True) and rates(w)[3] < 0.4


def test_a_window_of_a_constant_rate_goes_on_with_what_comes_meanwhile():
    w = world(warmup=0.5)
    w.lines(*"abcd")
    w.settle_until(fx.RunStep)
    w.lines(*"efgh", source="later")
    w.settle()
    assert len(w.of(ev.WindowOpened)) == 1 and rates(w) == [0.5] + [1.0] * 7


def test_examples_that_are_refused_leave_room_in_their_window():
    w = world(schedule="cosine")
    w.lines("a", "long1", "b")
    w.settle_until(fx.RunStep)
    w.lines("c", "d", source="later")
    w.settle()
    assert [e.window for e in w.of(ev.StepStarted)] == [1, 1, 1, 2]


# --- accumulation -------------------------------------------------------------------------------------------------


def test_a_step_learns_up_to_as_many_examples_as_wait():
    w = world(accumulate=3)
    w.lines(*"abcdefgh")
    w.settle()
    assert batches(w) == [("a", "b", "c"), ("d", "e", "f"), ("g", "h")]
    assert w.state.training.counts.trained == 8 and w.state.queued == 0
    started = w.of(ev.StepStarted)[0]
    assert started.example == "a" and started.digests == tuple(e.digest for e in w.of(ev.ExampleEncoded))[:3]


def test_a_step_of_one_example_is_recorded_as_it_always_was():
    w = world(accumulate=3)
    w.lines("a")
    w.settle()
    assert (w.of(ev.StepStarted)[0].examples, w.of(ev.StepCompleted)[0].examples) == ((), ())


def test_tiers_are_not_mixed():
    w = world(accumulate=4, lr=1e-5, lr_direct=1e-4)
    w.give(inp.PauseRequested("t"))
    w.lines("a", "b")
    w.lines("c", tier="direct", source="ctl")
    w.lines("d", "e", source="later")
    w.lines("f", tier="dream", source="dreams")
    w.settle()
    w.give(inp.ResumeRequested("t"))
    w.settle()
    assert batches(w) == [("c",), ("f",), ("a", "b", "d", "e")] and rates(w) == [1e-4, 1e-5, 1e-5]


def test_a_step_waits_for_tokens_of_the_next_example_rather_than_going_without_it():
    w = world(accumulate=4)
    w.lines("a", "b")
    w.settle_until(fx.EncodeExamples)
    w.lines("c", source="later")  # not asked for yet
    w.settle()
    assert batches(w) == [("a", "b", "c")]


def test_the_rate_and_the_window_count_examples():
    w = world(accumulate=4, schedule="cosine", warmup=0.0, lr_floor=0.0)
    w.lines(*"abcdef")
    w.settle_until(fx.RunStep)
    w.lines("g", source="later")
    w.settle()
    assert batches(w) == [("a", "b", "c", "d"), ("e", "f"), ("g",)]
    assert rates(w)[:2] == pytest.approx([(1 + math.cos(math.pi * 3 / 6)) / 2, (1 + math.cos(math.pi * 5 / 6)) / 2])


@pytest.mark.parametrize("after", range(1, 14))
def test_a_trainer_killed_anywhere_ends_in_the_same_weights(after):
    calm = world(accumulate=2)
    calm.lines(*"abcde")
    calm.settle()
    w = world(accumulate=2)
    w.lines(*"abcde")
    for _ in range(after):
        w.answer()
    if w.state.training.running:
        w.memory = "torn"
    w.exit("trainer")
    w.pass_time(5)
    w.settle()
    assert w.memory == calm.memory and batches(w) == batches(calm) == [("a", "b"), ("c", "d"), ("e",)]


def test_a_step_that_fails_is_taken_apart_and_only_the_example_to_blame_is_held():
    w = world(accumulate=4)
    w.lines("a", "huge", "b", "c", "d")
    w.settle()
    first, second = w.of(ev.StepFailed)
    assert (first.apart, first.examples) == (True, ("a", "huge", "b", "c"))
    assert (second.apart, second.example, second.reason) == (False, "huge", "out of memory")
    assert batches(w) == [("a",), ("b",), ("c",), ("d",)]
    assert (len(w.state.review.held), w.state.training.counts.trained, w.state.queued) == (1, 4, 0)


def test_examples_taken_apart_keep_their_tier():
    w = world(accumulate=2, lr=1e-5, lr_direct=1e-4)
    w.lines("a", "huge", tier="direct")
    w.settle()
    assert rates(w) == [1e-4, 1e-4, 1e-4] and batches(w) == [("a",)]


# --- memory -------------------------------------------------------------------------------------------------------


def test_an_example_that_needs_too_much_memory_is_held_at_once_and_the_next_one_is_learned():
    calm = world()
    calm.lines("a", "b")
    calm.settle()
    w = world()
    w.lines("a", "huge", "b")
    w.settle()
    assert w.of(ev.StepFailed) == [ev.StepFailed(step=2, example="huge", reason="out of memory", attempts=1)]
    assert [(s.step, s.parent, s.example) for s in w.of(ev.StepCompleted)] == [(1, 0, "a"), (3, 1, "b")]
    assert w.of(ev.ReplayVerified)[-1].last == 1, "its torn weights were brought back"
    assert w.of(ev.TrainerExited)[0].expected and not w.state.children.trainer.crashes_ns, (
        "it is not the trainer's fault"
    )


def test_an_example_for_which_memory_ran_out_before_anything_was_written_costs_no_restart():
    w = world()
    w.lines("a", "large", "b")
    w.settle()
    assert w.of(ev.StepFailed) == [
        ev.StepFailed(step=2, example="large", reason="out of memory", attempts=1, torn=False)
    ]
    assert [(s.step, s.parent, s.example) for s in w.of(ev.StepCompleted)] == [(1, 0, "a"), (3, 1, "b")]
    assert not w.of(ev.TrainerExited) and len(w.of(ev.TrainerSpawned)) == 1 and not w.of(ev.ReplayVerified)
    assert len(w.state.review.held) == 1 and w.memory == w.state.training.fingerprint


def test_a_fence_around_a_step_that_wrote_nothing_is_opened():
    w = world(publish="fenced")
    w.lines("a", "large")
    w.settle()
    assert len(w.of(ev.EnginePaused)) == len(w.of(ev.EngineResumed)) == 2 and batches(w) == [("a",)]


def test_trainers_that_died_over_an_example_are_forgotten_when_the_last_one_can_only_not_hold_it():
    w = world()
    w.lines("large", "b")
    w.settle_until(fx.RunStep)
    w.exit("trainer")
    w.pass_time(30)
    w.settle()
    assert w.of(ev.StepFailed)[0].attempts == 2 and not w.state.children.trainer.crashes_ns
    assert batches(w) == [("b",)]


def test_a_trainer_without_memory_to_run_a_step_again_is_ended():
    """It would stay, and recovery would wait for ever."""
    w = world()
    w.lines("a")
    w.settle()
    w.exit("trainer")
    w.pass_time(30)
    w.settle_until(fx.RunStep)
    again = w.asked.popleft()
    assert again.replay
    w.give(inp.StepFailure(again.step, "out of memory", out_of_memory=True, torn=False))
    w.settle()
    assert len(w.of(ev.TrainerExited)) == 2 and not w.of(ev.StepFailed)
    w.pass_time(30)
    w.settle()
    assert w.of(ev.ReplayVerified) and w.memory == w.state.training.fingerprint


def test_no_step_is_given_to_a_trainer_that_is_about_to_leave():
    w = world()
    w.lines("a", "b")
    w.settle_until(fx.RunStep)
    w.asked.popleft()
    w.give(inp.StepFailure(1, "out of memory", out_of_memory=True))
    assert not [e for e in w.asked if isinstance(e, fx.RunStep)]
    w.exit("trainer", 70)
    w.settle()
    assert batches(w) == [("b",)]


def test_other_failures_are_tried_again_as_before():
    w = world()
    w.lines("a")
    w.settle_until(fx.RunStep)
    w.asked.popleft()
    w.give(inp.StepFailure(1, "CUDA error: unspecified launch failure"))
    assert w.state.training.running is not None
    w.exit("trainer", 70)
    w.pass_time(5)
    w.settle()
    assert batches(w) == [("a",)] and not w.of(ev.StepFailed)


def test_trainers_that_died_over_a_held_example_do_not_count_against_the_next():
    w = world()
    for name in ("one", "two"):
        w.lines(name, source=name)
        w.settle_until(fx.RunStep)
        for _ in range(3):
            assert w.state.training.running is not None and not w.state.children.trainer.given_up
            w.exit("trainer")
            w.pass_time(30)
            while w.asked and not isinstance(w.asked[0], fx.RunStep):
                w.answer()
    w.lines("three", source="three")
    w.settle()
    assert [e.example for e in w.of(ev.StepFailed)] == ["one", "two"] and batches(w) == [("three",)]


# --- settings that change -----------------------------------------------------------------------------------------


def test_settings_changed_over_a_crash_are_refused_where_steps_have_to_be_run_again():
    w = world(rank=16, layers="0-1")
    w.lines("a", "b")
    w.settle()
    learned = w.memory
    w.settings = changed(w.settings, layers="1")
    other = w.crash_and_return()
    halted = other.state.daemon.halted
    assert "steps 1 to 2" in halted and "layers = '0-1'" in halted and "'1'" in halted
    assert not other.of(ev.ReplayDiverged), "said before, not after"
    other.give(inp.ResumeRequested("t"))
    other.settle()
    other.pass_time(5)
    other.settle()
    assert "layers" in other.state.daemon.halted
    other.settings = changed(other.settings, layers="0-1", lr=0.5, accumulate=2, loss_max=9.0, schedule="cosine")
    back = other.crash_and_return()
    assert back.memory == learned and not back.state.daemon.halted, "what a step records itself may change"


def test_settings_may_change_once_all_steps_are_in_a_checkpoint():
    w = world(layers="0-1")
    w.lines("a")
    w.settle()
    w.give(inp.CheckpointRequested("test"))
    w.settle()
    w.settings = changed(w.settings, layers="1", betas=(0.8, 0.9))
    other = w.crash_and_return()
    other.lines("b", source="later")
    other.settle()
    assert other.state.training.version == 2 and not other.state.daemon.halted


# --- losses -------------------------------------------------------------------------------------------------------


def test_a_loss_above_the_limit_writes_nothing_and_says_so():
    w = world(loss_max=5.0)
    w.losses["b"] = 5.5
    w.lines("a", "b", "c")
    w.settle()
    assert [(e.example, e.applied, e.loss) for e in w.of(ev.StepCompleted)] == [
        ("a", True, 1.0),
        ("b", False, 5.5),
        ("c", True, 1.0),
    ]
    assert [e.loss_limit for e in w.of(ev.StepStarted)] == [5.0] * 3
    assert w.of(ev.StepCompleted)[0].fingerprint == w.of(ev.StepCompleted)[1].fingerprint
    assert (w.state.training.counts.trained, w.state.training.counts.skipped) == (2, 1)


def test_what_is_known_writes_nothing_and_is_no_reason_to_halt():
    w = world(loss_min=0.001)
    names = [f"known {i}" for i in range(UNLEARNED_MAX + 1)]
    w.losses |= {**dict.fromkeys(names, 0.0001), "broken": math.inf}
    w.lines(*names, "broken", "new")
    w.settle()
    done = w.of(ev.StepCompleted)
    assert [(e.applied, e.known) for e in done] == [(False, True)] * len(names) + [(False, False), (True, False)]
    assert len({e.fingerprint for e in done[:-1]}) == 1 != len({e.fingerprint for e in done[-2:]})
    assert not w.state.daemon.halted
    assert (w.state.training.counts.trained, w.state.training.counts.skipped) == (1, len(names) + 1)


def test_a_spike_is_measured_against_the_losses_of_its_window():
    w = world(loss_spike=3.0)
    names = [f"e{i}" for i in range(SPIKE_AFTER)]
    w.losses |= {"early": 1000.0, "spike": 3.1, "usual": 2.9}
    w.lines(*names, "spike", "usual")
    w.settle()
    assert [e.example for e in w.of(ev.StepCompleted) if not e.applied] == ["spike"]
    assert [e.loss_limit for e in w.of(ev.StepStarted)] == [0.0] * SPIKE_AFTER + [3.0, 3.0], (
        "what was refused is no usual loss"
    )
    w.lines("early", source="another window")
    w.settle()
    assert w.of(ev.StepCompleted)[-1].applied


def test_a_limit_is_the_same_when_the_step_is_run_again():
    w = world(loss_spike=3.0)
    w.losses["spike"] = 9.0
    w.lines(*[f"e{i}" for i in range(SPIKE_AFTER)], "spike", "last")
    w.settle()
    before = w.memory
    w.exit("trainer")
    w.pass_time(5)
    w.settle()
    assert w.memory == before and w.of(ev.ReplayVerified)[-1].last == SPIKE_AFTER + 2 and not w.state.daemon.halted


def test_a_step_that_is_begun_again_has_the_limit_it_had():
    w = world(loss_max=5.0)
    w.lines("a")
    w.settle_until(fx.RunStep)
    first = w.asked[0]
    w.exit("trainer")
    w.pass_time(5)
    w.settle_until(fx.RunStep)
    assert w.asked[0] == first and first.loss_limit == 5.0


@pytest.mark.parametrize("bad", [math.nan, 50.0])
def test_three_steps_in_a_row_that_write_nothing_halt_training_until_resume(bad):
    w = world(loss_max=10.0)
    w.losses |= {"x": bad, "y": bad, "z": bad, "u": bad}
    w.lines("x", "y", "a", "x2", "z", "u", "v", "w", "b")
    w.losses |= {"x2": bad, "v": bad, "w": bad}
    w.settle()
    assert [e.example for e in w.of(ev.StepCompleted)] == ["x", "y", "a", "x2", "z", "u"]
    assert (
        f"{UNLEARNED_MAX} steps in a row wrote nothing" in w.state.daemon.halted
        and "ctl resume" in w.state.daemon.halted
    )
    w.give(inp.ResumeRequested("t"))
    w.settle()
    assert [e.example for e in w.of(ev.StepCompleted)][-3:] == ["v", "w", "b"] and not w.state.daemon.halted, (
        "it counts from the start"
    )


def test_three_examples_in_a_row_for_which_there_is_no_memory_halt_training_before_the_queue_is_used_up():
    w = world()
    w.lines("huge1", "huge2", "huge3", "a", "b")
    w.settle()
    assert "wrote nothing" in w.state.daemon.halted and w.state.queued == 2
    w.give(inp.ResumeRequested("t"))
    w.settle()
    assert batches(w) == [("a",), ("b",)]


def test_damaged_weights_are_not_kept_and_halt_training():
    w = world()
    w.lines("a", "b")
    w.settle_until(fx.RunStep)
    w.give(inp.CheckpointRequested("test"))
    w.answer()
    path = w.of(ev.CheckpointStarted)[0].path
    w.give(inp.CheckpointWritten(1, path, "", 0, 0.0, "the weights hold NaN or infinity in w", damaged=True))
    assert w.of(ev.CheckpointFailed) and "NaN" in w.state.daemon.halted


def test_every_setting_that_the_optimizer_is_given_is_compared_before_steps_are_run_again():
    assert set(BITS_DEPEND_ON) == {field.name for field in msgspec.structs.fields(OptimizerSettings)}


def test_a_new_life_counts_the_steps_that_write_nothing_from_its_start():
    w = world(loss_max=10.0)
    w.losses |= {name: 50.0 for name in "xyz"}
    w.lines("x", "y")
    w.settle()
    other = w.successor()
    other.losses = w.losses
    other.up().lines("z", "a", source="later")
    other.settle()
    assert batches(other)[-2:] == [("z",), ("a",)] and not other.state.daemon.halted


# --- products -----------------------------------------------------------------------------------------------------


def test_steps_are_run_again_in_the_products_they_were_made_in_whatever_this_processor_would_take():
    """Some on a machine without bf16 instructions, some on one with them; all of them again on either."""
    w = World(SETTINGS)
    w.products = "float32"
    w.up()
    w.lines("a", "b")
    w.settle()
    w = w.successor()
    assert [e.products for e in w.of(ev.TrainerBound)] == ["float32"]
    w.up()
    w.lines("c", source="later")
    w.settle()
    learned = w.memory
    for products in ("bf16", "float32"):
        other = w.successor()
        other.products = products
        other.up()
        assert other.memory == learned and not other.of(ev.ReplayDiverged), products


def test_so_they_are_after_a_rollback_and_new_ones_are_in_this_processors():
    w = World(SETTINGS)
    w.products = "float32"
    w.up()
    w.lines("a")
    w.settle()
    first = w.memory
    w = w.crash_and_return()
    w.lines("b", "c", source="later")
    w.settle()
    w.give(inp.RollbackWanted(1, "test"))
    w.settle()
    assert w.memory == first and not w.state.daemon.halted
    again = [step.products for step in w.of(ev.RollbackStarted)[0].replay]
    assert again == ["float32"] and [done.products for done in w.state.recovery.since] == ["float32"]
    w.lines("d", source="last")
    w.settle()
    assert [done.products for done in w.state.recovery.since] == ["float32", "bf16"]
