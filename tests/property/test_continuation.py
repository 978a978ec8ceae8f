"""A journal that goes on from an archive folds to the state with which the archive ends, and learning goes on as if
nothing had happened."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from property.test_core_properties import ANY, EVERY, finish, folded, play
from support.effort import draws
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.lives import stopped
from support.said_world import SaidWorld, undo
from support.world import SETTINGS, World, changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.continuation import Archive, Notes, carried_state, continuation, kept_examples, obstacle
from apollod.core.fold import fold
from apollod.core.state import State

ARCHIVE = Archive("/archive/journal.db", 7, "ab" * 32)


def archived(world: World) -> World:
    """The same disk and a journal that goes on."""
    notes, accepted, encoded = Notes(), {}, {}
    for recorded in world.journal:
        notes.see(recorded)
        if isinstance(recorded.event, ev.ExampleAccepted):
            accepted[recorded.event.example] = recorded.at_ns, recorded.event
        if isinstance(recorded.event, ev.ExampleEncoded):
            encoded[recorded.event.example] = recorded.at_ns, recorded.event
        if isinstance(recorded.event, ev.ExampleCarried):
            accepted |= dict.fromkeys(recorded.event.examples)

    def lessons(examples: Sequence[str]) -> Iterator[tuple]:
        return ((accepted[one], encoded.get(one)) for one in examples)

    settled = sorted(accepted.keys() - kept_examples(world.state))
    dated = continuation(world.state, notes, ARCHIVE, settled, lessons, world.now)
    other = world.successor()
    other.journal = [ev.Recorded(seq, at_ns, event) for seq, (at_ns, event) in enumerate(dated, 1)]
    other.state = State()
    for recorded in other.journal:
        fold(other.state, recorded)
    other.known = {e.example for e in other.of(ev.ExampleAccepted)}
    for carried in other.of(ev.ExampleCarried):
        other.known |= set(carried.examples)
    return other


SCORED = ["held lines", "approve", "lines", "direct", "settle"]
"""An example that was scored while it was held waits to be learned: its score decides when."""


@draws(60, 1500)
@example(SCORED, changed(SETTINGS, nightly="02:00-05:00", divergence="held"))
@given(st.lists(ANY, min_size=5, max_size=60), EVERY)
def test_a_continuation_folds_to_the_state_and_learns_the_same(actions, settings):
    world = play(["lines", "settle", *actions], settings)
    assume(stopped(world) and not obstacle(world.state))
    twin = world.successor()
    twin.journal, twin.disk, twin.known = list(world.journal), dict(world.disk), set(world.known)
    later = archived(world)
    assert later.known == twin.known
    assert carried_state(folded(later)) == carried_state(later.state) == carried_state(twin.state)
    again = archived(later)  # an archive of what an archive was followed by
    assert again.known == later.known and carried_state(again.state) == carried_state(later.state)
    last_step = twin.state.training.step
    for one in (twin, later):
        one.up()
        one.lines(*sorted(one.known), "new1", "new2", source="more")
        finish(one)
    assert later.state.intake.counts == twin.state.intake.counts
    assert [
        (e.step, e.parent, e.examples or e.example, e.lr, e.fingerprint)
        for e in twin.of(ev.StepCompleted)
        if e.step > last_step
    ] == [(e.step, e.parent, e.examples or e.example, e.lr, e.fingerprint) for e in later.of(ev.StepCompleted)]
    assert (later.memory, later.state.training.counts) == (twin.memory, twin.state.training.counts)


def begun() -> tuple[World, int]:
    """A journal that begins at a checkpoint, and its step; two steps were made since."""
    world = play(["lines", "settle", "checkpoint", "settle"])
    assert stopped(world) and not obstacle(world.state)
    step = world.state.training.version
    later = archived(world).up()
    later.lines("n1", "n2", source="more")
    later.settle()
    assert later.state.training.version == step + 2
    return later, step


@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_rollback_beyond_the_beginning_is_refused_with_the_name_of_the_archive(back):
    world, step = begun()
    world.give(inp.RollbackRequested(step - back, "t"))
    world.settle()
    (refused,) = world.of(ev.RollbackRefused)
    assert refused.reason.startswith(f"the journal begins at step {step}") and ARCHIVE.path in refused.reason
    assert f"--to {step - back} " in refused.reason


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_rollback_to_the_beginning_and_to_later_steps_goes_as_ever(ahead):
    world, step = begun()
    world.give(inp.RollbackRequested(step + ahead, "t"))
    world.settle()
    assert world.state.training.version == step + ahead and not world.of(ev.RollbackRefused)
    assert world.memory == world.state.training.fingerprint


def test_what_cannot_be_gone_on_from_is_told():
    world = play(["lines", "settle"])
    assert "newest checkpoint" in obstacle(world.state) or "no checkpoint" in obstacle(world.state)
    world.lines("one more", source="x")
    world.answer()
    assert world.state.training.running is None or obstacle(world.state)
    assert obstacle(State()) == "there is no checkpoint yet at which the next journal could begin"


def test_the_guard_goes_on_with_its_baseline_and_goes_back_no_further_than_the_journal():
    world = GuardedWorld().up()
    world.lines("a", "b", "c", "d")
    world.settle()
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    assert world.state.quality.looked == 4 and stopped(world) and not obstacle(world.state)
    later = archived(world)
    later.up()
    later.poison = {"bad": ITEMS}
    later.lines("bad", "n1", "n2", source="more")
    later.settle()
    looks = [(e.number, e.why, e.step) for e in later.of(ev.QualityMeasured)]
    assert looks[:3] == [(1, "baseline", 0), (2, "baseline", 0), (5, "steps", 7)], "two are in the archive"
    (alarmed,) = later.of(ev.QualityAlarmed)
    assert (alarmed.incident, alarmed.to) == (1, 4) and later.learned() == ["n1", "n2"]
    assert later.state.quality.at == 0 and later.state.quality.incident is None


def test_an_alarm_that_is_not_settled_is_not_forgotten_with_the_archive():
    world = GuardedWorld(guarded(resume="manual")).up()
    world.poison = {"bad": ITEMS}
    world.lines("a", "b", "bad")
    world.settle()
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    assert stopped(world) and "apollod ctl resume" in obstacle(world.state)


def test_what_the_guard_counted_is_counted_on_after_the_archive():
    world = GuardedWorld(guarded()).up()
    world.poison = {"bad": ITEMS}
    world.lines("a", "b", "bad")
    world.settle()
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    later = archived(world).state.quality
    assert later.totals == world.state.quality.totals and later.totals.taken_back == 3 and later.totals.replays > 3


def test_what_a_person_approved_is_not_held_by_a_log_in_the_next_journal_and_a_wish_to_forget_is_first():
    world = SaidWorld().up()
    world.says("a", "b")
    world.settle()
    world.give(inp.TrainingPaused("t"))
    world.says("c", shown=(undo("c"),))
    world.give(inp.DecisionsGiven((inp.Decision("c", "approve"),), "anna"))
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    later = archived(world).up()
    later.says("d", shown=(undo("c"),))
    assert later.states() == {"c": "pending", "d": "pending"}

    world.says(shown=(undo("a"),))
    assert "1 examples are to be forgotten" in obstacle(world.state)
