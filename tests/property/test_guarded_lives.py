"""The quality guard under random lives: whatever dies and whatever people do meanwhile, no incident is left that
nothing moves, every example is in one state, and what is learned again are the steps of `apollod replay --without`."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from property.test_core_properties import ANY, HOUR_NS, folded, play
from property.test_example_state import bodies
from support.effort import draws
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.lives import cut_short, noted
from support.world import World, changed, digest

from apollod.cli.control.quality.incident import STEPS, GuardRecord
from apollod.cli.control.quality.incident_words import row
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.example_state import ExampleState, examples_of, rule_of, state_after
from apollod.core.facts.quality.state import GUARD, QualityState
from apollod.core.facts.quality.state import Incident as Open
from apollod.core.fold import fold
from apollod.core.rules.quality.fold import FOLDS
from apollod.core.state import State


class Poison(dict[str, int]):
    """By its name every fourth example does harm."""

    def get(self, example: str, default: int = 0) -> int:  # type: ignore[override]
        return ITEMS // 2 if int(digest(example), 16) % 4 == 0 else default


class Guarded(GuardedWorld):
    """Answers of probes and replays are actions of their own."""

    def __init__(self, settings: ev.Settings, dies_at: int = 0, harmful_lr: float = 0.0) -> None:
        super().__init__(settings, dies_at)
        self.poison, self.answers, self.harmful_lr = Poison(), False, harmful_lr

    def figures(self) -> dict[str, dict[str, float | None]]:
        """Of weights that a trainer died over nothing passes."""
        if self.memory == "torn":
            return {"facts.passed": {f"i{n:02}": 0.0 for n in range(ITEMS)}}
        return super().figures()

    def act(self, action: str) -> None:
        match action:
            case "probes answer" if self.probed:
                self.look()
            case "probes fail" if self.probed:
                self.give(inp.ProbesFailed(self.probed.pop(0).number, "nobody answers"))
            case "replay" if self.replayed:
                self.replay()
            case "replay fails" | "no replay" if self.replayed:
                one = self.replayed.pop(0)
                self.give(inp.WindowReplayFailed(one.incident, one.number, "no room", action == "no replay"))
            case "rank" if self.ranking:
                self.rank()
            case "no ranking" if self.ranking:
                asked = self.ranking.pop()
                self.give(inp.ExamplesRanked(asked.incident, asked.number, error="no memory"))
            case "all replays":
                while self.replayed:
                    self.replay()
            case "is it worse?":
                self.give(inp.QualityWanted("t"))
            case "baseline":
                self.give(inp.QualityWanted("t", baseline=True))
            case "back to nowhere":
                self.give(inp.RollbackRequested(self.state.training.version + 5, "t"))
            case "trainer is gone":
                if self.state.training.running and self.asked and isinstance(self.asked[0], fx.RunStep):
                    self.memory = "torn"
                self.exit("trainer")
            case "pause and resume":
                self.give(inp.TrainingPaused("t"))
                self.give(inp.TrainingResumed("t"))
            case "settle all":
                self.answers = True
                self.settle()
                self.answers = False


PEOPLE = st.sampled_from(
    ["is it worse?", "baseline", "back", "back to nowhere", "pause and resume", "relearn", "approve"]
)
TROUBLE = st.sampled_from(
    ["probes fail", "replay fails", "no replay", "no ranking", "trainer is gone", "supervisor dies"]
)
SETTINGS = st.builds(
    changed, st.just(guarded(every_steps=3)), accumulate=st.integers(1, 2), resume=st.sampled_from(["auto", "manual"]),
    culprits_max=st.sampled_from([0, 1, 8]), publish=st.sampled_from(["hogwild", "fenced"]),
    replay_max=st.sampled_from([2, 1000, 1000]), nightly=st.sampled_from(["", "", "", "02:00-05:00"]),
    align_every=st.integers(0, 2),
)  # fmt: skip
USUAL = st.sampled_from(
    ["lines", "settle", "settle", *["answer"] * 4, "probes answer", "probes answer", "replay", "all replays", "rank"]
)
BEGINNING = ["settle all", *["lines"] * 4, "settle"]
"""A baseline, and steps up to the first look."""
LIVES = st.lists(st.one_of(*[USUAL] * 4, PEOPLE, PEOPLE, TROUBLE, ANY), min_size=25, max_size=70).map(
    lambda life: BEGINNING + life
)


def needs_a_person(world: World) -> bool:
    """Is it said that somebody has to look at it?"""
    daemon, children, quality = world.state.daemon, world.state.children, world.state.quality
    if daemon.paused or daemon.halted or children.engine.error or children.trainer.error:
        return True
    return quality.incident is not None and asks_a_person(quality, quality.incident, world.settings)


def asks_a_person(quality: QualityState, incident: Open, settings: ev.Settings) -> bool:
    """Is it said that somebody has to look at this alarm?"""
    manual = settings.quality.resume == "manual" or len(quality.alarms_ns) >= 3
    unsure = incident.verdict in ("elsewhere", "rate") or incident.step == incident.to
    return incident.phase == "stuck" or (incident.phase == "named" and (manual or unsure))


def rest(world: GuardedWorld) -> None:
    """Everything answers; a person comes only where one is wanted."""
    world.answers = True
    for _ in range(60):
        for _ in range(4):
            if world.settings.schedule.nightly:
                world.give(inp.NightPlanned(world.now - 1, world.now + HOUR_NS, "02:00-05:00", ""))
            world.pass_time(310)
            if world.state.children.engine.phase == "spawned":
                world.engine_up()
            world.settle()
        if needs_a_person(world):
            world.give(inp.TrainingResumed("t"))
        elif (incident := world.state.quality.incident) is not None:
            raise AssertionError(f"nothing moves {incident}")
        elif not world.state.queued:
            break


def lineage(world: World, version: int, back_to: int = 0) -> list[ev.StepCompleted]:
    """The steps that led from one to the other, the oldest first."""
    done, way = {e.step: e for e in world.of(ev.StepCompleted)}, list[ev.StepCompleted]()
    while version > back_to:
        way.insert(0, done[version])
        version = done[version].parent
    assert version == back_to
    return way


def states_of(events: list[ev.Event]) -> dict[str, ExampleState | None]:
    """By the table. What a step that was begun again leaves as it was is no matter of the table."""
    states = dict[str, ExampleState | None]()
    for kind, body in bodies(events):
        rule = rule_of(kind, body)
        for one in examples_of(body) if rule else ():
            states[one] = state_after(states.get(one), rule)
    return states


def repeated_as_a_replay_would(world: World) -> None:
    """Of each incident that nobody cut short: what was learned again are the steps of the window, as they were, without
    the examples that were held, and those that somebody took away or wants forgotten, or whose step failed meanwhile.
    """
    begun = {e.step: e for e in world.of(ev.StepStarted)}
    alarmed = {e.incident: e for e in world.of(ev.QualityAlarmed)}
    named = {e.incident: e for e in world.of(ev.QualityNamed)}
    events = [r.event for r in world.journal]
    for settled in world.of(ev.QualitySettled):
        verdict = named.get(settled.incident)
        if verdict is None or verdict.verdict == "not_searched" or "wants the weights" in settled.how:
            continue
        alarm, first, last = alarmed[settled.incident], events.index(verdict), events.index(settled)
        chain = [e for e in lineage(world, alarm.step, alarm.to) if e.applied]
        window = [one for e in chain for one in ev.all_examples(e)]
        again = [e for e in events[first:last] if isinstance(e, ev.StepStarted)]
        assert all(e.again_of for e in again), "nothing else is learned before"
        learned = [one for e in again for one in ev.all_examples(e)]
        gone, held = set(window) - set(learned), {*verdict.culprits, *verdict.suspects}
        failed = {one for e in events[first:last] if isinstance(e, ev.StepFailed) for one in ev.all_examples(e)}
        to_forget = {one for e in events[:last] if isinstance(e, ev.ForgetRequested) for one in e.examples}
        to_forget -= {one for e in events[:last] if isinstance(e, ev.ForgetRefused) for one in e.examples}
        states = states_of(events[:last])
        lost = {one for one in gone - held - failed - to_forget if states[one] in ("undone", "trained")}
        assert not lost and not held & set(learned)
        assert [as_run(e, set()) for e in again] == [
            as_run(begun[e.step], gone, verdict.lr_scale) for e in chain if set(ev.all_examples(e)) - gone
        ]


def as_run(started: ev.StepStarted, gone: set[str], lr_scale: float = 1.0) -> tuple[object, ...]:
    pairs = zip(ev.all_examples(started), started.digests or (started.digest,), strict=True)
    left = [pair for pair in pairs if pair[0] not in gone]
    return left, started.lr * lr_scale, started.loss_limit, started.objective, started.again_of or started.step


def weights_of_the_lineage(world: World) -> None:
    started = {e.step: e for e in world.of(ev.StepStarted)}
    memory, optimizer = "base", "fresh"
    for one in lineage(world, world.state.training.version):
        begun = started[one.step]
        number, examples = begun.again_of or one.step, ev.all_examples(one)
        if one.applied:
            ran = fx.RunStep(
                number, examples, begun.digests or (begun.digest,), one.lr, products="bf16",
                loss_limit=begun.loss_limit, objective=begun.objective,
            )  # fmt: skip
            memory = digest(f"{memory} {optimizer} {ran}".replace(", replay=False", ""))
            optimizer = digest(f"{optimizer} {examples} {number}")
        assert one.fingerprint == memory
    assert world.memory == memory == world.state.training.fingerprint


def each_example_in_one_place(world: World) -> None:
    states = states_of([r.event for r in world.journal])
    learned = [one for e in lineage(world, world.state.training.version) if e.applied for one in ev.all_examples(e)]
    assert len(set(learned)) == len(learned)
    assert {one for one, state in states.items() if state == "trained"} == set(learned)
    intake, review = world.state.intake, world.state.review
    pending = [one.example for queue in intake.queues for one in queue.waiting]
    pending += world.state.training.running.examples if world.state.training.running else ()
    places: dict[str, Sequence[str]] = {
        "pending": pending, "undone": [*intake.undone], "withdrawn": [*intake.withdrawn], "held": [*review.held],
    }  # fmt: skip
    for state, here in places.items():
        assert sorted(here) == sorted(one for one, other in states.items() if other == state), state


def stories_of_a_reader(world: World) -> None:
    """A reader of the guard's events alone sees each incident as the whole fold does, and says what it waits for."""
    whole, read = State(), GuardRecord()
    for one in world.journal:
        fold(whole, one)
        event = one.event
        again = isinstance(event, ev.StepStarted) and event.again_of > 0
        held = isinstance(event, ev.ExampleHeld) and event.by == GUARD
        if again or held or (type(event) in FOLDS and type(event) not in STEPS):
            read.take(one)
        if (own := whole.quality.incident) is None:
            assert all(story.waits is None for story in read.stories)
            continue
        now = read.stories[-1]
        same = dict.fromkeys(("steps", "whole", "again"), ())
        assert replace(now.incident, **same) == replace(own, **same)
        assert whole.daemon.settings is not None
        asks = not own.resumed and (own.restored == "bad" or asks_a_person(whole.quality, own, whole.daemon.settings))
        assert (now.waits == "person") == (asks and own.phase in ("named", "stuck"))
    rows = [row(story) for story in read.stories]
    assert [one["taken_back"] for one in rows] == [e.taken_back for e in world.of(ev.QualitySettled)]
    assert all(one["state"] == "settled" and not one["waits_for"] for one in rows)


