"""Properties of the core under random orders of events: nothing that happens may lose, repeat or reorder learning."""

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.world import SETTINGS, World, digest

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.wire.journal import decode_event, encode_body

ACTIONS = st.lists(
    st.sampled_from(["lines", "answer", "answer", "answer", "answer", "trainer dies", "engine dies", "checkpoint", "time", "pause",
                     "resume", "supervisor dies", "nan"]),
    max_size=60,
)


def play(actions: list[str], settings_: ev.Settings = SETTINGS, keeps_steps: bool = False) -> World:
    world, serial = World(settings_), 0
    world.keeps_steps = keeps_steps
    world.up()
    for action in actions:
        match action:
            case "lines":
                names = [f"e{serial + i}" for i in range(3)] + [f"long{serial}"]
                serial += 3
                world.lines(*names, source=f"f{serial}")
            case "direct":
                world.lines(f"d{serial}", f"huge{serial}", source=f"ctl{serial}", tier="direct")
                serial += 2
            case "answer":
                world.answer()
            case "settle":
                world.settle()
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
            case "back":
                world.give(inp.RollbackRequested(max(0, world.state.version - serial % 4), "t"))
            case "relearn":
                world.give(inp.RelearnRequested(tuple((e, "bulk") for e in list(world.state.undone)[:2]), "t"))
            case "time":
                world.pass_time(700)
            case "pause":
                world.give(inp.PauseRequested("t"))
            case "pause fails" if world.asked and isinstance(world.asked[0], fx.PauseEngine):
                world.give(inp.EnginePaused(world.asked.popleft(), 0.0, "no"))
            case "step refused" if world.asked and isinstance(world.asked[0], fx.RunStep):
                world.asked.popleft()
                world.give(inp.Refused("step", "no", ""))
            case "resume":
                world.give(inp.ResumeRequested("t"))
            case "supervisor dies":
                world = world.crash_and_return()
            case "restart":
                assert stopped(world)
                world = world.successor().up()
        if world.state.engine.phase == "spawned":
            world.engine_up()
    return world


def stopped(world: World) -> bool:
    """Ask it to stop; does it?"""
    world.give(inp.StopRequested("test"))
    for _ in range(20):
        world.settle()
        world.pass_time(5)
    return world.exited


def folded(world: World) -> State:
    """The state that the world's journal makes, every event written and read back."""
    state = State()
    for recorded in world.journal:
        event = recorded.event
        fold(state, ev.Recorded(recorded.seq, recorded.at_ns, decode_event(event.kind, event.version, encode_body(event))))
    return state


def finish(world: World) -> World:
    """Let everything come to rest, whatever was given up meanwhile."""
    for _ in range(8):
        world.give(inp.ResumeRequested("t"))
        world.pass_time(70)
        if world.state.engine.phase == "spawned":
            world.engine_up()
        world.settle()
    return world


@settings(max_examples=500, deadline=None)
@given(ACTIONS)
def test_every_accepted_example_is_learned_once_in_order_whatever_dies(actions):
    world = finish(play(actions))
    accepted = [e.example for e in world.of(ev.ExampleAccepted) if not e.example.startswith("long")]
    failed = {e.example for e in world.of(ev.StepFailed)}
    assert [e.example for e in world.of(ev.StepCompleted)] == [e for e in accepted if e not in failed]
    assert world.state.queued == 0
    numbers = [e.step for e in world.of(ev.StepStarted)]
    assert numbers == list(range(1, len(numbers) + 1))


@settings(max_examples=500, deadline=None)
@given(ACTIONS)
def test_the_weights_are_those_of_a_life_without_crashes(actions):
    world = finish(play(actions))
    memory, optimizer = "base", "fresh"
    for done in world.of(ev.StepCompleted):
        step = fx.RunStep(done.step, (done.example,), (digest(done.example),), done.lr)
        memory = digest(f"{memory} {optimizer} {step}".replace(", replay=False", ""))
        optimizer = digest(f"{optimizer} {step.examples} {step.step}")
        assert done.fingerprint == memory
    assert world.memory == memory == (world.state.fingerprint)


@settings(max_examples=50, deadline=None)
@given(ACTIONS)
def test_a_fold_of_the_journal_is_the_state_and_events_survive_their_encoding(actions):
    world = play(actions)
    assert folded(world) == world.state


