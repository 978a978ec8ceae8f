"""What steps hold: which anchors are frozen and when, which of them a step takes, and that steps are run again with the
same ones."""

from importlib.resources import files

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.test_continuation import archived
from support.effort import draws
from support.lives import cut_short, noted
from support.taught_world import TaughtWorld, teaching
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.continuation import carried_state
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.holding import HELD_MAX, OF_PRACTICE, SHORT, TURNS, Anchor, HoldingState, Kin, drift_of, held_by
from apollod.core.settings import LessonSettings, PatternSettings
from apollod.core.shared.missing_anchors import FIRST, SHIPPED, missing

HOLDING = changed(SETTINGS, hold=1.0)


def test_prompts_that_ship_are_many_apart_from_each_other_and_from_probes():
    lines = (files("apollod") / "data" / "anchors.jsonl").read_text(encoding="utf-8").splitlines()
    found = [msgspec.json.decode(line) for line in lines]
    assert len(found) == SHIPPED == len({one["prompt"].casefold() for one in found})
    sorts = [one["sort"] for one in found]
    assert sorts[:80] == ["general", "neighbour"] * 40, "the first ones are of both sorts"
    assert min(sorts.count("general"), sorts.count("neighbour")) > SHIPPED / 4
    probes = (files("apollod") / "data" / "probes.jsonl").read_text(encoding="utf-8").casefold()
    assert not [one["prompt"] for one in found if f'"{one["prompt"].casefold()}"' in probes]


# --- which are taken ----------------------------------------------------------------------------------------------


def holding(*moved: float | None, lessons: int = 0, tokens: int = 50, turns: int = 0) -> HoldingState:
    """Anchors "a0", "a1", ..., the last `lessons` of them of lessons."""
    anchors = {}
    for n, one in enumerate(moved):
        sort = "lesson" if n >= len(moved) - lessons else "general"
        anchors[f"a{n}"] = Anchor(f"a{n}", sort, "", tokens=tokens, digest="d", moved=one, turn=turns)
    return HoldingState(anchors=anchors, turns=turns)


@pytest.mark.parametrize(
    ("own", "tokens", "held"),
    [
        (holding(), 1000, ()),
        (holding(0.1, 0.3, 0.2), 100, ("a1",)),  # what moved most, and one however short the step
        (holding(0.1, 0.3, None), 100, ("a2",)),  # what was never held, before it
        (holding(0.1, 0.3, 0.2), 400, ("a1", "a2")),  # 0.3 * 400 = 120 tokens, two of 50
        (holding(*[0.1] * 9), 10_000, ("a0", "a1", "a2", "a3")),  # of equal ones the first; HELD_MAX
        (holding(0.1, 0.3, 0.2, lessons=1), SHORT - 1, ("a2", "a1")),  # a lesson's and another one
        (holding(0.1, 0.3, 0.2, lessons=1), 200, ("a2",)),
        (holding(0.1, 0.3, 0.2, lessons=1, turns=1), 200, ("a1",)),  # by turns, where one has room
        (holding(0.1, 0.2, lessons=2), 100, ("a1",)),
    ],
)
def test_the_anchors_of_a_step(own, tokens, held):
    assert held_by(own, LessonSettings(), tokens) == held
    assert held_by(own, LessonSettings(hold=0.0), tokens) == ()
    assert held_by(own, LessonSettings(hold_cost=0.0), SHORT) == held[:1]


@pytest.mark.parametrize(
    ("general", "lessons", "held"), [(9, 9, (6, 4)), (9, 1, (9, 1)), (9, 0, (9, 0)), (3, 9, (3, 7)), (1, 2, (1, 2))]
)
def test_a_practice_holds_ten_and_four_of_them_are_of_lessons(general, lessons, held):
    own = holding(*[0.1] * (general + lessons), lessons=lessons)
    chosen = held_by(own, LessonSettings(hold_cost=0.0), 10, Kin())
    of_lessons = sum(own.anchors[one].sort == "lesson" for one in chosen)
    assert (len(chosen) - of_lessons, of_lessons) == held and len(set(chosen)) == len(chosen)


