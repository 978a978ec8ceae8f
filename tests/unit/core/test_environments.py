"""Environments: which groups are sampled, when they are learned, and when nothing more is."""

import math

import msgspec
import pytest
from support.rewarded_world import HEALTHY, RewardedWorld, rewarding
from support.world import Died, changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.environments import Environment, EnvironmentPaused, EnvironmentResumed, Figures
from apollod.core.rules.environments import status
from apollod.core.settings import EnvironmentSettings


def up(*environments: EnvironmentSettings) -> RewardedWorld:
    world = RewardedWorld(rewarding(*environments))
    world.up()
    return world


def sums(world: RewardedWorld) -> Environment:
    return world.state.environments.named["sums"]


def asked(world: RewardedWorld) -> list[int]:
    return [one.number for one in world.calls]


def test_as_many_groups_are_asked_for_as_may_wait() -> None:
    world = up()
    assert asked(world) == [1, 2]
    world.group()
    assert asked(world) == [2], "the first one waits for its step"
    world.settle()
    assert world.state.training.version == 1 and asked(world) == [2, 3]
    assert world.of(ev.ExampleAccepted)[0] == ev.ExampleAccepted(
        "sums1", msgspec.Raw(b'{"group":{}}'), "environment:sums", 1, "rollout", teacher="f" * 32
    )


def test_a_group_without_spread_is_counted_and_not_learned() -> None:
    world = up()
    assert world.group(1.0, 1.0) == ""
    assert sums(world).flat == 1 and asked(world) == [2, 3] and not world.of(ev.ExampleAccepted)
    assert world.of(ev.GroupSampled)[0].reason == "all answers have the same score"


def test_groups_may_come_in_any_order_and_each_is_taken_once() -> None:
    world = up()
    first, second = world.calls
    world.calls.reverse()
    world.group()
    assert (sums(world).last, sums(world).done) == (0, (2,))
    world.calls.insert(0, second)
    world.group()
    assert len(world.of(ev.ExampleAccepted)) == 1, "the same group came twice"
    assert first in world.calls
    world.group()
    assert (sums(world).last, sums(world).done) == (2, ())


def test_the_same_prompts_are_asked_for_after_a_crash() -> None:
    world = up()
    world.group()
    world.settle()
    before = asked(world)
    after = world.successor()
    after.up()
    assert asked(after) == before == [2, 3] and sums(after) == sums(world)


@pytest.mark.parametrize("dies_at", range(1, 60, 2))
def test_a_death_at_any_instant_loses_no_prompt_and_learns_no_group_twice(dies_at: int) -> None:
    world = RewardedWorld(rewarding(), dies_at)
    while True:
        try:
            world.up()
            while sums(world).last < 5:
                world.group()
                world.settle()
            break
        except Died:
            world = world.successor()
    numbers = [e.number for e in world.of(ev.GroupSampled)]
    assert sorted(numbers) == sorted({*numbers}) and {1, 2, 3, 4, 5} <= {*numbers}
    learned = [e.example for e in world.of(ev.StepCompleted)]
    assert len(learned) == len({*learned}) and {f"sums{number}" for number in range(1, 6)} <= {*learned}


def test_direct_examples_keep_their_rate_and_groups_have_that_of_their_environment() -> None:
    world = up(EnvironmentSettings("sums", lr=3e-5, ahead=1), EnvironmentSettings("words", ahead=1))
    assert [one.environment for one in world.calls] == ["sums", "words"]
    world.group()
    world.group()
    world.lines("x", tier="direct")
    world.settle()
    assert [(e.example, e.lr) for e in world.of(ev.StepStarted)] == [("sums1", 3e-5), ("words1", 1.0), ("x", 1e-4)]


def test_a_step_says_how_the_group_went() -> None:
    world = up()
    world.metrics = HEALTHY | {"ratio": 1.1, "kl": 0.02}
    world.group(1.0, 0.0, 0.0, 0.0)
    world.settle()
    (told,) = sums(world).recent
    assert told == Figures(1, 0.25, pytest.approx(0.433, abs=1e-3), 10.0, 0, 1.1, 0.0, 0.02, 1.0)
    (shown,) = status(world.state, world.now)
    assert (shown.name, shown.state, shown.learned, shown.reward, shown.ratio) == ("sums", "active", 1, 0.25, 1.1)


def test_a_group_of_weights_that_are_too_old_is_not_learned() -> None:
    world = up(EnvironmentSettings("sums", age_max=2))
    world.lines("a", "b", "c")
    world.settle()
    world.group(first=1)
    world.group(first=0)
    assert [(e.examples, e.by) for e in world.of(ev.ExampleWithdrawn)] == [(("sums2",), "apollod")]
    world.settle()
    assert [e.example for e in world.of(ev.StepStarted)][3:] == ["sums1"]
    assert sums(world).recent[0].age == 2 and sums(world).outdated == 1


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_prompt_that_fails_three_times_is_given_up_and_the_next_one_is_asked_for() -> None:
    world = up(EnvironmentSettings("sums", ahead=1))
    for attempt in (1, 2, 3):
        assert [(one.number, one.attempt) for one in world.calls] == [(1, attempt)]
        world.failed("it broke")
        assert not world.calls, "not at once"
        world.pass_time(10.0)
    assert asked(world) == [2] and sums(world).failed == 1
    assert [e.given_up for e in world.of(ev.GroupFailed)] == [False, False, True]
    world.group()
    assert sums(world).reason == "" and sums(world).retry.failures == 0


