"""What people are told of lessons."""

from support.taught_world import TaughtWorld

from apollod.core.holding.state import Anchor
from apollod.supervisor.lessons.lesson_view import KEPT, lesson_view, lessons_status


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
    assert view(world, "L1")["error"] == "it is down" == lessons_status(world.state).error
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
    assert found["steps"] == len(found["examples"]) and found["after"] == {"bare": [4, 4]}  # type: ignore[arg-type]