def test_a_practice_holds_its_kin_first_and_in_turn():
    own = holding(*[0.1] * 24, lessons=12)
    for n, id_ in enumerate(("a14", "a15", "a16", "a17", "a18")):
        own.anchors[id_].lesson, own.anchors[id_].moved = f"L{n}", 0.0  # what moved least
    for n, id_ in enumerate(("a3", "a4", "a5")):
        own.anchors[id_].wanted, own.anchors[id_].moved = f"neighbour:{n}", 0.0
    kin = Kin({f"L{n}" for n in range(5)}, {f"neighbour:{n}" for n in range(3)})
    held = dict.fromkeys(own.anchors, 0)
    for turn in range(1, 16):
        own.turns = turn
        chosen = held_by(own, LessonSettings(), 40, kin)
        assert sum(own.anchors[one].lesson != "" for one in chosen[:4]) == 3 and len(chosen) == 10
        assert sum(own.anchors[one].wanted != "" for one in chosen[4:]) == 2
        for one in chosen:
            own.anchors[one].turn, held[one] = turn, held[one] + 1
    assert [held[f"a{n}"] for n in range(14, 19)] == [9] * 5 and [held[f"a{n}"] for n in range(3, 6)] == [10] * 3


@draws(80, 2000)
@given(
    st.lists(st.floats(0, 9), min_size=1, max_size=12), st.integers(0, 12), st.lists(st.integers(1, 2000), min_size=1),
    st.randoms(),
)  # fmt: skip
def test_each_comes_once_in_so_many_turns_and_all_cost_no_more_than_they_may(moved, lessons, steps, chance):
    own = holding(*moved, lessons=lessons)
    settings, last = LessonSettings(), dict.fromkeys(own.anchors, 0)
    while len(steps) < 4 * TURNS * len(moved):
        steps = steps + steps
    for turn, tokens in enumerate(steps, 1):
        held = held_by(own, settings, tokens)
        assert 1 <= len(held) <= HELD_MAX and len(set(held)) == len(held)
        both = min(2, len(moved)) if tokens < SHORT else 1
        assert len(held) <= both or 50 * len(held) <= settings.hold_cost * tokens
        own.turns = turn
        for one in held:
            own.anchors[one].turn, own.anchors[one].moved, last[one] = turn, chance.random(), turn
        assert all(turn - then <= 2 * (TURNS + 1) * len(moved) for then in last.values())


def test_drift_is_the_mean_of_what_was_measured():
    assert drift_of(holding()) == drift_of(holding(None)) == 0.0
    assert drift_of(holding(0.1, None, 0.3)) == pytest.approx(0.2)


# --- how they are frozen ------------------------------------------------------------------------------------------


def frozen(world: World) -> list[ev.AnchorFrozen]:
    return world.of(ev.AnchorFrozen)


def test_steps_wait_for_a_few_and_the_rest_come_when_nothing_waits():
    world = World(HOLDING)
    world.start()
    world.lines("a", "b")
    world.settle()
    world.engine_up()
    while not world.of(ev.StepStarted):
        reason = blocked(Activity.STEP, world.state)
        assert world.answer(), reason
    usable = [one for one in world.state.holding.anchors.values() if one.digest]
    assert FIRST <= len(usable) < 2 * FIRST
    first, *_ = world.of(ev.StepStarted)
    assert first.hold == HOLDING.lessons.hold > 0 and set(first.held) <= {one.anchor for one in usable} and first.held
    world.settle()
    assert len(world.state.holding.anchors) == SHIPPED == len(frozen(world)) == len(world.of(ev.AnchorEncoded))
    done = world.of(ev.StepCompleted)
    assert [len(one.held) for one in done] == [len(one.held) for one in world.of(ev.StepStarted)] == [1, 1]


def test_steps_of_a_lesson_wait_for_all_that_ship():
    """Taught right after a start, as a person does who tries it."""
    world = TaughtWorld(teaching(hold=1.0))
    world.start()
    world.settle()
    world.engine_up()
    world.want("who is x", "Ann")
    waits = set[str]()
    while not world.of(ev.StepStarted):
        waits.add(blocked(Activity.STEP, world.state))
        assert world.call() or world.answer()
    usable = [one for one in world.state.holding.anchors.values() if one.digest]
    assert len(usable) == SHIPPED and len(world.of(ev.StepStarted)[0].held) == OF_PRACTICE
    assert any(f"of {SHIPPED} answers" in one for one in waits)


def test_the_wait_says_why_and_ends_where_the_engine_does_not_answer():
    world = World(HOLDING)
    world.start()
    world.lines("a")
    world.settle()
    world.engine_up()
    while f"frozen first, to be held (0 of {FIRST} answers)" not in blocked(Activity.STEP, world.state):
        assert world.answer()
    world.anchors = "busy"
    world.settle()
    assert world.state.training.version == 1 and world.of(ev.StepStarted)[0].held == ()
    failed, *_ = world.of(ev.AnchorFailed)
    assert failed.reason == "the engine is busy" and failed.retry_s > 0 and not failed.gives_up
    world.anchors = ""
    world.pass_time(700)
    world.settle()
    assert len(frozen(world)) == SHIPPED and not world.state.holding.error


