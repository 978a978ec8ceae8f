"""Properties of the core under random orders of events: nothing that happens may lose, repeat or reorder learning."""

from hypothesis import example, given
from hypothesis import strategies as st
from support.effort import draws
from support.lives import stopped
from support.world import SETTINGS, World, changed, digest

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts import updates
from apollod.core.facts.intake.state import Waiting
from apollod.core.fold import fold
from apollod.core.schedules import BACKOFF_MAX_S, SECOND_NS
from apollod.core.state import State
from apollod.wire.event_codec import decode_event, encode_body

HOUR_NS = 3600 * SECOND_NS

ACTIONS = st.lists(
    st.sampled_from(
        [
            "lines",
            "answer",
            "answer",
            "answer",
            "answer",
            "trainer dies",
            "engine dies",
            "checkpoint",
            "time",
            "pause",
            "resume",
            "supervisor dies",
            "nan",
        ]
    ),
    max_size=60,
)


def play(
    actions: list[str], settings_: ev.Settings = SETTINGS, keeps_steps: bool = False, requests: int = 0,
    in_world: World | None = None,
) -> World:  # fmt: skip
    """`in_world`: instead of a bare one; it knows further actions (`act`)."""
    world, serial = in_world or World(settings_), 0
    world.keeps_steps, world.requests = keeps_steps, requests
    world.up()
    for action in actions:
        match action:
            case "lines":
                names = [f"e{serial + i}" for i in range(3)] + [f"long{serial}"]
                serial += 3
                world.lines(*names, source=f"f{serial}")
            case "direct":
                world.lines(f"d{serial}", f"huge{serial}", f"large{serial}", source=f"ctl{serial}", tier="direct")
                serial += 3
            case "given again":
                known = [e.example for e in world.of(ev.ExampleAccepted) if e.example.startswith("e")]
                world.lines(*known[serial % 2 :: 3], source=f"g{serial}", tier="direct" if serial % 4 else "bulk")
                serial += 1
            case "answer":
                world.answer()
            case "settle":
                world.settle()
            case "trainer dies":
                if world.state.training.running and world.asked and isinstance(world.asked[0], fx.RunStep):
                    world.memory = "torn"
                world.exit("trainer")
                world.pass_time(70)
            case "engine is late":
                world.late()
            case "engine dies":
                world.exit("engine")
                world.pass_time(70)
            case "checkpoint":
                world.give(inp.CheckpointRequested("test"))
            case "back":
                world.give(inp.RollbackRequested(max(0, world.state.training.version - serial % 4), "t"))
            case "forget":
                learned = [example for e in world.of(ev.StepCompleted) for example in ev.all_examples(e)]
                world.give(inp.ForgetRequested(tuple(learned[serial % 3 :: 4]), "t", ""))
            case "relearn":
                out = [*world.state.review.dismissed, *world.state.intake.undone, *world.state.intake.withdrawn]
                world.give(inp.RelearnRequested(tuple((e, "bulk") for e in out[:2] + out[-1:]), "t"))
            case "withdraw":
                waiting = [one.example for one in waiting_in(world)]
                world.give(inp.ExampleWithdrawn((*waiting[serial % 3 :: 2], "nobody"), "t"))
            case "look":
                blocked = {f"/in/{n}": inp.Obstruction(f"{n} of {serial}") for n in range(serial % 4)}
                world.give(inp.PlaceLooked("tail", "/in", blocked))
            case "held lines":
                world.lines(*(f"h{serial + i}" for i in range(3)), source=f"h{serial}", hold=1.0, stripped=True)
                serial += 3
            case "approve" | "decline" | "hold":
                out = [*world.state.review.held, *world.state.review.dismissed]
                out += [one.example for one in waiting_in(world)]
                chosen = tuple(inp.Decision(one, action) for one in out[serial % 2 :: 2])
                world.give(inp.DecisionsGiven(chosen, "t"))
            case "edit":
                out = [*world.state.review.held, *world.state.review.dismissed, *(x.example for x in waiting_in(world))]
                for one in out[serial % 3 :][:1]:
                    serial += 1
                    world.give(inp.EditGiven(one, inp.Line(number=1, example=f"w{serial}", record=b"{}"), "t"))
            case "two reviewers":
                seen = [*world.state.review.held, *(one.example for one in waiting_in(world))][serial % 2 :: 2]
                for by, choice in (("one", "approve"), ("another", "decline")):
                    world.give(inp.DecisionsGiven(tuple(inp.Decision(x, choice, "", "held") for x in seen), by))
            case "undo an edit":
                for edited in world.of(ev.ExampleEdited)[-1:]:
                    back = inp.Decision(edited.example, "hold", "", "edited")
                    gone = inp.Decision(edited.into, "decline", "", "pending")
                    world.give(inp.DecisionsGiven((back, gone), "t", together=True))
            case "undo":
                out = [*world.state.review.dismissed, *(one.example for one in waiting_in(world))][serial % 2 :: 2]
                world.give(inp.DecisionsGiven(tuple(inp.Decision(x, "hold", "", "declined") for x in out), "t"))
            case "praise":
                world.rate(f"r{serial % 3}", "good")
                serial += 1
            case "blame":
                world.rate(f"r{serial % 3}", "bad")
                serial += 1
            case "correct":
                world.rate(f"r{serial % 3}", "bad", f"c{serial % 2}")
                serial += 1
            case "time":
                world.pass_time(700)
            case "update" | "half an update":
                serial += 1
                world.give(inp.UpdateOpening("vllm", "t"))
                world.give(inp.UpdateReceived(world.state.updates.last, "gloo", f"f{serial}", "n", 3, 300, 0.5))
                if action == "update":
                    world.commit(f"update{serial}" if serial % 4 else f"long{serial}")
            case "update fails":
                world.give(inp.UpdateEnding(world.state.updates.last, "no"))
            case "night":
                world.give(inp.NightPlanned(world.now - 1, world.now + HOUR_NS, "02:00-05:00", ""))
            case "a month":
                world.pass_time(31 * 86_400)
            case "clock back":
                world.now -= HOUR_NS
            case "clock forward":
                world.now += HOUR_NS
            case "pause":
                world.give(inp.TrainingPaused("t"))
            case "pause fails" if world.asked and isinstance(world.asked[0], fx.PauseEngine):
                world.give(inp.EnginePauseReport(world.asked.popleft(), 0.0, "no"))
            case "step refused" if world.asked and isinstance(world.asked[0], fx.RunStep):
                world.asked.popleft()
                world.give(inp.Refused("step", "no", ""))
            case "checkpoint fails" if world.asked and isinstance(world.asked[0], fx.WriteCheckpoint):
                asked = world.asked.popleft()
                world.give(inp.CheckpointWritten(asked.step, asked.path, "", 0, 0.0, error="no space left on device"))
            case "resume":
                world.give(inp.TrainingResumed("t"))
            case "supervisor dies":
                world = world.crash_and_return()
            case "restart":
                assert stopped(world)
                world = world.successor().up()
            case _:
                world.act(action)
        if world.state.children.engine.phase == "spawned":
            world.engine_up()
    return world