@draws(30, 1500)
@given(LIVES, SETTINGS, st.booleans(), st.sampled_from([0.0, 0.5, 0.1]))
@example(["lines"] * 5 + ["settle all"] * 3, changed(guarded(every_steps=4)), False, 0.0)
@example(
    [*BEGINNING, *["lines"] * 24, "forget"], changed(guarded(every_steps=3), culprits_max=1, replay_max=2), False, 0.5
)
@example([*BEGINNING, "update", *["lines"] * 8], changed(guarded(every_steps=3)), False, 0.0)
@example(
    [*BEGINNING, "settle", "probes answer", "supervisor dies", "all replays", "relearn"],
    changed(guarded(every_steps=3), accumulate=2, culprits_max=1, replay_max=2),
    False,
    0.0,
)  # while a step is repeated, what it learns is put into the queue
def test_whatever_happens_an_incident_ends_and_nothing_is_lost_or_learned_twice(
    actions, settings, keeps_steps, harmful_lr
):  # fmt: skip
    world = play(actions, settings, keeps_steps, in_world=Guarded(settings, harmful_lr=harmful_lr))
    assert isinstance(world, Guarded)
    rest(world)
    assert world.state.quality.incident is None and not world.state.rollback.wanted
    each_example_in_one_place(world)
    weights_of_the_lineage(world)
    repeated_as_a_replay_would(world)
    stories_of_a_reader(world)
    for begun in world.of(ev.QualitySearchBegun):
        replays = [e for e in world.of(ev.QualityReplayBegun) if e.incident == begun.incident]
        assert len(replays) <= begun.replays_max
    for alarm in world.of(ev.QualityAlarmed):
        window = [one for e in lineage(world, alarm.step) if e.applied for one in ev.all_examples(e)]
        assert any(world.poison.get(one) for one in window), "weights were measured that are in no journal"
    assert folded(world) == world.state


