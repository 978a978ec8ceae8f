"""What was learned and then taken back leaves the weights: to the bits of a life in which it was never learned."""

import random

import pytest
from support.guarded_world import GuardedWorld, guarded
from support.said_world import SaidWorld, undo
from support.world import SETTINGS, Died, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.continuation import obstacle
from apollod.core.facts.training import Learned
from apollod.core.rules.forgetting import plan
from apollod.core.rules.rollback import NotRead


def learned(*answers: str, **settings: object) -> SaidWorld:
    w = SaidWorld(changed(SETTINGS, **settings)).up()
    w.says(*answers)
    w.settle()
    return w


def test_killed_at_every_instant_the_same_weights_come_out() -> None:
    def life(dies_at: int = 0) -> World:
        w: World = SaidWorld(changed(SETTINGS, replay_max=3), dies_at)
        try:
            w.up()
            for answers, shown in ((("a", "b", "c", "d"), ()), ((), ("b",)), (("e",), ()), ((), ("e",))):
                w.says(*answers, shown=tuple(map(undo, shown)))  # type: ignore[attr-defined]
                w.settle()
        except Died:
            known = set(w.known)
            w = w.crash_and_return()
            w.settle()
            said = {e.signal for e in w.of(ev.SignalFlagged)}
            for answers, shown in ((("a", "b", "c", "d"), ()), ((), ("b",)), (("e",), ()), ((), ("e",))):
                if set(answers) - known or any(undo(one).id not in said for one in shown):
                    w.says(*answers, shown=tuple(map(undo, shown)))  # type: ignore[attr-defined]
                    w.settle()
        return w

    whole = life()
    assert whole.memory == whole.as_if_never
    for instant in random.Random(0).sample(range(1, whole.instants), 60):
        w = life(instant)
        assert w.memory == w.state.training.fingerprint, instant
        assert set(w.state.intake.withdrawn) | set(w.state.review.held) == {"b", "e"}, instant
        chain, step = list[str](), w.state.training.version
        done = {e.step: e for e in w.of(ev.StepCompleted)}
        while step:
            chain += ev.all_examples(done[step])
            step = done[step].parent
        assert sorted(chain) == ["a", "c", "d"], instant


def test_without_a_way_back_only_what_it_concerns_stays_learned() -> None:
    class Lost(SaidWorld):
        """There is no way to step 0."""

        def answer(self) -> bool:
            asked = self.asked[0] if self.asked else None
            if isinstance(asked, fx.PlanRollback) and asked.to == 0:
                self.asked.popleft()
                self.give(inp.RollbackPlanned(0, asked.version, error="nothing leads there"))
                return True
            return super().answer()

    w = Lost().up()
    w.says(*"abc")
    w.settle()
    w.says(shown=(undo("a"), undo("c")))
    w.settle()
    (refused,) = w.of(ev.ForgetRefused)
    assert (refused.examples, refused.reason) == (("a",), "nothing leads there")
    assert w.memory == w.as_if_never and set(w.state.intake.withdrawn) == {"c"}


def test_steps_made_with_other_settings_are_not_repeated_to_other_bits() -> None:
    w = learned("a", "b")
    w.settings = changed(SETTINGS, seed=7)
    plan_of = inp.ForgetPlanned(2, ("a",), (1,), 0, (Learned(2, ("b",), ("x",), 1.0, 1, "bulk"),), made_with=w.settings)
    w.says(shown=(undo("a"),))
    w.asked.clear()
    w.give(plan_of)
    assert "another [trainer] seed" in w.of(ev.ForgetRefused)[0].reason


def test_no_look_is_taken_at_weights_half_way_and_no_archive_begins_there() -> None:
    guard = GuardedWorld(guarded(every_steps=3)).up()
    guard.lines(*"abcdef")
    guard.settle()
    guard.give(inp.CheckpointRequested("t"))
    guard.settle()
    guard.give(inp.ForgetRequested(("b",), "anna", ""))
    guard.settle_until(fx.Restore)
    guard.answer()
    guard.repeating()
    assert "being forgotten" in blocked(Activity.MEASUREMENT, guard.state)
    assert obstacle(guard.state)
    guard.settle()
    assert guard.memory == guard.as_if_never and not guard.of(ev.QualityAlarmed)
    assert not blocked(Activity.MEASUREMENT, guard.state)


def test_a_plan_reads_no_further_back_than_it_needs() -> None:
    w = learned(*"abcdef")
    begun, done = ({e.step: e for e in w.of(kind)} for kind in (ev.StepStarted, ev.StepCompleted))
    some = {step: e for step, e in done.items() if step > 3}
    arguments = (lambda _: w.settings, w.bound_of, lambda _: {})
    found = plan(begun, some, *arguments, ("e",), 6, 100)
    assert (found.to, found.steps, [one.examples for one in found.again]) == (4, (5,), [("f",)])
    with pytest.raises(NotRead):
        plan(begun, some, *arguments, ("e", "b"), 6, 100)
    assert plan(begun, done, *arguments, ("b",), 6, 100, begins=2).far == ("b",), "it is in the archive"
