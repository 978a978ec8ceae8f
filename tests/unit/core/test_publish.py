"""Publishing without a process: what is fenced, that no pause outlives its write, when caches turn."""

import pytest
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.rules.publishing import PAUSE_ATTEMPTS_MAX

FENCED = changed(SETTINGS, publish="fenced", align_every=0)


def kinds_of(world: World, *kinds: type[ev.Event]) -> list[str]:
    return [r.event.kind for r in world.journal if isinstance(r.event, kinds)]


def test_by_default_nothing_is_paused():
    world = World().up()
    world.lines("a", "b")
    world.settle()
    assert not world.of(ev.EnginePaused) and [w for w in world.unfenced if isinstance(w, fx.RunStep)]


def test_a_fence_covers_each_step_and_is_opened_after_each():
    world = World(FENCED).up()
    world.lines("a", "b")
    world.settle()
    kinds = kinds_of(world, ev.StepStarted, ev.EnginePaused, ev.StepCompleted, ev.EngineResumed)
    assert kinds == ["step.started", "engine.paused", "step.completed", "engine.resumed"] * 2
    assert not world.unfenced and not world.fence


def life(world: World) -> None:
    world.up()
    world.lines("a", "b", "c")
    world.settle()


def total() -> int:
    world, answers = World(FENCED), 0
    world.start()
    world.engine_up()
    world.lines("a", "b", "c")
    while world.answer():
        answers += 1
    return answers


@pytest.mark.parametrize("who", ["trainer", "engine", "supervisor"])
@pytest.mark.parametrize("after", range(total()))
def test_whoever_dies_whenever_every_write_is_fenced_and_the_fence_is_open_in_the_end(who, after):
    calm = World(FENCED)
    life(calm)
    world = World(FENCED)
    world.start()
    world.engine_up()
    world.lines("a", "b", "c")
    for _ in range(after):
        world.answer()
    if who == "supervisor":
        world = world.crash_and_return()
    else:
        world.exit(who)
        world.pass_time(5)
        if who == "engine":
            world.settle()
            world.pass_time(5)
            world.engine_up()
        world.settle()
    assert world.memory == calm.memory and world.state.training.version == 3
    assert not world.unfenced and not world.fence and not world.state.publishing.engine_paused


def paused_step(settings: ev.Settings = FENCED) -> World:
    """In the middle of step 1, the engine paused for it."""
    world = World(settings).up()
    world.lines("a", "b")
    while not world.fence:
        world.answer()
    assert isinstance(world.asked[0], fx.RunStep) and world.state.publishing.engine_paused
    return world


def test_the_pause_is_held_for_the_successor_of_a_dead_trainer_and_no_longer_than_that():
    world = paused_step()
    world.memory = "torn"
    world.exit("trainer")
    world.pass_time(1)
    assert fx.ResumeEngine() not in world.asked and world.fence
    world.settle()
    assert world.state.training.version == 2 and not world.fence and not world.unfenced


def test_a_trainer_that_is_given_up_opens_the_fence():
    world = paused_step()
    for _ in range(5):
        world.exit("trainer")
        world.pass_time(20)
    assert world.state.children.trainer.given_up
    world.settle()
    assert not world.fence and not world.state.publishing.engine_paused


@pytest.mark.parametrize(("active", "waits"), [(0, 0.0), (3, 2.0)])
def test_requests_run_for_as_long_as_they_waited_before_the_next_fenced_step(active, waits):
    world = paused_step()
    world.asked.append(world.asked.popleft())
    world.answer()
    assert isinstance(world.asked[0], fx.ResumeEngine)
    world.asked.popleft()
    world.now += 500_000_000
    world.give(inp.EngineResumeReport(2.0, active=active))
    pause = next(e for e in world.asked if isinstance(e, fx.PauseEngine))
    assert pause.then.step == 2 and pause.wait_s == waits


@pytest.mark.parametrize("paused", [False, True])
def test_a_checkpoint_asked_for_beside_a_step_is_of_the_weights_that_the_trainer_has_in_its_turn(paused):
    world = World(FENCED).up()
    world.lines("a")
    world.settle()
    world.lines("b")
    world.settle_until(fx.PauseEngine)
    if paused:
        world.answer()
    world.give(inp.CheckpointRequested("test"))
    world.settle()
    (committed,) = world.of(ev.CheckpointCommitted)
    assert committed.step == (2 if paused else 1) and not world.of(ev.CheckpointFailed)
    assert committed.fingerprint == world.of(ev.StepCompleted)[committed.step - 1].fingerprint == world.model_dir[1]


