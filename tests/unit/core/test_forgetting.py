"""What was learned and then taken back leaves the weights: to the bits of a life in which it was never learned."""

import random

import msgspec
import pytest
from support.guarded_world import ITEMS, GuardedWorld, guarded
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


class Bare(World):
    """Only weights: whatever is told to it is told to nobody."""

    def give(self, input_: inp.Input) -> list[ev.Event]:
        return []


def without(w: World, *examples: str) -> str:
    """Weights of all that was learned first, had these examples never been learned."""
    bare = Bare()
    for e in w.of(ev.StepStarted):
        pairs = zip(ev.all_examples(e), e.digests or (e.digest,), strict=True)
        if not e.again_of and (left := [pair for pair in pairs if pair[0] not in examples]):
            names, digests = zip(*left, strict=True)
            bare.run_step(fx.RunStep(e.step, names, digests, e.lr, loss_limit=e.loss_limit, objective=e.objective))
    return bare.memory


def learned(*answers: str, **settings: object) -> SaidWorld:
    w = SaidWorld(changed(SETTINGS, **settings)).up()
    w.says(*answers)
    w.settle()
    return w


def repeating(w: World) -> None:
    """Until the first of the other steps is repeated."""
    while w.state.training.running is None or not w.state.training.running.begun.again_of:
        w.answer()


def test_what_is_taken_back_while_others_are_repeated_is_not_repeated() -> None:
    w = learned(*"abcd")
    w.says(shown=(undo("a"),))
    repeating(w)
    w.says(shown=(undo("d"),))
    w.settle()
    assert w.memory == without(w, "a", "d") and set(w.state.intake.withdrawn) == {"a", "d"}
    assert [e.example for e in w.of(ev.StepStarted)].count("d") == 1 and len(w.of(ev.RollbackStarted)) == 1


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("keeps_steps", [True, False])
def test_the_weights_come_out_as_if_it_had_never_been_learned(accumulate: int, keeps_steps: bool) -> None:
    w = SaidWorld(changed(SETTINGS, accumulate=accumulate))
    w.keeps_steps = keeps_steps
    w.up().says(*"abcdefg")
    w.settle()
    w.says(shown=(undo("c"), undo("e")))
    w.settle()
    assert w.memory == without(w, "c", "e") == w.state.training.fingerprint != without(w)
    (begun,), (done,) = w.of(ev.ForgetStarted), w.of(ev.ForgetCompleted)
    assert set(begun.examples) == set(done.examples) == {"c", "e"} == set(w.state.intake.withdrawn)
    assert done.fingerprint == w.memory and done.repeated == len(begun.again) and not done.left
    assert w.state.training.counts.trained == 5 and not w.state.intake.undone
    assert [e.reason for e in w.of(ev.ForgetRequested)] == ['rejected (undo): "undo that"'] * 2
    assert w.of(ev.RollbackRequested)[0].by == "forget" and w.state.forgetting.under_way is None


def test_what_comes_afterwards_is_learned_and_can_be_forgotten_in_its_turn() -> None:
    w = learned(*"abc")
    w.says(shown=(undo("b"),))
    w.settle()
    w.says("d", "e")
    w.settle()
    w.says(shown=(undo("a"), undo("d")))
    w.settle()
    assert w.memory == without(w, "a", "b", "d")
    assert w.state.forgetting.forgotten == 3 and w.state.training.counts.trained == 2


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
    assert whole.memory == without(whole, "b", "e")
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


def test_evidence_about_the_running_step_waits_for_it() -> None:
    w = SaidWorld().up()
    w.says("a", "b")
    w.settle_until(fx.RunStep)
    w.says(shown=(undo("a"),))
    assert set(w.state.forgetting.wanted) == {"a"}
    w.settle()
    assert w.memory == without(w, "a") and set(w.state.intake.withdrawn) == {"a"}


def test_what_is_longer_ago_than_allowed_stays_learned_and_is_named() -> None:
    w = learned(*"abcd", forget_steps=2)
    w.says(shown=(undo("a"), undo("d")))
    w.settle()
    (refused,) = w.of(ev.ForgetRefused)
    assert refused.examples == ("a",) and "more than 2 steps ago" in refused.reason
    assert w.memory == without(w, "d") and w.state.forgetting.refused == {"a": refused.reason}
    again = msgspec.structs.replace(undo("a"), kind="correction", polarity="correction")
    w.says(shown=(again,))
    w.settle()
    assert len(w.of(ev.ForgetRefused)) == 1, "more evidence asks for nothing that was refused"
    w.give(inp.ForgetWanted(("a",), "anna"))
    w.settle()
    assert len(w.of(ev.ForgetRefused)) == 2, "a person does"


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
    assert w.memory == without(w, "c") and set(w.state.intake.withdrawn) == {"c"}