def waiting_in(world: World) -> list[Waiting]:
    """What waits to be learned, in that order."""
    return [one for queue in world.state.intake.queues for one in queue.waiting]


def folded(world: World) -> State:
    """The state that the world's journal makes, every event written and read back."""
    state = State()
    for recorded in world.journal:
        event = recorded.event
        fold(
            state,
            ev.Recorded(recorded.seq, recorded.at_ns, decode_event(event.kind, event.version, encode_body(event))),
        )
    return state


def finish(world: World) -> World:
    """Let everything come to rest, whatever was given up meanwhile."""
    for _ in range(8):
        world.give(inp.TrainingResumed("t"))
        if world.settings.schedule.nightly:
            world.give(inp.NightPlanned(world.now - 1, world.now + HOUR_NS, "02:00-05:00", ""))
        world.pass_time(70)
        if world.state.children.engine.phase == "spawned":
            world.engine_up()
        world.settle()
    return world


def out_of_turn(world: World) -> None:
    """Fails if a step did not take the first examples of its turn: direct ones before all others; of these what owes
    most to stripped text, then in the order of acceptance; examples of a step that failed go back to the front,
    requeued ones to the end."""
    queues: dict[bool, list[str]] = {True: [], False: []}
    direct: dict[str, bool] = {}
    scores, since, apart, encoded = dict[str, float](), dict[str, int](), set[str](), set[str]()
    for recorded in world.journal:
        match recorded.event:
            case (
                ev.ExampleAccepted(example=example, tier=tier)
                | ev.ExampleRequeued(example=example, tier=tier)
                | ev.ExampleApproved(example=example, tier=tier)
            ):
                direct[example], since[example] = tier == "direct", recorded.at_ns
                encoded.discard(example)
                apart.discard(example)  # another time it may be learned with others
                queues[direct[example]].append(example)
            case ev.ExampleRejected(example=example):
                queues[direct[example]].remove(example)
            case (
                ev.ExampleHeld(example=example)
                | ev.ExampleDeclined(example=example)
                | ev.ExampleEdited(example=example)
            ):
                if example in queues[direct[example]]:
                    queues[direct[example]].remove(example)
                if not isinstance(recorded.event, ev.ExampleHeld):
                    scores.pop(example, None)
            case ev.ExampleExpired(examples=examples):
                for example in examples:
                    scores.pop(example, None)
            case ev.ExampleWithdrawn(examples=examples):
                for example in examples:
                    if example in queues[direct[example]]:  # else it was learned, and is forgotten
                        queues[direct[example]].remove(example)
            case ev.StepStarted(again_of=again_of) as repeated if again_of:
                for example in ev.all_examples(repeated):  # whoever wanted it learned again has that
                    if example in queues[direct[example]]:
                        queues[direct[example]].remove(example)
            case ev.StepStarted(objective=updates.OBJECTIVE) as update:  # it goes before all others
                for queue in queues.values():
                    queue[:] = [one for one in queue if one != update.example]
            case ev.StepStarted() as begun:
                turn = queues[bool(queues[True])]
                for example in ev.all_examples(begun):
                    ready = [one for one in turn if one in encoded]
                    newest = max(since[one] for one in ready)
                    old = {one for one in ready if newest - since[one] > 24 * HOUR_NS}
                    turns = sorted(ready, key=lambda one: (one not in old, 0 if one in old else -scores.get(one, 0)))
                    first = turn[0] if turn[0] in apart or turn is queues[True] else turns[0]
                    assert example == first, f"step {begun.step} was not their turn"
                    turn.remove(example)
                for example in ev.all_examples(begun):
                    scores.pop(example, None)
            case ev.ExampleEncoded(example=example):
                encoded.add(example)
            case ev.ExampleScored(example=example, after=0, divergence=divergence):
                scores[example] = divergence
            case ev.StepFailed(apart=True) as failed:
                queues[direct[failed.example]][:0] = ev.all_examples(failed)
                apart |= set(ev.all_examples(failed))