def failing() -> World:
    """Several anchors are asked for side by side, and the engine dies."""
    world = World(HOLDING)
    world.start()
    world.lines("a")
    world.settle()
    world.engine_up()
    while sum(isinstance(asked, fx.FreezeAnchor) for asked in world.asked) < 2:
        assert world.answer()
    world.anchors = "busy"
    while not world.of(ev.AnchorFailed) or any(isinstance(asked, fx.FreezeAnchor) for asked in world.asked):
        assert world.answer()
    return world


def test_calls_that_fail_side_by_side_wait_as_one():
    """Else one kill of the engine puts off the next call by minutes."""
    world = failing()
    assert [one.retry_s for one in world.of(ev.AnchorFailed)] == [1.0]
    world.settle()
    world.pass_time(2)
    world.settle()
    assert [one.retry_s for one in world.of(ev.AnchorFailed)] == [1.0, 2.0]


def test_steps_wait_again_for_what_a_new_engine_says():
    world = failing()
    world.exit("engine")
    world.anchors = ""
    world.pass_time(70)
    world.engine_up()
    world.settle()
    assert world.of(ev.StepStarted)[0].held and len(frozen(world)) == SHIPPED


def test_an_engine_that_cannot_say_what_it_thinks_is_asked_once_a_life():
    world = World(HOLDING)
    world.anchors = "unable"
    world.up()
    world.lines("a", "b")
    world.settle()
    world.pass_time(4000)
    world.settle()
    assert world.state.training.version == 2 and [one.held for one in world.of(ev.StepStarted)] == [(), ()]
    assert [one.gives_up for one in world.of(ev.AnchorFailed)] == ["all"]
    after = world.crash_and_return()
    after.lines("c", source="again")
    after.settle()
    assert len(frozen(after)) == SHIPPED and after.of(ev.StepStarted)[-1].held


def test_what_the_trainer_cannot_learn_is_not_held():
    world = World(HOLDING)
    world.anchors = "long "
    world.up()
    world.lines("a")
    world.settle()
    assert len(world.of(ev.AnchorsRetired)) == SHIPPED and not world.state.holding.anchors
    assert world.of(ev.AnchorsRetired)[0].reason == "too long" and world.of(ev.StepStarted)[0].held == ()


def test_an_answer_of_weights_that_did_not_stand_still_does_not_count():
    world = World(HOLDING).up()
    world.give(inp.AnchorAnswered("shipped:1", "x", msgspec.Raw(b"{}"), "t", "general", 0, 0))
    assert len(frozen(world)) == SHIPPED, "it was frozen already"
    other = World(HOLDING)
    other.start()
    other.engine_up()
    while not isinstance(other.asked[0], fx.FreezeAnchor):
        other.answer()
    for first, last in ((0, 1), (1, 1), (-1, 7)):
        other.give(inp.AnchorAnswered("shipped:1", "x", msgspec.Raw(b"{}"), "t", "general", first, last))
    assert not frozen(other)
    other.give(inp.AnchorAnswered("shipped:1", "x", msgspec.Raw(b"{}"), "t", "general", -1, -1))
    assert [one.anchor for one in frozen(other)] == ["x"], "an engine that says no version is believed"


def test_nor_does_one_that_came_while_a_step_or_nobody_wrote():
    """A trainer that died in a step may have left half of it in the weights."""
    world = World(HOLDING).up()
    world.lines("a")
    while world.state.training.running is None:
        world.answer()
    wanted(world, "lesson:L1:1", "L1")
    said = inp.AnchorAnswered("lesson:L1:1", "x", msgspec.Raw(b"{}"), "t", "lesson", -1, -1)
    world.give(said)
    world.exit("trainer")
    world.give(said)
    assert len(frozen(world)) == SHIPPED
    world.pass_time(70)
    world.settle()
    assert len(frozen(world)) == SHIPPED + 1


def wanted(world: World, name: str, lesson: str) -> None:
    """As another subject's decision would: the fact is recorded."""
    event = ev.AnchorWanted(wanted=name, sort="lesson", prompt=(Turn("user", "?"),), answer="7341", lesson=lesson)
    world.record(event)


