"""A guarded world with lessons: looks ask the known ones, and a test says which of them fail."""

from support.guarded_world import GuardedWorld, guarded
from support.taught_world import TaughtWorld

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.quality.looking import LESSONS

SETTINGS = guarded(every_steps=3, cost=0.0)


class GuardedLessons(GuardedWorld, TaughtWorld):
    """`forgot`: lessons whose held-out wordings fail in looks; `asked_lessons`: those of each look."""

    def __init__(self, settings: ev.Settings = SETTINGS, dies_at: int = 0) -> None:
        super().__init__(settings, dies_at)
        self.forgot: set[str] = set()
        self.asked_lessons: list[tuple[str, ...]] = []

    def taught(self, count: int) -> list[str]:
        """So many lessons that are known without a step; their ids."""
        ids = [self.want(f"old {self.state.lessons.number}", "known") for _ in range(count)]
        self.teach()
        assert {self.states()[one] for one in ids} == {"known"}
        return ids

    def figures(self) -> dict[str, dict[str, float | None]]:
        lessons = self.asked_lessons[-1] if self.asked_lessons else ()
        said: dict[str, float | None] = {one: float(one not in self.forgot) for one in lessons}
        return super().figures() | ({LESSONS: said} if said else {})

    def look(self) -> list[ev.Event]:
        self.asked_lessons.append(tuple(one.lesson for one in self.probed[0].lessons))
        return super().look()

    def wants_look(self) -> None:
        """A person asks for a look, and gets it."""
        self.give(inp.QualityWanted("p"))
        self.settle()

    def up(self) -> "GuardedLessons":
        super().up()
        return self