TRAINING = st.builds(
    msgspec.structs.replace, st.just(SETTINGS), accumulate=st.integers(1, 4), schedule=st.sampled_from(["constant", "cosine"]),
    lr=st.just(1e-5), warmup=st.sampled_from([0.0, 0.3]), loss_spike=st.sampled_from([0.0, 2.0]),
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.one_of(ACTIONS.map(lambda a: a[:1]), st.just(["direct"]), st.just(["lines"])), max_size=40), TRAINING)
def test_steps_of_several_examples_lose_repeat_and_reorder_nothing_whatever_dies(actions, training):
    world = play([action for some in actions for action in some], training)
    for _ in range(200):
        if not world.state.queued:
            break
        world = finish(world)
    tiers = {e.example: e.tier for e in world.of(ev.ExampleAccepted) if not e.example.startswith("long")}
    held = [e.example for e in world.of(ev.StepFailed) if not e.apart]
    learned = [example for e in world.of(ev.StepCompleted) for example in ev.all_examples(e)]
    assert learned == [example for example in tiers if example not in held] and len(set(held)) == len(held)
    assert {example for example in tiers if example.startswith("huge")} <= set(held)
    memory, optimizer, planned = "base", "fresh", {e.window: e.planned for e in world.of(ev.WindowOpened)}
    in_window = dict.fromkeys(planned, 0)
    started = {e.step: e for e in world.of(ev.StepStarted)}
    for begun in started.values():
        examples = ev.all_examples(begun)
        in_window[begun.window] += len(examples)
        assert len(examples) <= training.accumulate and len({tiers[example] for example in examples}) == 1
        peak = training.lr_direct if tiers[examples[0]] == "direct" else training.lr
        assert begun.lr <= peak * (1 + 1e-15)  # the last step of a warm-up: one rounding above
    assert training.schedule == "constant" or all(in_window[window] <= planned[window] for window in planned)
    for done in world.of(ev.StepCompleted):
        examples = ev.all_examples(done)
        step = fx.RunStep(done.step, examples, tuple(map(digest, examples)), done.lr, started[done.step].loss_limit)
        memory = digest(f"{memory} {optimizer} {step}".replace(", replay=False", ""))
        optimizer = digest(f"{optimizer} {step.examples} {step.step}")
        assert done.fingerprint == memory
    assert world.memory == memory
    assert folded(world) == world.state


ANY = st.sampled_from(["lines", "direct", "answer", "answer", "answer", "answer", "settle", "trainer dies", "engine dies",
                       "supervisor dies", "restart", "checkpoint", "back", "relearn", "pause", "resume", "time", "pause fails",
                       "step refused"])  # fmt: skip
EVERY = st.builds(
    msgspec.structs.replace, st.just(SETTINGS), publish=st.sampled_from(["hogwild", "fenced"]), align_every=st.integers(0, 2),
    checkpoint_hook=st.booleans(), checkpoint_keep=st.integers(1, 3), accumulate=st.integers(1, 3),
    schedule=st.sampled_from(["constant", "cosine"]), lr=st.just(1e-5), warmup=st.sampled_from([0.0, 0.3]),
)  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(st.one_of(st.lists(ANY, max_size=20), st.lists(ANY, min_size=20, max_size=70)), EVERY, st.booleans())
@example(["lines"] * 3 + ["supervisor dies", "lines", "checkpoint", "answer", "back"], SETTINGS, False)  # committed on the way back
def test_weights_are_made_of_the_steps_that_were_not_taken_back_whatever_happens(actions, training, keeps_steps):
    world = play(actions, training, keeps_steps)
    for _ in range(60):
        finish(world)
        if not (world.state.queued or world.state.rollback_wanted or world.state.rolling_back or world.state.checkpointing):
            break
    done, started = {e.step: e for e in world.of(ev.StepCompleted)}, {e.step: e for e in world.of(ev.StepStarted)}
    way, step = [], world.state.version
    while step:
        way.append(done[step])
        step = done[step].parent
    memory, optimizer = "base", "fresh"
    for one in reversed(way):
        examples = ev.all_examples(one)
        ran = fx.RunStep(one.step, examples, tuple(map(digest, examples)), one.lr, started[one.step].loss_limit)
        memory = digest(f"{memory} {optimizer} {ran}".replace(", replay=False", ""))
        optimizer = digest(f"{optimizer} {examples} {one.step}")
        assert one.fingerprint == memory
    assert world.memory == memory == world.state.fingerprint and world.optimizer == optimizer
    learned = [example for one in way for example in ev.all_examples(one)]
    assert len(set(learned)) == len(learned) and not set(learned) & set(world.state.undone)
    accepted = {e.example for e in world.of(ev.ExampleAccepted) if not e.example.startswith("long")}
    held = {e.example for e in world.of(ev.StepFailed) if not e.apart}
    assert set(learned) | set(world.state.undone) | held == accepted
    assert sorted(done) == list(range(1, len(done) + 1)) or set(started) - set(done) <= {e.step for e in world.of(ev.StepFailed)}
    committed = world.state.checkpoint
    assert not committed or world.disk[committed.path][0] == world.model_dir[1]
    assert folded(world) == world.state


@settings(max_examples=1500, deadline=None)
@given(st.one_of(st.lists(ANY, max_size=8), st.lists(ANY, min_size=8, max_size=50)), EVERY, st.booleans())
@example(["lines", "answer", "step refused"], SETTINGS, False)
def test_a_request_to_stop_ends_the_daemon_whatever_was_under_way(actions, training, engine_first):
    world = play(actions, training)
    world.give(inp.StopRequested("test"))
    if engine_first:
        world.exit("engine")
    assert stopped(world), (world.state.running, world.state.trainer, world.state.engine, world.state.checkpointing)
