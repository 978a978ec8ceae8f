"""A journal of a daemon that dreamt: one pattern that settled, one that was given up, one that is practised."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import groupby
from pathlib import Path

import anyio
import msgspec
from support.dreaming_world import PATTERN, DreamingWorld, with_patterns
from support.journals import opened

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.state import Stage
from apollod.core.settings import Check, PatternSettings

RUBRIC = PatternSettings(
    name="caps", instruction="Answer in capitals.", check=Check(rubric="names count, too"), held_out=2, dreams=2,
    contrast=("Answer in small letters.",),
)  # fmt: skip
LAST = PatternSettings(
    name="wait", instruction="Say what you will do,\nthen wait.", check=Check(regex="wait"), held_out=2
)


class Dreamt(DreamingWorld):
    """Of `caps` every second answer is bad, and its better one good; one dream of `ask` is abandoned."""

    def __init__(self) -> None:
        super().__init__(with_patterns(PATTERN, RUBRIC, trust_min=0.8))
        self.verdict = self._judge
        self.judged = Counter[str]()

    def _judge(self, asked: fx.JudgeDream) -> str:
        name = asked.pattern.name
        self.judged[name] += 1
        if name == "ask":
            return "unsure" if self.judged[name] == 2 else "good"
        return "bad" if asked.stage == "judging" and self.judged[name] % 2 == 0 else "good"

    def reply(self, asked: fx.Effect) -> inp.Input:
        said, replace = super().reply(asked), msgspec.structs.replace
        if isinstance(said, inp.DreamVerdict):
            return replace(said, judged=replace(said.judged, reason="because", quote="answer", tokens=20))
        if isinstance(said, inp.ScenarioImagined):
            return replace(said, imagined=replace(said.imagined, places=(f"/notes/lessons.md#{self.scenarios}",)))
        return said


@cache
def dreamt() -> Dreamt:
    """Its life so far; a dream of the last pattern is under way."""
    world = Dreamt()
    world.up()
    while world.questions:
        world.case()
    world.dream()
    world.give(inp.PatternWanted(LAST, "anna"))
    while world.state.dreams.open is None or world.state.dreams.open.stage is not Stage.ANSWERING:
        world.settle()
        world.call()
    return world


def dreams_that(matches: Callable[[ev.Event], bool]) -> list[str]:
    """Those with such an event, in the order in which they began."""
    return list(dict.fromkeys(r.event.key() for r in story() if r.event.kind.startswith("dream.") and matches(r.event)))


def story() -> list[ev.Recorded]:
    return list(dreamt().journal)


def write_story(path: Path, story: list[ev.Recorded]) -> Path:
    """As a journal, with the times of the story."""

    async def main() -> None:
        async with opened(path) as journal:
            for at_ns, at_once in groupby(story, lambda one: one.at_ns):
                await journal.append([one.event for one in at_once], at_ns)

    anyio.run(main)
    return path