def test_what_a_lesson_says_is_frozen_before_the_next_step_and_held_with_others():
    world = World(HOLDING).up()
    wanted(world, "lesson:L1:1", "L1")
    world.lines("a", "b")
    world.settle()
    (of_lesson,) = [one for one in frozen(world) if one.sort == "lesson"]
    assert of_lesson.lesson == "L1" and of_lesson.wanted == "lesson:L1:1" and not world.state.holding.wanted
    steps = world.of(ev.StepStarted)
    assert world.kinds().index("step.started") > world.kinds().index("anchor.wanted") + 1
    assert all(step.held[0] == of_lesson.anchor or step.held[1] == of_lesson.anchor for step in steps)
    assert all(len(step.held) == 2 for step in steps)


# --- and held again -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_steps", [False, True])
def test_steps_are_run_again_with_what_they_held(keeps_steps):
    """After a death, after a rollback, and without an example; the world's weights depend on what a step holds."""
    world = World(HOLDING).up()
    world.keeps_steps = keeps_steps
    weights = [world.memory]
    for name in "abcd":
        world.lines(name, source=name)
        world.settle()
        weights.append(world.memory)
    held = [one.held for one in world.of(ev.StepStarted)]
    assert len(set(held)) == 4 and all(held), "by turns"
    after = world.crash_and_return()
    assert after.memory == weights[4] and not after.of(ev.ReplayDiverged) and after.of(ev.ReplayVerified)
    after.record(ev.AnchorsRetired(anchors=(held[0][0],), reason="a test"))
    after.give(inp.RollbackRequested(2, "t"))
    after.settle()
    assert after.memory == weights[2]
    after.lines("e", source="e")
    after.settle()
    after.give(inp.ForgetRequested(("b",), "t", ""))
    after.settle()
    again = [one for one in after.of(ev.StepStarted) if one.again_of]
    assert [(one.again_of, one.held) for one in again] == [(5, after.of(ev.StepStarted)[4].held)]


def test_a_step_that_is_begun_again_holds_what_it_began_with():
    weights = []
    for dies in (False, True):
        world = World(HOLDING).up()
        world.lines("a", "b")
        while world.state.training.version < 1 or world.state.training.running is None:
            world.answer()
        if dies:
            world.exit("trainer")
            world.pass_time(70)
        world.settle()
        assert world.state.training.version == 2 and len(world.of(ev.StepStarted)) == 2
        weights.append(world.memory)
    assert weights[0] == weights[1]


def test_a_journal_that_goes_on_holds_the_same():
    world = World(HOLDING).up()
    wanted(world, "lesson:L1:1", "L1")
    world.lines("a")
    world.settle()
    world.give(inp.CheckpointRequested("t"))
    world.settle()
    other = archived(world)
    assert carried_state(other.state).holding == carried_state(world.state).holding
    assert list(other.state.holding.anchors) == list(world.state.holding.anchors)
    other.up()
    other.lines("b", source="b")
    other.settle()
    assert not [e for e in frozen(other)[SHIPPED + 1 :]] and other.of(ev.StepStarted)[-1].held


def life(world: World) -> None:
    world.up()
    world.lines("a", "b", source=f"f{len(world.journal)}")
    wanted(world, f"lesson:L1:{len(world.journal)}", "L1")
    world.settle()
    world.give(inp.CheckpointRequested("t"))
    world.lines("c", source=f"f{len(world.journal)}")
    world.settle()


