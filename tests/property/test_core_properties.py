"""Properties of the core under random orders of events: nothing that happens may lose, repeat or reorder learning."""

from hypothesis import given, settings
from hypothesis import strategies as st
from support.world import World, digest

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.state import State, fold
from apollod.wire.journal import decode_event, encode_body

ACTIONS = st.lists(
    st.sampled_from(["lines", "answer", "answer", "answer", "answer", "trainer dies", "engine dies", "checkpoint", "time", "pause",
                     "resume", "supervisor dies", "nan"]),
    max_size=60,
)


def play(actions: list[str]) -> World:
    world, serial = World().up(), 0
    for action in actions:
        match action:
            case "lines":
                names = [f"e{serial + i}" for i in range(3)] + [f"long{serial}"]
                serial += 3
                world.lines(*names, source=f"f{serial}")
            case "answer":
                world.answer()
            case "trainer dies":
                if world.state.running and world.asked and isinstance(world.asked[0], fx.RunStep):
                    world.memory = "torn"
                world.exit("trainer")
                world.pass_time(70)
            case "engine dies":
                world.exit("engine")
                world.pass_time(70)
            case "checkpoint":
                world.give(inp.CheckpointRequested("test"))
            case "time":
                world.pass_time(700)
            case "pause":
                world.give(inp.PauseRequested("t"))
            case "resume":
                world.give(inp.ResumeRequested("t"))
            case "supervisor dies":
                world = world.crash_and_return()
        if world.state.engine.phase == "spawned":
            world.engine_up()
    return world


def finish(world: World) -> World:
    """Let everything come to rest, whatever was given up meanwhile."""
    for _ in range(8):
        world.give(inp.ResumeRequested("t"))
        world.pass_time(70)
        if world.state.engine.phase == "spawned":
            world.engine_up()
        world.settle()
    return world


@settings(max_examples=150, deadline=None)
@given(ACTIONS)
def test_every_accepted_example_is_learned_once_in_order_whatever_dies(actions):
    world = finish(play(actions))
    accepted = [e.example for e in world.of(ev.ExampleAccepted) if not e.example.startswith("long")]
    failed = {e.example for e in world.of(ev.StepFailed)}
    assert [e.example for e in world.of(ev.StepCompleted)] == [e for e in accepted if e not in failed]
    assert world.state.queued == 0
    numbers = [e.step for e in world.of(ev.StepStarted)]
    assert numbers == list(range(1, len(numbers) + 1))


@settings(max_examples=150, deadline=None)
@given(ACTIONS)
def test_the_weights_are_those_of_a_life_without_crashes(actions):
    world = finish(play(actions))
    memory, optimizer = "base", "fresh"
    for done in world.of(ev.StepCompleted):
        step = fx.RunStep(done.step, done.example, digest(done.example), done.lr)
        memory = digest(f"{memory} {optimizer} {step}".replace(", replay=False", ""))
        optimizer = digest(f"{optimizer} {step.example} {step.step}")
        assert done.fingerprint == memory
    assert world.memory == memory == (world.state.fingerprint)


@settings(max_examples=50, deadline=None)
@given(ACTIONS)
def test_a_fold_of_the_journal_is_the_state_and_events_survive_their_encoding(actions):
    world = play(actions)
    state = State()
    for recorded in world.journal:
        event = recorded.event
        again = decode_event(event.kind, event.version, encode_body(event))
        fold(state, ev.Recorded(recorded.seq, recorded.at_ns, again))
    assert state == world.state