TRAINING = st.builds(
    changed, st.just(SETTINGS), accumulate=st.integers(1, 4), schedule=st.sampled_from(["constant", "cosine"]),
    lr=st.just(1e-5), warmup=st.sampled_from([0.0, 0.3]), loss_spike=st.sampled_from([0.0, 2.0]),
    rescore=st.sampled_from([0, 3]),
)  # fmt: skip


@draws(100, 500)
@given(
    st.lists(st.one_of(ACTIONS.map(lambda a: a[:1]), st.just(["direct"]), st.just(["lines"])), max_size=40), TRAINING
)
@example([["direct"], ["supervisor dies"], ["engine dies"]], SETTINGS)  # nothing waits, and yet memory has to come back
def test_steps_of_several_examples_lose_and_repeat_nothing_and_go_by_tier_then_by_acceptance_whatever_dies(
    actions, training
):
    world = play([action for some in actions for action in some], training)
    assert folded(world) == world.state, "amid whatever it is"
    for _ in range(200):
        if not finish(world).state.queued:
            break
    tiers = {e.example: e.tier for e in world.of(ev.ExampleAccepted) if not e.example.startswith("long")}
    held = [e.example for e in world.of(ev.StepFailed) if not e.apart]
    learned = [example for e in world.of(ev.StepCompleted) for example in ev.all_examples(e)]
    assert len(set(held)) == len(held) and len(set(learned)) == len(learned)
    for tier in ("direct", "bulk"):
        of_tier = [example for example in tiers if tiers[example] == tier and example not in held]
        assert [example for example in learned if tiers[example] == tier] == of_tier
    out_of_turn(world)
    numbers = [e.step for e in world.of(ev.StepStarted)]
    assert numbers == list(range(1, len(numbers) + 1)) and not world.state.queued
    assert {example for example in tiers if example.startswith(("huge", "large"))} <= set(held)
    memory, optimizer, planned = "base", "fresh", {e.window: e.planned for e in world.of(ev.WindowOpened)}
    in_window = dict.fromkeys(planned, 0)
    started = {e.step: e for e in world.of(ev.StepStarted)}
    for begun in started.values():
        examples = ev.all_examples(begun)
        in_window[begun.window] += len(examples)
        assert len(examples) <= training.trainer.accumulate and len({tiers[example] for example in examples}) == 1
        peak = training.trainer.lr_direct if tiers[examples[0]] == "direct" else training.trainer.lr
        assert begun.lr <= peak * (1 + 1e-15)  # the last step of a warm-up: one rounding above
    assert training.trainer.schedule == "constant" or all(in_window[window] <= planned[window] for window in planned)
    for done in world.of(ev.StepCompleted):
        examples = ev.all_examples(done)
        step = fx.RunStep(
            done.step, examples, tuple(map(digest, examples)), done.lr, products="bf16",
            loss_limit=started[done.step].loss_limit, objective=started[done.step].objective,
        )  # fmt: skip
        memory = digest(f"{memory} {optimizer} {step}".replace(", replay=False", ""))
        optimizer = digest(f"{optimizer} {step.examples} {step.step}")
        assert done.fingerprint == memory
    assert world.memory == memory
    assert folded(world) == world.state


