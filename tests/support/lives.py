"""What happens to a daemon whatever it is at: its trainer works, processes die, people come, clocks go wrong."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import TypeVar

from support.world import World

from apollod.core import inputs as inp
from apollod.core.schedules import DAY_NS, SECOND_NS

W = TypeVar("W", bound=World)

YEAR_NS = 365 * DAY_NS
CLOCKS = {
    "clock back": -3600 * SECOND_NS, "clock forward": 3600 * SECOND_NS, "year ahead": YEAR_NS, "year back": -YEAR_NS,
}  # fmt: skip


def stopped(world: World) -> bool:
    """Ask it to stop; does it?"""
    world.give(inp.ShutdownRequested("test"))
    for _ in range(20):
        world.settle()
        world.pass_time(5)
    return world.exited


def goes_on(world: World, action: str, number: int) -> World:
    """The world after this happened: itself, or the next life of a supervisor that ended."""
    named = len(world.journal)
    match action:
        case "settle":
            world.settle()
        case "answer":
            world.answer()
        case "lines":
            world.lines(f"a{named}", f"b{named}", source=f"f{named}")
        case "kill":
            world = world.successor().up()
        case "stop" if stopped(world):
            world = world.successor().up()
        case "trainer dies" | "engine dies":
            world.exit(action.split()[0])
            world.pass_time(70)
        case "checkpoint":
            world.give(inp.CheckpointRequested("t"))
        case "back":
            world.give(inp.RollbackRequested(max(0, world.state.training.version - number), "t"))
        case "relearn":
            out = [*world.state.intake.undone, *world.state.intake.withdrawn]
            world.give(inp.RelearnRequested(tuple((one, "bulk") for one in out[:2]), "t"))
        case "time" | "days" | "weeks":
            world.pass_time({"time": 400, "days": 90_000, "weeks": 20 * 90_000}[action])
        case "clock back" | "clock forward" | "year ahead" | "year back":
            world.now += CLOCKS[action]
            world.give(inp.Tick())
        case "pause":
            world.give(inp.TrainingPaused("p"))
        case "resume":
            world.give(inp.TrainingResumed("p"))
    return world


def goes_well(world: World) -> None:
    """Nobody is in the way any more, and what was given up is begun again."""
    world.give(inp.TrainingResumed("t"))
    world.pass_time(700)
    if world.state.children.engine.phase == "spawned":
        world.engine_up()


def cut_short(world: W, life: Callable[[W], object], every: int = 1) -> dict[int, W]:
    """The worlds after a crash at each instant of this life (or at one in so many), none of them started yet: those
    that `dies_at` and `successor` make, and the life is lived only once."""
    found = dict[int, W]()
    instant = world._instant

    def instant_and_crash() -> None:
        instant()
        if (world.instants - 1) % every:
            return
        after = world.successor()
        for name, value in list(vars(after).items()):
            if isinstance(value, (list, dict, set, deque)):
                setattr(after, name, copy(value))  # the life goes on with its own
        found[world.instants] = after  # type: ignore[assignment]

    world._instant = instant_and_crash  # type: ignore[method-assign]
    life(world)
    return found


@contextmanager
def noted(instant: int) -> Iterator[None]:
    """Whatever fails here says after a crash at which instant it failed."""
    try:
        yield
    except Exception as error:
        error.add_note(f"after a crash at instant {instant}")
        raise
