"""When children start, and which of them is asked for anything."""

from support.world import SETTINGS, World

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.fold import fold
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State


def test_a_refused_engine_costs_no_trainer_and_one_that_is_started_has_one_beside_it():
    """A trainer's imports take seconds of a core, in which nothing else is to be done for it."""
    state, now = State(), 1_000 * SECOND_NS

    def given(input_: inp.Input) -> list[fx.Effect]:
        effects: list[fx.Effect] = []
        pending = [input_]
        while pending:
            events, asked = decide(state, pending.pop(), now)
            for event in events:
                fold(state, ev.Recorded(state.seq + 1, now, event))
            effects += asked
            if events:
                pending.append(inp.Advance())
        return effects

    given(inp.Started(1, "test", SETTINGS, "/s"))
    assert state.children.trainer.phase == "absent" == state.children.engine.phase
    refused = given(inp.EngineExited(0, None, "port 8000 is in use", refused=True))
    assert not any(isinstance(effect, fx.SpawnTrainer) for effect in refused)
    now += 3600 * SECOND_NS
    again = given(inp.Tick())
    assert [type(effect) for effect in again if isinstance(effect, fx.SpawnEngine | fx.SpawnTrainer)] == [
        fx.SpawnEngine
    ]
    started = given(inp.EngineStarted(7, "/m"))
    assert any(isinstance(effect, fx.SpawnTrainer) for effect in started)


def test_after_a_halt_nothing_is_asked_of_the_old_trainer_and_the_new_one_is_compared_first():
    """What the old one holds is not to be trusted: it may have been why training was halted."""
    world = World()
    world.start()
    world.settle()
    world.engine_up()
    world.lines("a", "b")
    world.settle_until(fx.ScoreProbe)
    for _ in ("a few tokens", "all of them"):
        world.settle_until(fx.ScoreProbe)
        probe = world.asked.popleft()
        world.give(inp.Scored(probe.step, probe.number, "ids", probe.trainer, (-9.0,), 0.1))
    world.settle_until(fx.CompareWeights)
    asked = world.asked.popleft()
    world.give(inp.Compared(asked.step, {"w": "the trainer holds other values"}, number=asked.number))
    assert world.kinds()[-1] == "training.halted" and "step.started" not in world.kinds()
    world.give(inp.TrainingResumed("somebody"))
    assert [type(effect) for effect in world.asked] == [fx.StopChild]
    world.settle()
    kinds = world.kinds()
    after = kinds[kinds.index("training.resumed") :]
    assert after.index("trainer.attached") < after.index("alignment.measured") < after.index("step.started")
    assert after.count("step.completed") == 2
