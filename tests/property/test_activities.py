"""What excludes what: over random lives, nothing begins while something that it waits for is in its way."""

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.test_core_properties import ANY, EVERY, play
from support.effort import draws
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.judged_world import JudgedWorld, configured
from support.world import SETTINGS, World, changed

from apollod.core import activities
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import WAITS_FOR, Activity, Obstacle, blocked
from apollod.core.facts.updates import OBJECTIVE
from apollod.core.fold import fold
from apollod.core.state import State

BEGINS: Mapping[type[ev.Event], Activity] = {
    ev.StepStarted: Activity.STEP,
    ev.WindowClosed: Activity.WINDOW_END,
    ev.CheckpointRemoved: Activity.REMOVAL,
    ev.AlignmentStarted: Activity.ALIGNMENT,
    ev.TrainerSpawned: Activity.RECOVERY,
    ev.ScoreRequested: Activity.SCORING,
    ev.RescoreRequested: Activity.RESCORING,
}
"""The fact that shows that an activity began; a checkpoint says itself why."""


def begun(event: ev.Event, state: State) -> Activity | None:
    if isinstance(event, ev.CheckpointStarted):
        return Activity.CHECKPOINT if event.why == "due" else Activity.REQUESTED_CHECKPOINT
    if isinstance(event, ev.StepStarted) and event.objective == OBJECTIVE:
        return Activity.UPDATE if state.updates.session is not None else Activity.STEP
    if isinstance(event, ev.UpdateOpened):
        return Activity.LEASE
    if isinstance(event, ev.ScoreRequested) and event.after:
        return Activity.SECOND_SCORING
    return BEGINS.get(type(event))


@draws(120, 400)
@given(st.lists(ANY, max_size=60), EVERY)
def test_nothing_begins_while_it_is_blocked(actions, training):
    state = State()
    for recorded in play(actions, training).journal:
        if (activity := begun(recorded.event, state)) is not None:
            assert not blocked(activity, state), (recorded.event, blocked(activity, state))
            assert not in_the_way(activity, state), (recorded.event, in_the_way(activity, state))
        fold(state, recorded)


def in_the_way(activity: Activity, state: State) -> list[str]:
    """What must never be seen when these begin, written down apart from the table."""
    daemon = state.daemon
    at_rest = {
        "step": state.training.running, "alignment": state.alignment.waited_for, "checkpoint": state.checkpoints.open,
        "comparison": state.alignment.open,
        "rollback": state.rollback.wanted or state.rollback.under_way, "fence": state.publishing.engine_paused,
        "paused": daemon.paused, "halted": daemon.halted, "stopping": daemon.stopping,
        "alarm": state.quality.incident, "look": state.quality.open,
        "lease": state.updates.session,
        "no trainer": state.children.trainer.phase != "ready", "no engine": state.children.engine.phase != "ready",
    }  # fmt: skip
    guard = {"alarm", "look", "lease"}
    excluded = {
        Activity.STEP: at_rest.keys() - {"checkpoint", "comparison", "no engine"},
        Activity.LEASE: {"lease", "alarm", "look", "halted", "paused", "stopping", "no engine"},
        Activity.UPDATE: at_rest.keys() - {"alarm", "checkpoint", "comparison", "lease", "paused"},
        Activity.WINDOW_END: {"alarm", "fence", "no trainer", "rollback", "step"},
        Activity.CHECKPOINT: at_rest.keys() - {"no engine", "paused", "step", *guard},
        Activity.REQUESTED_CHECKPOINT: {"checkpoint", "no trainer"},
        Activity.REMOVAL: {"checkpoint", "rollback", "stopping"},
        Activity.ALIGNMENT: at_rest.keys() - {"paused", *guard},
        Activity.RECOVERY: {"halted", "stopping"},
        Activity.SCORING: {"stopping", "no engine", "fence", "rollback"},
        Activity.RESCORING: at_rest.keys() - {"checkpoint", "no engine", "paused", "look", "lease"},
        Activity.SECOND_SCORING: {"stopping", "no engine", "no trainer", "fence", "rollback", "step"},
    }  # fmt: skip
    return sorted(name for name in excluded[activity] if at_rest[name])


def obstacles() -> dict[str, Obstacle]:
    return {value.name: value for value in vars(activities).values() if isinstance(value, Obstacle)}


