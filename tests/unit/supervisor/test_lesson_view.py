"""What people are told of lessons."""

from support.dreaming_world import PATTERN, DreamingWorld, with_patterns
from support.taught_world import PRACTICE, TaughtWorld

from apollod.core import inputs as inp
from apollod.core.facts.holding import Anchor
from apollod.core.rules.dreams import status as dreams_status
from apollod.core.rules.lessons import policy as lessons_status
from apollod.supervisor.lesson_view import KEPT, behaviour_row, found, lesson_view, lessons_view


def view(world: TaughtWorld, lesson: str) -> dict[str, object]:
    return lesson_view(world.state, world.state.lessons.lessons[lesson], world.now)


def test_kept_is_what_is_held_and_has_not_moved_far() -> None:
    world = TaughtWorld().up()
    world.want("who")
    assert view(world, "L1")["kept"] == [0, 0]
    moved = {"a": 0.05, "b": KEPT, "c": 0.13, "d": None}
    world.state.holding.anchors = {name: Anchor(name, "general", name, moved=far) for name, far in moved.items()}
    assert view(world, "L1")["kept"] == [2, 3], "one was not asked yet"


def test_what_a_lesson_waits_for_is_said() -> None:
    world = TaughtWorld().up()
    for question in ("who", "what", "when"):
        world.want(question)
    assert [view(world, id_)["waits"] for id_ in ("L1", "L2", "L3")] == [
        "", "1 other lesson comes first", "2 other lessons come first",
    ]  # fmt: skip
    world.fail(reason="it is down")
    assert view(world, "L1")["error"] == "it is down" == lessons_status.status(world.state, world.now).error
    assert not view(world, "L2")["error"]
    world.state.daemon.paused = True
    assert "pause" in str(view(world, "L2")["waits"])


def test_figures_go_on_while_it_is_under_way() -> None:
    world = TaughtWorld().up()
    world.want("who")
    world.call()
    world.now += 5_000_000_000
    found = view(world, "L1")
    assert (found["stage"], found["round"], found["asked"]) == ("baseline", 1, [0, 0])
    assert 5.0 <= float(str(found["seconds"])) < 60.0
    world.teach()
    found = view(world, "L1")
    assert (found["stage"], found["state"], found["waits"]) == (None, "known", "")
    assert len(found["examples"]) == PRACTICE * found["steps"] and found["after"] == {"bare": [4, 4]}  # type: ignore[arg-type]


def test_the_newest_lesson_of_any_kind_comes_first_and_all_are_counted() -> None:
    world = TaughtWorld().up()
    world.want("who")
    world.now += 5_000_000_000
    world.give(inp.PatternWanted(PATTERN, "p"))
    world.now += 5_000_000_000
    world.want("old", "known")
    rows = lessons_view(world.state, "", 0, world.now)["lessons"]
    assert [(row["lesson"], row["kind"]) for row in rows] == [
        ("L2", "correction"), ("ask", "behaviour"), ("L1", "correction"),
    ]  # fmt: skip
    assert rows[0].keys() == rows[1].keys()
    assert [row["lesson"] for row in lessons_view(world.state, "waiting", 2, world.now)["lessons"]] == ["L2", "ask"]
    assert not lessons_view(world.state, "", 0, world.now, document="NOTES.md")["lessons"]
    status = lessons_status.status(world.state, world.now)
    assert (status.waiting, status.practising, status.lesson) == (2, 1, "L1")
    world.teach()
    status = lessons_status.status(world.state, world.now)
    assert (status.waiting, status.known, status.reason) == (1, 2, dreams_status.reason(world.state, world.now))
    assert status.reason, "why nothing is dreamt, since only a behaviour is left"


def test_all_kinds_of_lessons_have_the_same_fields() -> None:
    world = TaughtWorld().up()
    world.want("who")
    world.give(inp.PatternWanted(PATTERN, "p"))
    fact, behaviour = view(world, "L1"), lesson_view(world.state, world.state.dreams.courses["ask"], world.now)
    assert behaviour.keys() - fact.keys() == {"pattern"} and not fact.keys() - behaviour.keys()
    assert found(world.state, "ask") is world.state.dreams.courses["ask"]
    assert found(world.state, "l1") is world.state.lessons.lessons["L1"] and found(world.state, "asks") is None


def test_a_behaviour_is_timed_until_it_is_over() -> None:
    world = DreamingWorld(with_patterns(PATTERN)).up()
    since = world.state.dreams.courses["ask"].since_ns
    world.now += 7_000_000_000
    assert behaviour_row(world.state.dreams.courses["ask"], world.now)["seconds"] == (world.now - since) / 1e9
    world.dream()
    course = world.state.dreams.courses["ask"]
    over = behaviour_row(course, world.now)
    assert over["state"] == "known" and over["seconds"] == round((course.moved_ns - since) / 1e9, 3)
    assert behaviour_row(course, world.now + 10**12) == over
    assert (over["before"], over["after"]) == ({"bare": [0, 4], "told": [4, 4]}, {"bare": [4, 4]})
    assert over["steps"] == course.practices
