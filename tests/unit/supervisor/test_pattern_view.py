"""What people are told of a pattern is what decides."""

import msgspec
from support.dreaming_world import PATTERN, DreamingWorld, with_patterns

from apollod.supervisor.dreaming.pattern_view import patterns_view


def test_of_tests_in_contrast_the_text_is_shown_that_decides() -> None:
    """With one text everything passes and with the other one nothing does; the newest tests are of the first."""
    pattern = msgspec.structs.replace(PATTERN, contrast=("Act.", "Wait."), settle=(2, 3))
    world = DreamingWorld(with_patterns(pattern)).up()
    course = world.state.dreams.courses["ask"]
    course.contrast = [("Wait.", True), ("Wait.", False), ("Wait.", False), *[("Act.", True)] * 3]
    (shown,) = patterns_view(world.state, 0)["patterns"]
    assert shown["window"]["leaks"] == ["Wait."] and shown["window"]["contrast"] == {"passed": 1, "of": 3}
    course.contrast = []
    (shown,) = patterns_view(world.state, 0)["patterns"]
    assert shown["window"]["contrast"] == {"passed": 0, "of": 0}
