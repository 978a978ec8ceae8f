"""Known lessons among what a look asks."""

from hypothesis import given
from hypothesis import strategies as st
from support.guarded_lessons import GuardedLessons

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Worded
from apollod.core.facts.lessons.state import Lesson, LessonsState
from apollod.core.facts.quality.looking import (
    LEAST,
    LESSONS,
    LESSONS_MAX,
    OLDER,
    RECENT,
    counted,
    doubt,
    in_turn,
    looked,
)
from apollod.core.facts.quality.sequential import alarms
from apollod.core.facts.quality.state import QualityState
from apollod.core.settings import QualitySettings

WORDED = Worded("q", "a", "q", (), ())


def lessons(*states: str) -> LessonsState:
    """L1, L2, ... in these states."""
    made = {f"L{n}": Lesson(f"L{n}", Given(), "p", 0, state=one, worded=WORDED) for n, one in enumerate(states, 1)}  # type: ignore[arg-type]
    return LessonsState(lessons=made)


@given(st.integers(0, 60), st.floats(0.0, 1.0))
def test_looks_ask_a_bounded_number_of_them_each_in_turn(count: int, share: float) -> None:
    own, asked = lessons(*["known"] * count), list[tuple[str, ...]]()
    for number in range(1, 3 * count + 1):
        found = in_turn(own, 0, share)
        assert len(found) == len(set(found)) <= min(count, LESSONS_MAX) and len(found) >= min(count, LEAST)
        asked.append(found)
        for one in found:
            own.lessons[one].looked = number
    looks = -(-count // len(asked[0])) if asked else 0  # that all of them take
    for begin in range(len(asked) - looks):
        assert set().union(*asked[begin : begin + looks]) == own.lessons.keys()


def test_those_that_were_shown_lately_come_first_and_count() -> None:
    own = lessons(*["known"] * 5)
    for n, shown in enumerate((10, 5000, 10, 4999, 10), 1):
        own.lessons[f"L{n}"].shown = shown
    assert in_turn(own, 5100, 0.0) == ("L2", "L4", "L1")
    found = counted(own, dict.fromkeys(("L1", "L2", "L3", "L9"), 0.5), 5100)
    assert found == {LESSONS: {"L2": 0.5}, OLDER: {"L1": 0.5, "L3": 0.5}}
    assert counted(own, {"L2": 1.0}, 100) == {LESSONS: {"L2": 1.0}}, "of weights that are gone"


def test_what_is_not_known_is_not_asked() -> None:
    own = lessons("known", "fading", "replaced", "given up", "waiting", "practising", "known")
    assert in_turn(own, 0, 1.0) == ("L1", "L7")
    own.lessons["L1"].worded = None
    assert in_turn(own, 0, 1.0) == ("L7",)


def test_ten_thousand_known_lessons_make_a_look_no_longer() -> None:
    world = GuardedLessons().up()
    world.settle()
    world.state.lessons = lessons(*["known"] * 10_000)
    for _ in range(2):
        world.wants_look()
    first, second = world.asked_lessons[-2:]
    assert (len(first), len(second)) == (LESSONS_MAX, LESSONS_MAX) and first[-1] == "L16" and second[0] == "L17"


def test_one_that_fails_is_asked_again_at_once_and_is_no_alarm() -> None:
    world = GuardedLessons().up()
    ids = world.taught(8)
    world.forgot = {ids[2]}
    world.knows["base"] = {}  # it answers all of them when it is asked again
    world.wants_look()
    assert world.of(ev.QualityMeasured)[-1].figures[LESSONS] == {one: float(one != ids[2]) for one in ids}
    assert not world.of(ev.QualityAlarmed)
    begun = world.of(ev.LessonBegun)
    assert (begun[-1].lesson, begun[-1].why) == (ids[2], "again"), "and none of the others"
    world.teach()
    assert [one.lesson for one in world.of(ev.LessonKept)] == [ids[2]] and not world.of(ev.LessonFading)


def test_one_that_fails_when_it_is_asked_again_is_practised() -> None:
    world = GuardedLessons().up()
    world.want("new", "yes")
    world.teach()
    assert world.states() == {"L1": "known"}
    world.knows[world.memory] = {}
    world.forgot = {"L1"}
    world.wants_look()
    world.teach()
    assert [one.lesson for one in world.of(ev.LessonFading)] == ["L1"] and world.states() == {"L1": "known"}
    assert not world.of(ev.QualityAlarmed)


def test_the_group_as_a_whole_is_an_alarm_and_the_last_good_weights_come_back() -> None:
    world = GuardedLessons().up()
    ids = world.taught(16)
    world.lines("a", "b")
    world.settle()
    world.forgot = set(ids)
    world.answers = False
    world.lines("c", source="more")
    world.settle()
    world.look()
    world.forgot, world.answers = set(), True
    world.settle()
    (alarm,) = world.of(ev.QualityAlarmed)
    assert alarm.metrics == (LESSONS,) and alarm.drops[LESSONS].drop == 1.0 and alarm.fell == {}
    assert (alarm.step, alarm.to, world.learned()) == (3, 2, ["a", "b"])
    (named,) = world.of(ev.QualityNamed)
    assert named.verdict == "not_searched" and "replays do not measure" in named.reason


def test_lessons_that_faded_long_ago_are_asked_again_and_are_no_alarm() -> None:
    world = GuardedLessons().up()
    ids = world.taught(16)
    world.knows["base"] = {}
    for one in ids:
        world.state.lessons.lessons[one].shown = -RECENT - 1
    world.forgot = set(ids)
    world.wants_look()
    assert world.of(ev.QualityMeasured)[-1].figures[OLDER] == dict.fromkeys(ids, 0.0)
    world.teach()
    assert not world.of(ev.QualityAlarmed) and {one.lesson for one in world.of(ev.LessonKept)} == set(ids)
    world.forgot = set()
    world.wants_look()
    assert world.of(ev.QualityMeasured)[-1].figures[LESSONS] == dict.fromkeys(ids, 1.0), "they count from then on"


def test_one_that_is_replaced_while_it_is_asked_leaves_without_an_alarm() -> None:
    world = GuardedLessons().up()
    ids = world.taught(3)
    world.answers = False
    world.give(inp.QualityWanted("p"))
    assert [one.lesson for one in world.probed[0].lessons] == ids
    world.give(inp.LessonUnwanted(ids[0], "p"))
    world.forgot = {ids[0]}
    world.look()
    assert world.of(ev.QualityMeasured)[-1].figures[LESSONS] == {ids[1]: 1.0, ids[2]: 1.0}
    world.answers = True
    world.wants_look()
    assert world.asked_lessons[-1] == (ids[1], ids[2]) and world.states()[ids[0]] == "given up"


def after(*looks: dict[str, float]) -> tuple[str, ...]:
    own = QualityState()
    for one in looks:
        own.metrics = looked(own, QualitySettings(), {LESSONS: dict(one)})
    return alarms(own.metrics)


def test_how_many_have_to_fall_for_an_alarm() -> None:
    def look(failed: int, of: int) -> dict[str, float]:
        return {f"L{n}": float(n >= failed) for n in range(of)}

    assert after(*[look(2, 16)] * 50) == (), "each of them is asked again, and practised"
    assert after(look(16, 16)) == after(*[look(10, 16)] * 3) == (LESSONS,)
    assert after(*[look(3, 3)] * 50) == (), "three alone cannot say it"
    two = looked(QualityState(), QualitySettings(), {LESSONS: dict(look(2, 2))})
    assert not doubt(two, 0.1, {}).ask_all, "and two raise no doubt"
