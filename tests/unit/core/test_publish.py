"""Fences, whoever dies whenever (transcripts/publishing.txt has the rest)."""

import pytest
from support.world import SETTINGS, World, changed

FENCED = changed(SETTINGS, publish="fenced", align_every=0)


def life(world: World) -> None:
    world.up()
    world.lines("a", "b", "c")
    world.settle()


def total() -> int:
    world, answers = World(FENCED), 0
    world.start()
    world.engine_up()
    world.lines("a", "b", "c")
    while world.answer():
        answers += 1
    return answers


@pytest.mark.parametrize("who", ["trainer", "engine", "supervisor"])
@pytest.mark.parametrize("after", range(total()))
def test_whoever_dies_whenever_every_write_is_fenced_and_the_fence_is_open_in_the_end(who, after):
    calm = World(FENCED)
    life(calm)
    world = World(FENCED)
    world.start()
    world.engine_up()
    world.lines("a", "b", "c")
    for _ in range(after):
        world.answer()
    if who == "supervisor":
        world = world.crash_and_return()
    else:
        world.exit(who)
        world.pass_time(5)
        if who == "engine":
            world.settle()
            world.pass_time(5)
            world.engine_up()
        world.settle()
    assert world.memory == calm.memory and world.state.training.version == 3
    assert not world.unfenced and not world.fence and not world.state.publishing.engine_paused
