"""After an alarm of the quality guard: who did it, who is held, and what is learned again."""

from typing import Any

import pytest
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.world import World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.quality.looking import DOUBT, PART
from apollod.core.schedules import SECOND_NS


def alarmed(*lines: str, poison: dict[str, int], **settings: Any) -> GuardedWorld:
    """A world in which these were learned, up to the first thing that the guard asks after its alarm."""
    w = GuardedWorld(guarded(**{"every_steps": len(lines)} | settings)).up()
    w.poison = poison
    w.lines(*lines)
    while not w.of(ev.QualityAlarmed):
        World.settle(w)
        w.look()
    return w


class Bare(World):
    """Only weights: whatever is told to it is told to nobody."""

    def give(self, input_: inp.Input) -> list[ev.Event]:
        return []


def without(w: World, *examples: str, later: bool = False) -> str:
    """Weights of the steps up to the first rollback (or with what was learned `later`), had these examples never been
    learned."""
    (back,) = w.of(ev.RollbackStarted)
    bare = Bare()
    for e in w.of(ev.StepStarted):
        left = [
            pair for pair in zip(ev.all_examples(e), e.digests or (e.digest,), strict=True) if pair[0] not in examples
        ]
        if left and not e.again_of and (later or e.step <= back.from_step):
            names, digests = zip(*left, strict=True)
            bare.run_step(fx.RunStep(e.step, names, digests, e.lr, loss_limit=e.loss_limit, objective=e.objective))
    return bare.memory


@pytest.mark.parametrize("accumulate", [1, 4])
def test_the_weights_come_out_as_if_the_culprits_had_never_been_learned(accumulate: int) -> None:
    lines = [f"x{n:02}" for n in range(30)]
    lines[7], lines[21] = "bad", "worse"
    every = -(-len(lines) // accumulate)
    w = GuardedWorld(changed(guarded(every_steps=every), accumulate=accumulate)).up()
    w.poison = {"bad": 20, "worse": 15}
    w.lines(*lines)
    w.settle()
    (named,) = w.of(ev.QualityNamed)
    (begun,) = w.of(ev.QualitySearchBegun)
    assert named.verdict == "named" and set(named.culprits) == {"bad", "worse"} and not named.suspects
    assert begun.window == tuple(lines) and named.replays == len(w.of(ev.QualityReplayed)) <= begun.replays_max
    assert sorted(w.learned()) == sorted(set(lines) - {"bad", "worse"})
    assert w.memory == without(w, "bad", "worse") != without(w)
    (settled,) = w.of(ev.QualitySettled)
    after = [r.event for r in w.journal if r.seq > next(r.seq for r in w.journal if r.event is settled)]
    looks = [e for e in after if isinstance(e, ev.QualityMeasured)]
    assert [e.why for e in looks] == ["asked"], "whether it is good now is measured before anything else is learned"
    assert w.ended == 1 and not w.of(ev.QualityAlarmed)[1:]


def test_of_two_that_do_harm_only_together_the_first_is_named() -> None:
    class Pair(GuardedWorld):
        def replay(self) -> list[ev.Event]:
            asked = self.replayed[0]
            both = not {"bad", "worse"} & set(asked.left_out)
            self.poison = {"bad": ITEMS} if both else {}
            return super().replay()

    w = Pair(guarded(every_steps=10)).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "bad", "b", "c", "d", "e", "worse", "f", "g", "h")
    while not w.of(ev.QualityNamed):
        w.settle()
    (named,) = w.of(ev.QualityNamed)
    assert named.culprits == ("bad",)


def test_the_search_says_beforehand_how_many_replays_it_takes_and_tells_where_it_is() -> None:
    w = alarmed(*"abcdef", "bad", "g", poison={"bad": ITEMS})
    w.restored()
    (begun,) = w.of(ev.QualitySearchBegun)
    assert begun.replays_max == 2 + 8 * (3 + 1)
    assert f"replay 1 of at most {begun.replays_max}" in blocked(Activity.STEP, w.state)
    w.replay()
    assert "replay 2 of" in blocked(Activity.STEP, w.state)