ANY = st.sampled_from(["lines", "direct", "given again", "answer", "answer", "answer", "answer", "settle",
                       "trainer dies",
"engine dies",
                       "supervisor dies", "restart", "checkpoint", "back", "forget", "relearn", "pause", "resume",
                       "praise", "blame", "correct", "night", "time",
                       "withdraw", "look", "held lines", "approve", "decline", "hold", "edit", "a month",
                       "two reviewers", "undo", "undo an edit",
                       "pause fails", "step refused", "checkpoint fails", "clock back",
                       "clock forward", "engine is late",
                       "update", "update", "half an update", "update fails"])  # fmt: skip
EVERY = st.builds(
    changed, st.just(SETTINGS), publish=st.sampled_from(["hogwild", "fenced"]), align_every=st.integers(0, 2),
    checkpoint_hook=st.booleans(), keep=st.integers(1, 3), accumulate=st.integers(1, 3),
    keep_base=st.sampled_from(["auto", "off"]), keep_bytes=st.sampled_from([0, 25]),
    replay_max=st.sampled_from([1, 1000]),
    nightly=st.sampled_from(["", "", "02:00-05:00"]),
    schedule=st.sampled_from(["constant", "cosine"]), lr=st.just(1e-5), warmup=st.sampled_from([0.0, 0.3]),
    divergence=st.sampled_from(["off", "held", "all"]), rescore=st.sampled_from([0, 4]),
    durable=st.sampled_from(["payload", "checkpoint", "none"]),
)  # fmt: skip


OUTDATED = ["lines", "settle"] * 5 + ["back"] + ["answer"] * 3 + ["checkpoint fails", "time"] * 3 + ["restart"]
"""A checkpoint after each step, three steps taken back, and nothing can be written while the old ones are too many."""
REPEATED = ["direct", "correct", "edit", "supervisor dies", "blame", "forget", *["answer"] * 3, "praise"]
"""A correction is taken back while a step repeats it, since another example is forgotten."""
AGAIN = ["direct", "supervisor dies", "back", "held lines", "supervisor dies", "relearn", "two reviewers"]
"""An example that was learned alone, after a step of several failed, is taken back and learned once more."""


