"""The way back to the untrained weights: asked for while they can be seen, used when the model directory is not to
be trusted."""

from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.supervisor.status_view import status_view
from apollod.wire.status import Journal


def test_the_base_is_kept_once_when_memory_shows_it():
    world = World().up()
    assert [(e.path, e.how) for e in world.of(ev.BaseKept)] == [("/s/base/m", "reflink")]
    world.lines("a")
    world.settle()
    world = world.crash_and_return()
    world.exit("trainer")
    world.pass_time(70)
    world.settle()
    assert len(world.of(ev.BaseKept)) == 1


def test_weights_that_are_restored_to_the_base_come_from_what_was_kept():
    world = World().up()
    world.lines("a")
    world.answer()
    world.memory = "torn"
    world.exit("trainer")
    world.pass_time(70)
    world.answer()
    assert world.asked[0] == fx.Restore(
        path="", model_dir="/m", weights=True, fingerprint="base", checkpoints="/s/checkpoints", base="/s/base/m"
    )  # fmt: skip


def test_a_loss_is_told_at_the_next_start_and_the_base_kept_again_only_while_nothing_else_was_loaded():
    world = World().up()
    world.lines("a")
    world.settle()
    lost = inp.Started(1, "test", SETTINGS, "/s", "/s/base/m is gone")
    again = world.successor()
    again.give(lost)
    assert (
        again.of(ev.BaseLost) == [ev.BaseLost("/s/base/m", "/s/base/m is gone")] and again.state.recovery.base is None
    )
    assert again.state.recovery.base_lost == "/s/base/m is gone"
    again.engine_up()
    again.settle()  # the engine was started on the model directory, and memory was seen to hold the base
    assert len(again.of(ev.BaseKept)) == 2 and again.state.recovery.base_lost == ""
    again.give(inp.CheckpointRequested("test"))
    again.settle()
    last = again.successor()
    last.give(lost)
    last.engine_up()
    last.settle()  # now the model directory holds what was learned
    assert len(last.of(ev.BaseKept)) == 2 and last.state.recovery.base is None


def test_a_failure_is_recorded_and_tried_again_with_the_next_trainer():
    world = World()
    room = False
    run = world._run

    def keep(effect: fx.Effect) -> list[ev.Event]:
        if isinstance(effect, fx.KeepBase) and not room:
            return world._settle(inp.BaseLost(effect.path, "no room"))
        return run(effect)

    world._run = keep
    world.up()
    assert (
        world.of(ev.BaseLost) == [ev.BaseLost("/s/base/m", "no room")] and world.state.recovery.base_lost == "no room"
    )
    room = True
    world.exit("trainer")
    world.pass_time(70)
    world.settle()
    assert len(world.of(ev.BaseKept)) == 1 and world.state.recovery.base_lost == ""


def test_off_means_off():
    world = World(changed(SETTINGS, keep_base="off")).up()
    assert world.of(ev.BaseKept) == []
    assert (
        status_view(world.state, world.now, Journal(seq=0, bytes=0, head_hash="")).base.reason
        == '[checkpoint] keep_base = "off"'
    )
    copy = World(changed(SETTINGS, keep_base="copy"))
    copy.start()
    copy.engine_up()
    asked = []
    copy._run = lambda effect, run=copy._run: (asked.append(effect), run(effect))[1]
    copy.settle()
    assert [e.how for e in asked if isinstance(e, fx.KeepBase)] == ["copy"]