def test_an_environment_that_does_not_answer_loses_no_prompt() -> None:
    world = up(EnvironmentSettings("sums", ahead=1))
    for _ in range(6):
        world.failed("no connection", outside=True)
        world.pass_time(400.0)
    assert asked(world) == [1] and sums(world).failed == 0 and sums(world).reason == "no connection"


def test_a_prompt_that_cannot_be_asked_is_given_up_at_once() -> None:
    world = up(EnvironmentSettings("sums", ahead=1))
    world.failed("too long", "sample", for_good=True)
    world.pass_time(10.0)
    assert asked(world) == [2] and sums(world).failed == 1


def test_a_group_that_cannot_be_tokenised_makes_room_for_the_next_one() -> None:
    world = up(EnvironmentSettings("long", ahead=1))
    world.group()
    world.settle()
    assert world.of(ev.ExampleRejected) and asked(world) == [2]
    assert world.state.environments.named["long"].outdated == 1


# --- pauses -----------------------------------------------------------------------------------------------------------


def test_a_person_pauses_an_environment_and_its_groups_are_not_learned() -> None:
    world = up()
    world.group()
    world.give(EnvironmentPaused("sums", "ada", "the scores are wrong"))
    assert [e.examples for e in world.of(ev.ExampleWithdrawn)] == [("sums1",)]
    world.calls.clear()
    world.settle()
    world.pass_time(60.0)
    assert not world.calls and world.state.training.version == 0
    assert [(one.state, one.reason) for one in status(world.state, world.now)] == [("paused", "the scores are wrong")]
    world.give(EnvironmentPaused("sums", "bob"))
    world.give(EnvironmentResumed("sums", "ada"))
    assert asked(world) == [2, 3] and len(world.of(EnvironmentPaused)) == 1


def test_no_group_is_sampled_before_the_look_that_steps_wait_for() -> None:
    """It would age, and keep the engine from the probes."""
    world = RewardedWorld(changed(rewarding(), every_steps=5))
    world.up()
    assert not world.calls
    (shown,) = status(world.state, world.now)
    assert shown.state == "waiting" and "the probes of quality are asked first" in shown.reason


def test_a_pause_of_training_asks_for_no_groups() -> None:
    world = up()
    world.calls.clear()
    world.give(inp.TrainingPaused("ada"))
    world.pass_time(1.0)
    assert not world.calls
    (shown,) = status(world.state, world.now)
    assert shown.state == "waiting" and "paused by ada" in shown.reason


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"ratio": 1.31}, "mean ratio 1.31 (0.8 to 1.2)"),
        ({"ratio": 0.5, "clipped": 0.4}, "mean ratio 0.5 (0.8 to 1.2), clipped share 0.40 (at most 0.3)"),
        ({"entropy": 0.001}, "entropy 0.001 nats a token (at least 0.01)"),
    ],
)
def test_steps_that_are_not_healthy_pause_their_environment(figures: dict[str, float], said: str) -> None:
    world = up(EnvironmentSettings("sums", ahead=1, rails=3))
    for bad in (True, True, False, True, True, True):
        assert not world.of(EnvironmentPaused)
        world.metrics = HEALTHY | (figures if bad else {})
        world.group()
        world.settle()
    (paused,) = world.of(EnvironmentPaused)
    assert (paused.environment, paused.by) == ("sums", "apollod")
    assert paused.reason == f"3 steps in a row were not healthy, the last one: {said}"
    assert not world.calls[1:] and world.state.daemon.halted == ""
    world.calls.clear()
    world.lines("others learn on")
    world.settle()
    assert world.state.training.version == 7
    world.give(EnvironmentResumed("sums", "ada"))
    assert len(world.calls) == 1 and sums(world).unhealthy == 0


def test_groups_that_write_nothing_pause_their_environment_and_halt_nothing_else() -> None:
    world = up(EnvironmentSettings("sums", ahead=1, rails=5))
    for number in range(1, 6):
        world.losses[f"sums{number}"] = math.nan
    for _ in range(5):
        world.group()
        world.settle()
    (paused,) = world.of(EnvironmentPaused)
    assert "it wrote nothing: loss nan" in paused.reason and not world.of(ev.TrainingHalted)
    world.lines("others learn on")
    world.settle()
    assert world.state.training.counts.trained == 1


def test_rails_may_be_off() -> None:
    world = up(EnvironmentSettings("sums", ahead=1, rails=0))
    world.metrics = HEALTHY | {"ratio": 9.0}
    for _ in range(10):
        world.group()
        world.settle()
    assert not world.of(EnvironmentPaused) and sums(world).unhealthy == 10


def test_answers_that_become_much_longer_are_not_healthy() -> None:
    world = up(EnvironmentSettings("sums", ahead=1, rails=2))
    for tokens in [40] * 8 + [119, 121, 130]:
        world.group(tokens=tokens)
        world.settle()
    (paused,) = world.of(EnvironmentPaused)
    assert paused.reason.endswith("65 tokens an answer (7 to 60)")