@draws(200, 1500)
@example(OUTDATED, changed(SETTINGS, replay_max=1, keep=20, keep_bytes=25, keep_base="off"), False)
@example(REPEATED, changed(SETTINGS, replay_max=1, keep=1, accumulate=3), False)
@example(AGAIN, changed(SETTINGS, divergence="held", replay_max=1, keep=1, accumulate=2), False)
@given(st.one_of(st.lists(ANY, max_size=20), st.lists(ANY, min_size=20, max_size=70)), EVERY, st.booleans())
@example(
    ["lines"] * 3 + ["supervisor dies", "lines", "checkpoint", "answer", "back"], SETTINGS, False
)  # committed on the way back
def test_weights_are_made_of_the_steps_that_were_not_taken_back_whatever_happens(actions, training, keeps_steps):
    world = play(actions, training, keeps_steps)
    for _ in range(60):
        finish(world)
        if not (
            world.state.queued
            or world.state.rollback.wanted
            or world.state.rollback.under_way
            or world.state.checkpoints.open
            or world.state.forgetting.wanted
            or world.state.forgetting.under_way
            or world.state.updates.session
        ):
            break
    done, started = {e.step: e for e in world.of(ev.StepCompleted)}, {e.step: e for e in world.of(ev.StepStarted)}
    way, step = [], world.state.training.version
    while step:
        way.append(done[step])
        step = done[step].parent
    memory, optimizer = "base", "fresh"
    for one in reversed(way):
        examples = ev.all_examples(one)
        number = started[one.step].again_of or one.step
        ran = fx.RunStep(
            number, examples, tuple(map(digest, examples)), one.lr, products="bf16",
            loss_limit=started[one.step].loss_limit, objective=started[one.step].objective,
        )  # fmt: skip
        memory = digest(f"{memory} {optimizer} {ran}".replace(", replay=False", ""))
        optimizer = digest(f"{optimizer} {examples} {number}")
        assert one.fingerprint == memory
    assert world.memory == memory == world.state.training.fingerprint and world.optimizer == optimizer
    learned = [example for one in way for example in ev.all_examples(one)]
    review, forgetting = world.state.review, world.state.forgetting
    assert not forgetting.wanted and forgetting.under_way is None
    out = {*world.state.intake.undone, *world.state.intake.withdrawn, *review.held, *review.dismissed}
    assert len(set(learned)) == len(learned) and not set(learned) & out
    accepted = {e.example for e in world.of(ev.ExampleAccepted) if not e.example.startswith("long")}
    too_long = {example for example in out if example.startswith("long")}  # withdrawn before anybody saw that
    assert set(learned) | out == accepted | too_long
    out_of_turn(world)
    assert sorted(done) == list(range(1, len(done) + 1)) or set(started) - set(done) <= {
        e.step for e in world.of(ev.StepFailed)
    }
    committed = world.state.checkpoints.newest
    assert not committed or world.disk[committed.path].weights == world.model_dir[1]
    assert folded(world) == world.state


@draws(200, 1500)
@given(st.one_of(st.lists(ANY, max_size=8), st.lists(ANY, min_size=8, max_size=50)), EVERY, st.booleans())
@example(["lines", "answer", "step refused"], SETTINGS, False)
def test_a_request_to_stop_ends_the_daemon_whatever_was_under_way(actions, training, engine_first):
    world = play(actions, training)
    world.give(inp.ShutdownRequested("test"))
    if engine_first:
        world.exit("engine")
    assert stopped(world), (world.state.training.running, world.state.children, world.state.checkpoints.open)


@draws(120, 500)
@given(st.lists(ANY, max_size=40), EVERY, st.sampled_from(["engine", "trainer"]), st.integers(-48, 48))
@example(["lines", "settle"], changed(SETTINGS, publish="fenced"), "engine", -1)
@example(["clock back"], changed(SETTINGS, nightly="02:00-05:00"), "engine", -1)
def test_no_wait_outlasts_its_limit_whatever_the_clock_does(actions, training, role, hours):
    world = play(actions, training, requests=3)
    world.settle()
    fences = [effect for effect in [*world.pauses, *world.asked] if isinstance(effect, fx.PauseEngine)]
    for fence in fences:  # requests run for as long as they waited, or a failed pause is tried again
        assert fence.wait_s <= (0.1 if fence.attempt == 1 else BACKOFF_MAX_S), fence
    world = finish(world)
    child = world.state.children.engine if role == "engine" else world.state.children.trainer
    spawns, crashes = child.spawns, len(child.crashes_ns)
    world.exit(role)
    assert child.retry.wait_s <= 2.0**crashes
    world.now += hours * HOUR_NS
    world.pass_time(child.retry.wait_s)
    world.settle()
    waits_for_a_person = child.given_up or world.state.daemon.halted
    assert child.spawns > spawns or waits_for_a_person, child
