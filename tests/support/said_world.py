"""A world whose lines are answers in a log, and what people showed about them."""

import msgspec
from support.world import World

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Evidence, Learn


def undo(answer: str) -> Evidence:
    return Evidence("undo", "bad", 0.8, f"k {answer}", "s", ("r1",), "undo that")


def passed(answer: str) -> Evidence:
    return Evidence("check", "good", 0.8, f"k {answer}", "s", ("r1",), "pytest: 3 passed")


def interrupted(answer: str) -> Evidence:
    return Evidence("interrupted", "bad", 0.3, f"k {answer}", "s", ("r1",), "[Request interrupted by user]")


class SaidWorld(World):
    """`learn` is the rule of the source that is read."""

    learn: Learn = "unrejected"

    def says(self, *answers: str, shown: tuple[Evidence, ...] = (), tier: ev.Tier = "bulk", hold: float = 0.0) -> None:
        """A log has these answers, and shows something about them or about earlier ones."""
        lines = [
            inp.Line(number=n, example=one, record=b"{}", responses=(inp.Response(f"k {one}"),), of_log=True)
            for n, one in enumerate(answers, 1)
        ]
        lines.append(inp.Line(number=len(lines) + 1, evidence=shown))
        batch = inp.Batch("log", "/log", 10, len(lines), tuple(lines), tier=tier, hold=hold, learn=self.learn)
        self.give(inp.LinesRead(batch, frozenset()))

    def takes_back(self, *answers: str, kind: str = "undo") -> None:
        """A log shows that people undid these answers."""
        self.says(shown=tuple(msgspec.structs.replace(undo(one), kind=kind) for one in answers))

    def states(self) -> dict[str, str]:
        """Of all examples that a decision reaches."""
        from apollod.core.shared.places import places_of

        return {example: place.state for example, place in places_of(self.state, sorted(self.known)).items()}