class Incident(GuardedWorld):
    """Learns two examples that do harm, one of them in a step with others."""

    def live(self) -> None:
        self.poison = {"bad": ITEMS, "worse": ITEMS // 2}
        self.up()
        self.lines("a", "b", "bad", "c", "worse", "d", "e", "f")
        rest(self)


CALM = Incident(changed(guarded(every_steps=4), accumulate=2))
CALM.live()


def test_a_calm_incident_names_both_and_learns_the_others_again():
    (named,) = CALM.of(ev.QualityNamed)
    assert set(named.culprits) == {"bad", "worse"} and CALM.learned() == list("abcdef")
    assert len(CALM.of(ev.QualitySettled)) == 1


def test_a_kill_at_each_instant_of_an_incident_ends_in_the_same_weights():
    after_each = cut_short(Incident(CALM.settings), Incident.live)
    assert [*after_each] == [*range(1, CALM.instants + 1)]
    for instant, world in after_each.items():
        with noted(instant):
            world.live()
            ends_as_without_a_kill(world)


def ends_as_without_a_kill(world: Incident) -> None:
    assert world.memory == CALM.memory and world.learned() == CALM.learned()
    assert set(world.state.review.held) == {"bad", "worse"} and not world.state.intake.undone
    assert [e.key() for e in world.of(ev.QualityReplayed)] == [e.key() for e in CALM.of(ev.QualityReplayed)]
    assert len(world.of(ev.QualitySettled)) == len(world.of(ev.QualityNamed)) == 1
    repeated_as_a_replay_would(world)
