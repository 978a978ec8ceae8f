"""A crash at any instant of a life leaves no intent open for ever: the lives after it settle what it left."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.dreaming_world import PATTERN, DreamingWorld, with_patterns
from support.effort import draws
from support.guarded_world import ITEMS, GuardedWorld
from support.intents import INTENTS, open_intents
from support.lives import cut_short, goes_well, noted
from support.world import Died, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.intake.events import BY_SCORE, Evidence
from apollod.core.shared.missing_anchors import lacking

LOOKS = 4
"""in which an alarm comes for sure"""
SETTINGS = with_patterns(
    msgspec.structs.replace(PATTERN, held_out=1), dream={"mode": "off"}, publish="fenced", align_every=2
)
"""Dreams begin when somebody asks for them."""


class Daemon(GuardedWorld, DreamingWorld):
    """With dreams and a guard that measures when it is asked."""


def body(event: ev.Event) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def open_in(world: World) -> list[tuple[str, object]]:
    return open_intents((r.event.kind, body(r.event)) for r in world.journal)


def life(world: Daemon) -> None:
    """Everything a daemon does in its life, once: learning, checkpoints (one too many), dying children, a held
    example, dreams (one that comes to nothing), a measurement (asked twice), an alarm."""
    world.up()
    world.lines("a", "b", "long", "c", source=f"f{len(world.journal)}")
    world.lines(f"s{len(world.journal)}", f"odd{len(world.journal)}", source="s", hold=1.0, stripped=True)
    world.settle()
    followed(world, f"f{len(world.journal)}", f"odd f{len(world.journal)}")
    world.settle()
    world.give(inp.ForgetRequested(("a",), "test", ""))
    for plan in [one for one in world.asked if isinstance(one, fx.PlanForget)]:
        world.asked.remove(plan)
        world.give(inp.ForgetPlanned(world.state.training.version, error="the journal cannot be read"))
    world.settle()
    world.give(inp.DreamingStarted("test", count=1))
    world.dream()
    world.give(inp.DreamingStarted("test"))
    world.give(inp.PatternUnwanted("ask", "test"))
    world.give(inp.QualityWanted("test"))
    if world.probed:
        world.give(inp.ProbesFailed(world.probed.pop().number, "nobody answers"))
    world.pass_time(70)
    world.give(inp.CheckpointRequested("test"))
    world.settle()
    world.give(inp.RollbackRequested(max(0, world.state.training.version - 1), "test"))
    world.settle()
    world.give(inp.RollbackRequested(world.state.training.version, "test"))  # refused
    world.settle()
    for number in range(2):
        world.lines(f"d{number}", source=f"g{len(world.journal)}")
        world.settle()
        world.give(inp.CheckpointRequested("test"))
        world.exit("trainer")  # the checkpoint is half written
        world.pass_time(70)
        world.settle()
        world.give(inp.CheckpointRequested("test"))
        world.settle()
    world.lines("poison", "e", source=f"h{len(world.journal)}")
    world.answer()
    for _ in range(3):  # a step that no trainer survives
        world.exit("trainer")
        world.give(inp.TrainingResumed("test"))
        while world.asked and world.state.children.trainer.phase != "ready":
            world.answer()
    worsen(world)
    worsen(world, no_ranking="no memory, either")
    world.exit("engine")
    world.settle()
    world.give(inp.TrainingResumed("test"))
    world.pass_time(70)
    world.engine_up()
    world.settle_until(fx.ProbeTrainer)
    world.give(inp.RollbackRequested(world.state.training.version, "test"))  # refused; the comparison is made again
    world.asked.popleft()
    world.settle_until(fx.ProbeTrainer)
    number = world.asked.popleft().number
    world.give(inp.Probed(world.state.training.version, error="out of memory", number=number))
    rest(world)


def followed(world: Daemon, *examples: str) -> None:
    """A person wrote something after these answers, and no cue speaks of it."""
    lines = [inp.Line(number=1, example=one, record=b"{}", responses=(inp.Response(f"k {one}"),)) for one in examples]
    unscored = tuple(Evidence(BY_SCORE, "correction", 0.0, f"k {one}") for one in examples)
    lines.append(inp.Line(number=2, unscored=unscored))
    source = f"l{len(world.journal)}"
    world.give(inp.LinesRead(inp.Batch(source, "/l", 9, 2, tuple(lines), learn="unrejected"), frozenset()))


def worsen(world: Daemon, no_ranking: str = "") -> None:
    """A model that an example makes worse: an alarm, and a search for who did it, whose first replay cannot be run at
    once and whose second one never; then a ranking, or none."""
    name = f"bad{len(world.journal)}"
    world.poison, before = {**world.poison, name: ITEMS}, len(world.of(ev.QualityAlarmed))
    world.give(inp.QualityWanted("test"))
    world.settle()
    world.lines(name, f"n{len(world.journal)}", source=f"q{len(world.journal)}")
    world.settle()
    world.answers = False
    for _ in range(LOOKS):
        if len(world.of(ev.QualityAlarmed)) == before:
            world.give(inp.QualityWanted("test"))
            World.settle(world)
            if world.probed:
                world.look()
    for _ in range(4):
        world.restored()
        world.pass_time(70)
    if world.replayed:
        asked = world.replayed.pop()
        world.give(inp.WindowReplayFailed(asked.incident, asked.number, "the disk is full"))
    world.pass_time(70)
    if world.replayed:
        world.replay()
    if world.replayed:
        asked = world.replayed.pop()
        world.give(inp.WindowReplayFailed(asked.incident, asked.number, "no memory", for_good=True))
    world.answers, world.no_ranking = True, no_ranking
    world.pass_time(70)
    world.settle()
    world.no_ranking = ""


def rest(world: Daemon) -> None:
    """Whatever was given up is tried again until nothing is left to do; then a clean end."""
    for _ in range(8):
        goes_well(world)
        world.dream()
    world.give(inp.ShutdownRequested("test"))
    world.settle()
    assert world.exited


def died(world: Daemon, what: Callable[[Daemon], None]) -> bool:
    try:
        what(world)
    except Died:
        return True
    return False


CALM = Daemon(SETTINGS)
life(CALM)


def test_one_life_has_every_intent_and_every_result():
    """What the walk below walks over: a life that skips an intent would prove nothing about it."""
    kinds = set(CALM.kinds())
    assert INTENTS.keys() <= kinds
    assert set().union(*(intent.settled_by for intent in INTENTS.values())) <= kinds
    assert "checkpoint.removed" in kinds and open_in(CALM) == []


def test_a_crash_at_each_instant_leaves_nothing_open():
    after_each = cut_short(Daemon(SETTINGS), life)
    assert [*after_each] == [*range(1, CALM.instants + 1)]
    for instant, after in after_each.items():
        with noted(instant):
            ends_with_nothing_open(after)


def ends_with_nothing_open(after: Daemon) -> None:
    """What the life before left open is taken up again at once, and settled."""
    start = inp.Started(2, "test", SETTINGS, "/s")
    first = [r.event for r in after.journal] + decide(after.state, start, after.now).events
    at_once = {kind for kind, _ in open_intents((e.kind, body(e)) for e in first)}
    # All but the first are taken up again, the checkpoint by a look at the disk.
    assert at_once <= {
        "daemon.started",
        "step.started",
        "window.opened",
        "checkpoint.started",
        "rollback.requested",
        "rollback.started",
        "forget.started",
        "dream.requested",
        "quality.requested",
        "quality.replay_begun",
    }
    after.up()
    rest(after)
    assert open_in(after) == []
    steps = [e.step for e in after.of(ev.StepStarted)]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.parametrize("kind", [fx.ScoreExample, fx.ScoreFollowUp])
def test_a_clean_stop_waits_for_no_score_and_the_next_life_asks_again(kind):
    world = Daemon(SETTINGS)
    world.up()
    if kind is fx.ScoreExample:
        world.lines("a", source="f", hold=1.0, stripped=True)
    else:
        world.lines("a", source="f")
        world.settle()
        followed(world, "a")
    world.settle_until(kind)
    asked = world.asked.popleft()
    world.give(inp.ShutdownRequested("test"))
    world.settle()
    assert world.exited and open_in(world) == []
    before = len(world.journal)
    after = world.successor().up()
    wanted = ev.ScoreRequested if kind is fx.ScoreExample else ev.FollowUpRequested
    assert asked.example in [e.event.example for e in after.journal[before:] if isinstance(e.event, wanted)]
    assert {intent for intent, _ in open_in(after)} == {"engine.spawned", "trainer.spawned", "daemon.started"}


def test_a_stop_while_a_new_engine_is_asked_for_anchors_leaves_no_window_open():
    """An engine that answers nothing is waited for by no step, and the supervisor dies amid one. The next life
    completes it and asks its own engine: the window is over, and waits for no anchor."""
    world = Daemon(changed(SETTINGS, hold=1.0))
    world.anchors = "unable"
    world.up()
    world.lines("a", source="f")
    while world.state.training.running is None:
        world.answer()
    after = world.successor()
    after.anchors = ""
    after.start()
    after.settle()
    after.engine_up()
    while after.state.training.running is not None:
        after.answer()
    assert lacking(after.state)
    after.give(inp.ShutdownRequested("test"))
    after.settle()
    assert after.exited and open_in(after) == []


@draws(25, 200)
@example([3, 1, 2])
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_crashes_of_the_recovery_itself_leave_nothing_open(instants):
    """Life after life is cut short, the next one too while it still settles what the one before left."""
    world = Daemon(SETTINGS)
    for instant in instants:
        world.dies_at = instant
        died(world, life)
        world = world.successor()
    life(world)
    assert open_in(world) == []
    assert len(world.learned()) == len(set(world.learned()))