def at_too_high_a_rate(**settings: Any) -> GuardedWorld:
    """Sixteen examples, each of which does harm at the rate at which they were learned, and not at a quarter of it."""
    names = [f"x{n:02}" for n in range(16)]
    w = GuardedWorld(changed(guarded(every_steps=16, culprits_max=2), **settings)).up()
    w.poison, w.harmful_lr = dict.fromkeys(names, ITEMS // 4), 0.5
    w.lines(*names)
    w.settle()
    return w


def test_a_rate_at_which_every_example_harms_is_named_and_waits_for_a_person() -> None:
    w = at_too_high_a_rate()
    (named,), (begun,) = w.of(ev.QualityNamed), w.of(ev.QualitySearchBegun)
    assert (named.verdict, named.lr_scale, named.culprits, named.suspects) == ("rate", 0.25, (), ())
    line = (
        "every example harms at this learning rate: use [trainer] lr = 0.25 and `apollod ctl resume`, which learns "
        "them again at that rate"
    )
    assert named.reason == line and blocked(Activity.STEP, w.state).endswith(line)
    asked = w.of(ev.QualityReplayBegun)
    assert named.replays == len(asked) <= begun.replays_max and asked[-1].left_out == () and asked[-1].lr_scale == 0.25
    assert all(e.lr_scale == 1.0 for e in asked[:-1])
    assert not w.learned() and len(w.state.intake.undone) == 16 and not w.of(ev.ExampleHeld) and w.ended == 1
    w.pass_time(100_000)
    w.settle()
    assert not w.learned() and not w.of(ev.QualitySettled), "until somebody resumes"


def test_what_a_rate_harmed_is_learned_again_at_the_lower_one_when_a_person_resumes() -> None:
    w = at_too_high_a_rate()
    w.settings = changed(w.settings, lr=0.25)
    after = w.successor()
    assert isinstance(after, GuardedWorld)
    after.up()
    after.settle()
    assert not after.learned(), "another rate alone is no reason to go on"
    after.give(inp.ResumeRequested("p"))
    after.settle()
    again = [e for e in after.of(ev.StepStarted) if e.again_of]
    assert after.learned() == [f"x{n:02}" for n in range(16)] and {e.lr for e in again} == {0.25}
    (settled,) = after.of(ev.QualitySettled)
    assert settled.how.endswith("steps go on, those taken back at a lower learning rate")
    assert after.of(ev.QualityMeasured)[-1].why == "asked" and len(after.of(ev.QualityAlarmed)) == 1
    bare = Bare()
    for e in after.of(ev.StepStarted)[:16]:
        bare.run_step(fx.RunStep(e.step, (e.example,), (e.digest,), 0.25 * e.lr, loss_limit=e.loss_limit))
    assert after.memory == bare.memory, "to the bits of the replay that did no harm"


def test_the_rate_of_what_is_given_directly_is_a_setting_of_its_own() -> None:
    names = [f"x{n:02}" for n in range(16)]
    w = GuardedWorld(changed(guarded(every_steps=32, culprits_max=2), lr=2e-3, lr_direct=1e-3)).up()
    w.poison, w.harmful_lr = dict.fromkeys(names, ITEMS // 8), 4e-4
    w.lines(*names[:8], tier="direct")
    w.lines(*names[8:], source="more")
    w.lines(*(f"y{n}" for n in range(16)), source="good")
    w.settle()
    (named,) = w.of(ev.QualityNamed)
    assert "use [trainer] lr = 0.000125 and lr_direct = 6.25e-05 and" in named.reason, named


def test_who_is_to_be_told_of_alarms_is_told_to_lower_the_rate() -> None:
    w = at_too_high_a_rate(on_alarm=True)
    w.tells()
    (second,) = w.telling
    (named,) = w.of(ev.QualityNamed)
    assert (second.about, second.message.how) == ("rate", named.reason)
    w.give(inp.ResumeRequested("p"))
    w.settle()
    w.tells()
    assert [one.about for one in w.telling] == ["settled"] and w.of(ev.QualityTold)[-1].about == "rate"


def test_damage_from_before_the_window_is_nobodys_and_waits_for_a_person() -> None:
    w = alarmed("a", "bad", "c", "d", poison={"bad": 20})
    w.lost_before = 0.8
    w.settle()
    (named,) = w.of(ev.QualityNamed)
    assert named.verdict == "elsewhere" and not w.of(ev.ExampleHeld) and not w.of(ev.QualitySettled)
    w.poison = {}
    w.give(inp.ResumeRequested("p"))
    w.settle()
    assert w.learned() == ["a", "bad", "c", "d"] and len(w.of(ev.QualitySettled)) == 1


def test_an_alarm_that_replays_do_not_repeat_blames_nobody() -> None:
    w = alarmed("a", "bad", "c", "d", poison={"bad": ITEMS})
    w.repeats, w.poison = False, {}
    w.settle()
    (named,) = w.of(ev.QualityNamed)
    assert named.verdict == "not_repeated" and not w.of(ev.ExampleHeld)
    assert w.learned() == ["a", "bad", "c", "d"] and w.memory == without(w)


@pytest.mark.parametrize("why", ["off", "no references"])
def test_without_a_search_all_that_was_learned_stays_taken_back(why: str) -> None:
    w = GuardedWorld(guarded(culprits_max=0 if why == "off" else 8)).up()
    w.references = "" if why == "no references" else "r"
    w.give(inp.QualityWanted("p", baseline=True))
    w.settle()
    w.poison = {"bad": ITEMS}
    w.lines("a", "bad", "c", "d")
    w.settle()
    (named,) = w.of(ev.QualityNamed)
    assert named.verdict == "not_searched" and named.reason and not w.of(ev.QualityReplayBegun)
    assert w.learned() == ["d"] and set(w.state.intake.undone) == {"a", "bad", "c"}
    assert w.of(ev.QualitySettled)[0].by == "the quality guard"


def test_an_alarm_on_the_weights_of_the_baseline_says_that_the_probes_are_wrong() -> None:
    w = GuardedWorld(guarded(every_steps=0)).up()
    w.give(inp.QualityWanted("p", baseline=True))
    w.settle()
    w.poison, w.journal[-1] = {"x": ITEMS}, w.journal[-1]
    w.learned = lambda: ["x"]  # type: ignore[method-assign]
    w.give(inp.QualityWanted("p"))
    w.settle()
    (named,) = w.of(ev.QualityNamed)
    assert "the probes say" in named.reason and not w.of(ev.RollbackRequested)
    assert not w.of(ev.QualitySettled), "nothing changed, so the next look would alarm again"
    w.give(inp.ResumeRequested("p"))
    assert w.state.quality.incident is None


def test_a_replay_that_fails_is_tried_again_and_then_given_up() -> None:
    w = alarmed("a", "bad", *"bcdef", poison={"bad": ITEMS})
    w.restored()
    for _ in range(3):
        w.replay()
    w.no_replay, w.no_ranking = "the disk is full", "no room for it"
    for wait_s in (1, 2):
        asked = w.replayed[0]
        w.replay()
        w.give(inp.Tick())
        assert not w.replayed, "not before its time"
        w.now += wait_s * SECOND_NS
        w.give(inp.Tick())
        assert w.replayed == [asked]
    w.replay()
    w.settle()
    failed, (named,) = w.of(ev.QualityReplayFailed), w.of(ev.QualityNamed)
    assert [e.gives_up for e in failed] == [False, False, True] and w.of(ev.QualityRankFailed)
    assert named.reason == "the disk is full; nor can the examples be ranked: no room for it"
    assert named.verdict == "unfinished" and "bad" in {*named.culprits, *named.suspects}
    assert set("cdef") <= set(w.learned()), "what was good together is learned again"
    assert set(w.state.review.held) == {*named.culprits, *named.suspects}
    assert len(w.of(ev.QualitySettled)) == 1


def test_a_replay_may_take_what_its_steps_should_ten_times_or_what_a_person_says() -> None:
    w = alarmed("a", "bad", "c", "d", poison={"bad": ITEMS})
    w.restored()
    slowest = max(pace.seconds for pace in w.state.training.recent)
    assert w.replayed[0].limit_s == 900.0 + 10 * slowest * (len(w.state.recovery.since) + 4 + ITEMS)
    w = alarmed("a", "bad", "c", "d", poison={"bad": ITEMS}, replay_s=70.0)
    w.restored()
    assert w.replayed[0].limit_s == 70.0


def test_what_a_person_took_away_meanwhile_is_not_learned_again() -> None:
    w = alarmed("a", "b", "bad", "c", poison={"bad": ITEMS})
    w.restored()
    w.give(inp.RelearnRequested((("a", "bulk"), ("b", "bulk")), "p"))
    w.give(inp.WithdrawRequested(("a",), "p"))
    w.settle()
    assert len(w.of(ev.QualitySettled)) == 1 and w.learned() == ["b", "c"] and w.memory == without(w, "a", "bad")
    assert not w.state.intake.pending, "b is not learned a second time"


def test_the_third_alarm_of_a_day_names_its_culprits_and_learns_nothing_before_a_person_resumes() -> None:
    w = GuardedWorld(guarded(every_steps=4)).up()
    w.poison = {f"bad{n}": ITEMS for n in range(3)}
    w.lines("bad0", "a", "b", "c", "bad1", "d", "e", "f", "bad2", "g", "h", "i", "j")
    w.settle()
    assert [e.culprits for e in w.of(ev.QualityNamed)] == [("bad0",), ("bad1",), ("bad2",)]
    assert len(w.of(ev.QualitySettled)) == 2 and "`apollod ctl resume` goes on" in blocked(Activity.STEP, w.state)
    learned = w.learned()
    w.give(inp.ResumeRequested("p"))
    w.settle()
    assert w.of(ev.QualityResumed)[0].by == "p" and len(w.of(ev.QualitySettled)) == 3
    assert sorted(w.learned()) == list("abcdefghij") and len(learned) < 10


def test_a_culprit_that_somebody_wanted_learned_again_meanwhile_is_held_all_the_same() -> None:
    w = alarmed("a", "b", "bad", "c", poison={"bad": ITEMS})
    w.restored()
    w.give(inp.RelearnRequested((("bad", "bulk"),), "p"))
    w.settle()
    assert set(w.state.review.held) == {"bad"} and w.learned() == ["a", "b", "c"] and not w.state.queued


def test_a_drop_that_is_no_rate_is_searched_in_units_of_answers_lost() -> None:
    """Of KL the margin is in nats; a replay measures how probable answers still are."""
    kl = 0.0
    w = GuardedWorld(guarded(every_steps=0, kl_margin=1.0)).up()
    w.figures = lambda: {"kl": {f"i{n:02}": kl for n in range(ITEMS)}}  # type: ignore[method-assign]
    w.give(inp.QualityWanted("p", baseline=True))
    w.settle()
    w.lines("x")
    World.settle(w)
    kl = 9.0
    w.give(inp.QualityWanted("p"))
    World.settle(w)
    w.look()
    assert w.state.quality.incident is not None and w.state.quality.incident.margins == {"kl": 0.05}


def test_a_repeated_step_of_several_that_fails_leaves_its_examples_taken_back() -> None:
    class Short(GuardedWorld):
        """Of memory, where a step is repeated."""

        def run_step(self, step: fx.RunStep) -> None:
            if step.again_of and len(step.examples) > 1:
                self.give(inp.StepFailure(step.step, "out of memory", out_of_memory=True, torn=False))
            else:
                super().run_step(step)

    w = Short(changed(guarded(every_steps=2), accumulate=2)).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "b", "bad", "c")
    w.settle()
    assert w.learned() == ["c"] and set(w.state.intake.undone) == {"a", "b"} and not w.state.queued
    assert len(w.of(ev.QualitySettled)) == 1 and set(w.state.review.held) == {"bad"}


def test_a_person_who_resumes_during_the_search_ends_it() -> None:
    w = alarmed("a", "b", "bad", "c", poison={"bad": ITEMS})
    w.restored()
    w.give(inp.ResumeRequested("p"))
    assert w.ended == 1 and w.state.quality.incident is None
    w.replay()
    assert not w.of(ev.QualityReplayed), "an answer that comes too late says nothing"
    w.settle()
    assert w.learned() == [] and set(w.state.intake.undone) == {"a", "b", "bad", "c"}


def test_a_look_comes_at_the_end_of_a_window_if_there_is_time_for_it() -> None:
    w = GuardedWorld(guarded(every_steps=100)).up()
    w.seconds = 0.5  # of all probes; a step takes 0.1 s, so that 2.5 % of 15 steps are enough for 3 of the 40
    w.settle()
    w.give(inp.QualityWanted("p"))
    w.settle()
    w.lines(*(f"a{n}" for n in range(9)))
    w.settle()
    assert not [e for e in w.of(ev.QualityMeasured) if e.why == "window"]
    w.lines(*(f"b{n}" for n in range(7)), source="more")
    w.settle()
    (look,) = [e for e in w.of(ev.QualityMeasured) if e.why == "window"]
    assert (look.step, look.share) == (15, 0.075)


def test_however_few_steps_a_window_had_its_end_is_looked_at_when_nothing_waits() -> None:
    w = GuardedWorld(guarded(every_steps=100)).up()
    w.seconds = 1.0
    w.settle()
    w.give(inp.QualityWanted("p"))
    w.settle()
    w.lines("a")
    w.settle()
    w.now += 4 * SECOND_NS
    w.give(inp.Tick())
    assert not w.probed and len(w.of(ev.QualityMeasured)) == 3
    w.now += 1 * SECOND_NS
    w.give(inp.Tick())
    w.settle()
    assert [(e.why, e.step, e.share) for e in w.of(ev.QualityMeasured)[3:]] == [("window", 1, 0.05)]
    w.now += 100 * SECOND_NS
    w.give(inp.Tick())
    assert not w.probed, "once"


def test_a_part_of_the_probes_that_speaks_against_the_model_is_followed_by_all_of_them() -> None:
    """The weights of neither look are taken for good: the alarm that follows takes back what did it."""
    w = GuardedWorld(guarded(every_steps=3))
    w.seconds = PART * 0.05 * 0.3 / 0.077  # three steps pay for so much of all probes
    w.up()
    w.settle()
    w.poison = {"bad": 8}  # a fifth of the answers: no alarm in one look
    w.lines("a", "bad", "b")
    w.settle()
    looks = w.of(ev.QualityMeasured)[2:]
    alarm = w.of(ev.QualityAlarmed)[0]
    assert [(e.why, e.share) for e in looks[:2]] == [("steps", 0.077), ("doubt", 1.0)]
    assert DOUBT <= looks[0].after["facts.passed"].alone and (alarm.step, alarm.to) == (3, 0)
    assert w.of(ev.QualityNamed)[0].culprits == ("bad",)


def test_a_look_comes_before_a_checkpoint_that_is_due_unless_it_fails() -> None:
    w = GuardedWorld(changed(guarded(every_steps=100), delay_s=3.0)).up()
    w.settle()
    w.lines("a", "b")
    w.settle()
    w.now += 4 * SECOND_NS
    w.give(inp.Tick())
    assert not w.of(ev.CheckpointStarted) and w.probed
    w.settle()
    (look,) = [e for e in w.of(ev.QualityMeasured) if e.why == "checkpoint"]
    assert look.step == 2 and [e.step for e in w.of(ev.CheckpointCommitted)] == [2]
    w.lines("c", source="more")
    w.settle()
    w.now += 4 * SECOND_NS
    w.answers = False
    w.give(inp.Tick())
    w.give(inp.ProbesFailed(w.probed.pop().number, "nobody answers"))
    w.settle()
    assert [e.step for e in w.of(ev.CheckpointCommitted)] == [2, 3], "what was learned is not lost for that"


def test_a_checkpoint_that_falls_due_during_a_step_waits_for_its_look() -> None:
    w = GuardedWorld(changed(guarded(every_steps=100), replay_max=2)).up()
    w.settle()
    w.lines("a", "b", "c")
    w.settle()
    order = [
        type(r.event).__name__ for r in w.journal if isinstance(r.event, ev.QualityMeasured | ev.CheckpointStarted)
    ]
    assert order[2:4] == ["QualityMeasured", "CheckpointStarted"]


@pytest.mark.parametrize("committed", [True, False])
def test_an_alarm_while_a_checkpoint_is_being_written_ends_like_any_other(committed: bool) -> None:
    w = GuardedWorld(guarded(every_steps=4)).up()
    w.poison = {"bad": ITEMS}
    w.lines("a", "b", "bad", "c", "d")
    while not (w.probed and w.state.training.version == 4):
        World.settle(w)
        if w.probed and w.state.training.version < 4:
            w.look()
    w.give(inp.CheckpointRequested("t"))
    assert w.state.checkpoints.open is not None and not w.of(ev.CheckpointCommitted)
    w.look()
    assert w.of(ev.QualityAlarmed) and w.state.checkpoints.open is not None
    if not committed:
        w.exit("trainer", -9)
        w.now += 10 * SECOND_NS
        w.give(inp.Tick())
    w.settle()
    assert w.learned() == ["a", "b", "c", "d"] and w.memory == without(w, "bad", later=True)
    assert len(w.of(ev.QualitySettled)) == 1 and w.state.checkpoints.open is None


def test_what_the_guard_did_is_counted_over_the_life_of_the_journal() -> None:
    w = alarmed(*"abcd", "bad", "e", poison={"bad": ITEMS})
    w.settle()
    (back,) = w.of(ev.RollbackStarted)
    own = w.state.quality
    assert (own.totals.taken_back, own.totals.replays) == (len(back.undone), len(w.of(ev.QualityReplayed)))
    assert own.last == w.of(ev.QualityMeasured)[-1].figures and own.last_s == w.of(ev.QualityMeasured)[-1].seconds
    w.give(inp.QualityWanted("p"))
    w.settle()
    w.give(inp.RollbackWanted(to=0, by="p"))
    w.settle()
    assert len(w.of(ev.RollbackStarted)) == 2 and own.totals.taken_back == len(back.undone), "a person's does not count"
    w.answers = False
    w.give(inp.QualityWanted("p"))
    w.settle()
    w.give(inp.ProbesFailed(w.probed.pop(0).number, "gone"))
    assert w.state.quality.totals.failed == len(w.of(ev.QualityFailed)) == 1


@pytest.mark.parametrize("phase", ["searching", "replaying", "repeating"])
def test_a_rollback_by_a_person_settles_the_incident_wherever_it_is(phase: str) -> None:
    """Nothing is searched, held or learned again after it, and a late answer says nothing."""
    w = alarmed("a", "b", "c", "d", "e", "bad", poison={"bad": ITEMS}, every_steps=3)
    w.restored()
    assert w.state.quality.incident is not None and w.replayed, "its weights are back, and a replay was asked for"
    late = w.replayed[0]
    if phase == "replaying":
        w.replay()
        late = w.replayed[0]
    if phase == "repeating":
        while not w.of(ev.QualityNamed):
            w.replay()
        assert w.state.training.running is not None and w.state.quality.incident is not None
    w.give(inp.RollbackWanted(0, "p"))
    World.settle(w)  # it is planned, and no replay is answered meanwhile
    (settled,) = w.of(ev.QualitySettled)
    assert settled.by == "p" and w.state.quality.incident is None and w.ended >= 1
    told = len(w.of(ev.QualityReplayed))
    w.give(inp.WindowReplayed(late.incident, late.number, {"facts.passed": 0.0}, 1, 1.0))
    w.replayed.clear()
    w.settle()
    assert len(w.of(ev.QualityReplayed)) == told and len(w.of(ev.QualityAlarmed)) == 1
    assert len(w.of(ev.QualitySettled)) == 1 and not w.replayed
    assert w.state.training.version == 0 and w.learned() == []
    assert w.memory == World().memory
    assert set(w.state.review.held) == ({"bad"} if phase == "repeating" else set())
    w.lines("new", source="more")
    w.settle()
    assert "new" in w.learned(), "steps go on"


def test_a_rollback_by_a_person_while_that_of_the_guard_is_under_way_comes_too_late() -> None:
    w = alarmed("a", "b", "bad", "c", poison={"bad": ITEMS})
    assert w.state.rollback.wanted is not None
    w.give(inp.RollbackWanted(0, "p"))
    w.settle()
    assert len(w.of(ev.RollbackRequested)) == 1 and w.learned() == ["a", "b", "c"]
    assert len(w.of(ev.QualitySettled)) == 1 and w.of(ev.QualitySettled)[0].by != "p"