def with_obstacle(name: str) -> State:
    """A state with this in the way, made by a life, not by hand."""
    world = World(
        changed(
            SETTINGS,
            nightly="02:00-05:00" if name in ("day", "hours") else "",
            dream="night" if name == "dreams by night" else "any",
            publish="fenced" if name == "fence" else "hogwild",
            align_every=int(name in ("alignment", "comparison", "difference")),
            hold=float(name == "anchors"),
        )
    )
    if name == "judge waits for engine":
        world = JudgedWorld()
        world.judge = configured(served=True)
        world.start()
        return world.state
    if name in ("alarm", "incident", "look due"):
        guard = GuardedWorld(guarded(resume="manual"))
        guard.answers, guard.poison = name != "look due", {"bad": ITEMS}
        guard.up()
        guard.lines("a", "b", "bad")
        guard.settle()
        return guard.state
    if name == "no engine process":
        return world.state
    if name == "no engine" or name == "no trainer" or name == "recovery":
        world.start()
        world.settle()
        return world.state
    if name == "anchors":
        world.start()
        world.settle()
        world.engine_up()
        world.settle_until(fx.FreezeAnchor)
        return world.state
    world.up()
    world.lines("a", "b", "c")
    match name:
        case "stopping":
            world.give(inp.ShutdownRequested("t"))
        case "halted":
            world.give(inp.Refused("step", "no"))
        case "paused":
            world.give(inp.TrainingPaused("ctl"))
        case "fence":
            while not world.state.publishing.engine_paused:
                world.answer()
        case "step":
            while world.state.training.running is None:
                world.answer()
        case "checkpoint" | "orphaned checkpoint":
            world.give(inp.CheckpointRequested("t"))
            if name != "checkpoint":
                world.exit("trainer")
        case "alignment" | "comparison":
            while not world.state.alignment.waited_for:
                world.answer()
            if name == "comparison":
                world.settle_until(fx.ScoreProbe)
                world.late()
                assert not world.state.alignment.waited_for
        case "difference":
            world.view = type(world.view)(world.view.weights)
            while not world.state.alignment.differs:
                world.answer()
        case "rollback wanted":
            while world.state.training.running is None:
                world.answer()
            world.give(inp.RollbackRequested(0, "t"))
        case "forgetting":
            world.settle()
            world.give(inp.ForgetRequested(("b",), "t", ""))
            while world.state.forgetting.under_way is None:
                world.answer()
        case "leased":
            world.settle()
            world.give(inp.UpdateOpening("vllm", "t"))
        case "rollback":
            world.settle()
            world.give(inp.RollbackRequested(1, "t"))
            while world.state.rollback.under_way is None:
                world.answer()
    return world.state


@pytest.mark.parametrize("name", sorted(obstacles()))
def test_every_obstacle_can_be_in_the_way_and_says_why(name):
    assert obstacles()[name].reason(with_obstacle(name))


@pytest.mark.parametrize(("activity", "name"), list(product(Activity, sorted(obstacles()))), ids=str)
def test_every_pair(activity, name):
    """With one obstacle in the way an activity is blocked if the table says so, and by whatever else that state has."""
    state = with_obstacle(name)
    reasons = [obstacle.reason(state) for obstacle in WAITS_FOR[activity]]
    assert bool(blocked(activity, state)) == any(reasons)
    if obstacles()[name] in WAITS_FOR[activity]:
        assert blocked(activity, state)


def test_what_cannot_run_beside_each_other_waits_for_each_other():
    under_way = {
        Activity.STEP: activities.STEP, Activity.CHECKPOINT: activities.CHECKPOINT,
        Activity.ALIGNMENT: activities.COMPARISON,
    }  # fmt: skip
    assert activities.ALIGNMENT in WAITS_FOR[Activity.STEP] and activities.STEP in WAITS_FOR[Activity.ALIGNMENT]
    for activity, own in under_way.items():
        assert own in WAITS_FOR[activity], "nothing runs twice at once"
    assert set(WAITS_FOR) == set(Activity)
    assert {activities.STEP, activities.CHECKPOINT, activities.FENCE} <= set(WAITS_FOR[Activity.ALIGNMENT])
    assert activities.DIFFERENCE in WAITS_FOR[Activity.ROLLBACK]
    assert {activities.CHECKPOINT, activities.ROLLBACK, activities.ROLLBACK_WANTED} <= set(WAITS_FOR[Activity.REMOVAL])