def test_steps_made_with_other_settings_are_not_repeated_to_other_bits() -> None:
    w = learned("a", "b")
    w.settings = changed(SETTINGS, seed=7)
    plan_of = inp.ForgetPlanned(2, ("a",), (1,), 0, (Learned(2, ("b",), ("x",), 1.0, 1, "bulk"),), made_with=w.settings)
    w.says(shown=(undo("a"),))
    w.asked.clear()
    w.give(plan_of)
    assert "another [trainer] seed" in w.of(ev.ForgetRefused)[0].reason


def test_nothing_in_the_weights_needs_no_rollback() -> None:
    w = SaidWorld().up()
    w.losses["a"] = float("nan")
    w.says("a", "b")
    w.settle()
    w.says(shown=(undo("a"),))
    w.settle()
    (done,) = w.of(ev.ForgetCompleted)
    assert not done.number and done.examples == ("a",) and not w.of(ev.RollbackStarted)
    assert not w.state.forgetting.wanted and not w.state.forgetting.forgotten


def test_what_a_rollback_took_back_is_withdrawn_at_once() -> None:
    w = learned(*"ab")
    w.give(inp.RollbackWanted(1, "t"))
    w.settle()
    w.says(shown=(undo("b"),))
    assert set(w.state.intake.withdrawn) == {"b"} and not w.state.intake.undone
    w.give(inp.RelearnRequested((("b", "bulk"),), "anna"))
    w.settle()
    assert w.state.training.counts.trained == 2
    w.says(shown=(msgspec.structs.replace(undo("b"), kind="refused"),))
    assert not w.of(ev.ForgetRequested), "who asks for it again has decided"


def test_a_bad_rating_takes_back_what_was_learned() -> None:
    w = World().up()
    w.rate("r", "good")
    w.settle()
    assert w.state.training.version == 1
    w.rate("r", "bad")
    w.settle()
    assert w.memory == "base" and set(w.state.intake.withdrawn) == {"good r"}
    assert w.of(ev.ExampleWithdrawn)[0].reason == "its answer was rated bad"


def test_a_person_who_rolls_back_meanwhile_ends_it() -> None:
    w = learned(*"abcdef")
    w.says(shown=(undo("b"),))
    repeating(w)
    w.give(inp.RollbackWanted(1, "anna"))
    w.settle()
    (done,) = w.of(ev.ForgetCompleted)
    assert (done.repeated, done.left) == (1, 3) and "anna wants the weights of step 1" in done.reason
    assert w.state.training.version == 1 and set(w.state.intake.undone) == set("cdef")
    assert set(w.state.intake.withdrawn) == {"b"}


def test_it_waits_for_a_pause_for_the_night_and_for_an_alarm() -> None:
    w = learned("a")
    w.give(inp.PauseRequested("t"))
    w.says(shown=(undo("a"),))
    w.settle()
    assert "paused" in blocked(Activity.FORGETTING, w.state) and w.state.forgetting.wanted
    w.give(inp.ResumeRequested("t"))
    w.settle()
    assert w.memory == "base"

    w = SaidWorld(changed(SETTINGS, nightly="02:00-05:00")).up()
    w.says("a", tier="direct")
    w.settle()
    w.says(shown=(undo("a"),))
    w.settle()
    assert "at night" in blocked(Activity.FORGETTING, w.state) and w.state.forgetting.wanted
    w.give(inp.ForgetWanted(("a",), "anna"))
    assert w.state.forgetting.wanted["a"].by == "evidence", "it is wanted already"

    guard = GuardedWorld(guarded(resume="manual")).up()
    guard.poison = {"bad": ITEMS}
    guard.lines("a", "b", "bad", "c")
    guard.settle()
    assert guard.state.quality.incident is not None
    assert "alarm 1" in blocked(Activity.FORGETTING, guard.state)


def test_no_look_is_taken_at_weights_half_way_and_no_archive_begins_there() -> None:
    guard = GuardedWorld(guarded(every_steps=3)).up()
    guard.lines(*"abcdef")
    guard.settle()
    guard.give(inp.CheckpointRequested("t"))
    guard.settle()
    guard.give(inp.ForgetWanted(("b",), "anna"))
    guard.settle_until(fx.Restore)
    guard.answer()
    repeating(guard)
    assert "being forgotten" in blocked(Activity.MEASUREMENT, guard.state)
    assert obstacle(guard.state)
    guard.settle()
    assert guard.memory == without(guard, "b") and not guard.of(ev.QualityAlarmed)
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