def test_a_death_at_any_instant_loses_no_anchor_and_no_bit():
    calm = World(HOLDING)
    life(calm)
    for instant, after in cut_short(World(HOLDING), life, calm.instants // 24).items():
        with noted(instant):
            after.up().settle()
            own = after.state.holding
            assert not own.wanted and len(own.settled) == SHIPPED and all(one.digest for one in own.anchors.values())
            assert not after.of(ev.ReplayDiverged) and after.state.training.running is None and not after.asked


# --- lessons ------------------------------------------------------------------------------------------------------


def test_what_a_known_lesson_says_is_held_until_it_is_known_no_more():
    world = TaughtWorld(teaching(hold=1.0)).up()
    first = world.want("who is x", "Ann")
    world.teach()
    (held,) = [one for one in world.state.holding.anchors.values() if one.lesson == first]
    (known,) = world.of(ev.LessonKnown)
    asked = [one for one in world.state.holding.wanted.values()]
    assert held.sort == "lesson" and held.digest and not asked and known.prompt
    second = world.want("who is y", "Bea")
    world.teach()
    practised = {e.step for e in world.of(ev.LessonPractised) if e.lesson == second}
    steps = [e for e in world.of(ev.StepStarted) if e.step in practised]
    assert steps and all(held.anchor in step.held and len(step.held) == OF_PRACTICE for step in steps)
    third = world.want("who is x", "Cleo", replaces=first)
    world.teach()
    (retired,) = world.of(ev.AnchorsRetired)
    assert retired.anchors == (held.anchor,) and first in retired.reason
    begun = world.kinds().index("lesson.replaced")
    assert world.kinds()[begun:].index("anchor.retired") < world.kinds()[begun:].index("step.started")
    assert sorted(one.lesson for one in world.state.holding.anchors.values() if one.lesson) == [second, third]
    assert world.says("who is x") == "Cleo"


def known() -> tuple[TaughtWorld, str, str]:
    """A world that knows a lesson and has learned something else since, the lesson, and its anchor."""
    world = TaughtWorld(teaching(hold=1.0)).up()
    lesson = world.want("who is x", "Ann")
    world.teach()
    (anchor,) = [one.anchor for one in world.state.holding.anchors.values() if one.lesson]
    world.lines("a", source="a")
    world.settle()
    return world, lesson, anchor


def test_what_a_lesson_says_is_frozen_anew_when_it_is_known_again():
    world, lesson, before = known()
    (again,) = world.of(ev.LessonKnown)
    world.record(again)
    world.teach()
    (now,) = [one.anchor for one in world.state.holding.anchors.values() if one.lesson == lesson]
    assert now != before and [one.anchors for one in world.of(ev.AnchorsRetired)] == [(before,)]


def settled_pattern(world: TaughtWorld) -> None:
    """A behaviour that was practised settles: answers show it from now on."""
    world.record(ev.PatternAdded(pattern=PatternSettings(name="caps", instruction="Answer in capitals."), by="t"))
    practised = {"tests": {}, "baseline": {}, "dreams": 9, "practices": 9, "tokens": 9}
    world.record(ev.PatternSettled(pattern="caps", step=world.state.training.step, **practised))


def test_what_a_lesson_says_is_held_as_it_was_until_it_is_frozen_anew_when_nothing_waits():
    world, lesson, before = known()
    settled_pattern(world)
    assert before in world.state.holding.anchors and not world.state.holding.wanted
    assert [one.wanted for one in missing(world.state)][-1] == f"lesson:{lesson}"
    world.settle()
    (now,) = [one.anchor for one in world.state.holding.anchors.values() if one.lesson == lesson]
    assert now != before and [one.anchors for one in world.of(ev.AnchorsRetired)][-1] == (before,)
    assert not world.state.holding.renewed


def test_what_a_lesson_says_is_not_frozen_anew_once_it_is_known_no_more():
    world = TaughtWorld(teaching(hold=1.0)).up()
    lesson = world.want("who is x", "Ann")
    world.teach()
    settled_pattern(world)
    assert world.state.holding.renewed
    assert carried_state(world.state).holding.wanted.keys() == {f"lesson:{lesson}"}
    world.record(ev.LessonFading(lesson=lesson, reason="t", step=1, passed=(0, 1)))
    assert not world.state.holding.renewed


# --- neighbours ---------------------------------------------------------------------------------------------------


def near(world: TaughtWorld) -> list[Anchor]:
    return [one for one in world.state.holding.anchors.values() if one.wanted.startswith("neighbour:")]


def test_what_is_said_of_others_is_frozen_before_the_first_practice_and_held_in_each():
    world = TaughtWorld(HOLDING).up()
    world.want("owner of X", "Ann")
    world.teach()
    first = near(world)
    assert [one.wanted for one in first] == ["neighbour:owner of Y", "neighbour:owner of Z"]
    assert all(e.weights_version <= 0 for e in world.of(ev.AnchorFrozen) if e.wanted.startswith("neighbour:"))
    assert all({one.anchor for one in first} <= set(e.held) for e in world.of(ev.StepStarted))
    world.want("owner of W", "Bob")
    world.teach()
    assert near(world) == [*first] and {one.lesson for one in world.state.holding.anchors.values()} >= {"L1", "L2"}
    of_first = next(one.anchor for one in world.state.holding.anchors.values() if one.lesson == "L1")
    practised = {e.step for e in world.of(ev.LessonPractised) if e.lesson == "L2"}
    assert all(of_first in e.held for e in world.of(ev.StepStarted) if e.step in practised), "its own form first"


def test_a_neighbour_that_is_taught_is_held_no_more_and_not_wanted_again():
    world = TaughtWorld(HOLDING).up()
    for name in ("X", "Y", "W"):
        world.want(f"owner of {name}", f"Ann {name}")
        world.teach()
    assert [one.wanted for one in near(world)] == ["neighbour:owner of Z"] and not world.state.holding.wanted