def test_a_live_step_keeps_what_requests_computed_and_a_restore_does_not():
    world = paused_step()
    assert not world.pauses[0].clear
    world.memory = "torn"
    world.exit("trainer")
    world.give(inp.EngineResumeReport(60.0, expired=False))
    world.pass_time(2)
    world.settle()
    assert [type(p.then) for p in world.pauses if p.clear] == [fx.Restore]


def test_a_halt_opens_the_fence():
    world = paused_step()
    world.give(inp.Refused("step", "no", ""))
    world.asked.popleft()  # the step that is never done
    world.settle()
    assert world.state.daemon.halted and not world.fence


def test_a_stop_in_a_fenced_step_ends():
    world = paused_step()
    world.give(inp.StopRequested("test"))
    world.settle()
    assert world.exited and world.state.training.version == 1


def test_a_pause_that_lasted_too_long_is_not_made_again_for_the_same_write():
    world = paused_step()
    world.fence = False
    world.give(inp.EngineResumeReport(60.0, expired=True))
    assert not world.state.publishing.engine_paused
    world.settle()
    assert [e.expired for e in world.of(ev.EngineResumed)] == [True, False]
    assert world.state.training.version == 2, "the next step is fenced again"


def test_a_recovery_that_takes_longer_than_the_longest_pause_goes_on_unfenced_until_the_next_step():
    world = paused_step()
    world.memory = "torn"
    world.exit("trainer")
    world.fence = False
    world.give(inp.EngineResumeReport(60.0, expired=True))
    world.pass_time(2)
    world.settle()
    assert [type(write) for write in world.unfenced] == [fx.Restore], "the step itself is fenced again"
    assert world.state.training.version == 2 and not world.fence


def test_an_engine_that_cannot_be_paused_is_asked_again_then_training_halts_unwritten():
    world = World(FENCED).up()
    world.lines("a")
    world.settle_until(fx.PauseEngine)
    waits = []
    for attempt in range(1, PAUSE_ATTEMPTS_MAX + 1):
        asked = world.asked.popleft()
        assert isinstance(asked, fx.PauseEngine) and asked.attempt == attempt
        waits.append(asked.wait_s)
        world.give(inp.EnginePauseReport(asked, 0.0, "RuntimeError: no"))
    assert waits == [0.0, 1.0, 2.0]
    assert "RuntimeError: no" in world.state.daemon.halted and not world.of(ev.StepCompleted)


@pytest.mark.parametrize("settings", [FENCED, SETTINGS])
def test_a_stop_after_a_halt_in_a_step_ends_and_the_next_life_learns_it(settings):
    """Nobody works on that step any more, and weights without it are no checkpoint of it."""
    world = World(settings).up()
    world.lines("a", "b")
    world.settle_until(fx.RunStep)
    world.asked.popleft()
    world.give(inp.Refused("step", "no", ""))
    world.settle()
    assert world.state.daemon.halted
    world.give(inp.StopRequested("test"))
    world.settle()
    assert world.exited and not world.of(ev.CheckpointStarted)
    world = world.crash_and_return()
    assert [e.example for e in world.of(ev.StepCompleted)] == ["a", "b"]


def test_an_answer_to_a_trainer_that_is_gone_starts_nothing():
    world = World(FENCED).up()
    world.lines("a")
    world.settle_until(fx.PauseEngine)
    asked = world.asked.popleft()
    world.exit("trainer")
    world.give(inp.EnginePauseReport(asked, 0.02))
    assert not [e for e in world.asked if isinstance(e, fx.RunStep)]
    world.fence = True
    world.pass_time(2)
    world.settle()
    assert world.state.training.version == 1 and not world.fence


@pytest.mark.parametrize("cache", ["reset", "salt", "keep"])
def test_caches_turn_with_every_step(cache):
    world = World(changed(SETTINGS, cache=cache)).up()
    assert world.forgotten == [(0, cache)]
    world.lines(*"abcde")
    world.settle()
    assert world.forgotten[1:] == [(step, cache) for step in range(1, 6)]
    world.exit("trainer")
    world.pass_time(2)
    world.settle()
    assert world.forgotten[-1] == (5, cache), "what was restored is another jump"


@pytest.mark.parametrize(("cache", "told"), [("reset", "reset"), ("salt", "salt"), ("keep", "reset")])
def test_after_a_rollback_nobody_finds_what_was_taken_back(cache, told):
    world = World(changed(SETTINGS, cache=cache)).up()
    world.lines(*"abc")
    world.settle()
    world.give(inp.RollbackWanted(2, "test"))
    world.settle()
    assert world.forgotten[-1] == (2, told)
