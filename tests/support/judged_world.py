"""A world with a judge who answers what a test tells him to, when it tells him to."""

from collections.abc import Sequence
from typing import Any

import msgspec
from support.world import SETTINGS, World, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.judging.events import Verdict, Vote
from apollod.core.facts.judging.state import distrust

CASES = tuple(ev.Planted(f"case{n}", "good" if n % 2 else "bad") for n in range(60))
JUDGED = changed(SETTINGS, mode="all", votes=3, concurrency=2, attempts=3, trust_min=0.8, check_every=10)


def configured(prompt_hash: str = "h", cases: Sequence[ev.Planted] = CASES, served: bool = False) -> ev.JudgeConfigured:
    return ev.JudgeConfigured("m", prompt_hash, "http://j/v1", served, tuple(cases))


class JudgedWorld(World):
    """Questions to the judge pile up in `questions`; they outlive children, and not the supervisor."""

    def __init__(self, settings: ev.Settings = JUDGED, dies_at: int = 0, free: int | None = None) -> None:
        super().__init__(settings, dies_at, free)
        self.questions: list[fx.AskJudge] = []
        self.judge = configured()
        self.vote = inp.Judged((Vote("bad"),))

    @property
    def distrust(self) -> str:
        """Why the judge is not trusted; empty: it is."""
        return distrust(self.state.judging, self.settings.judge.trust_min)

    def judged_by(self, prompt_hash: str = "h", *more: str, served: bool = False, **changes: str) -> None:
        """Another judge from the next start on; `more`: ids of further cases, which are bad."""
        cases = [*CASES, *(ev.Planted(one, "bad") for one in more)]
        self.judge = msgspec.structs.replace(configured(prompt_hash, cases, served), **changes)

    def start(self) -> None:
        self.give(inp.Started(1, "test", self.settings, "/s", free_bytes=self.free, judge=self.judge))

    def _run(self, effect: fx.Effect) -> list[ev.Event]:
        if isinstance(effect, fx.AskJudge):
            self.questions.append(effect)
            return []
        return super()._run(effect)

    def says(self, *verdicts: Verdict, about: str = "", better: str = "", known: bool = False) -> list[ev.Event]:
        """What votes say of the oldest example that is asked about, or of `about`; cases before are answered rightly.
        `better`: the id of the better answer."""
        asked = self._take(about)
        votes = tuple(Vote(verdict, "q", "r", "b" if better and verdict == "bad" else None) for verdict in verdicts)
        line = inp.Line(number=1, example=better, record=b"{}") if better else None
        return self.give(inp.JudgeAnswered(asked.subject, asked.attempt, inp.Judged(votes, 7, 10, 5), line, known))

    def fails(self, cause: Any = "endpoint", reason: str = "it is down", retry_after_s: float = 0.0) -> list[ev.Event]:
        """No answer to the oldest question, whatever it is about."""
        asked = self.questions.pop(0)
        return self.give(inp.JudgeFailed(asked.subject, asked.attempt, cause, reason, retry_after_s))

    def _take(self, about: str) -> fx.AskJudge:
        while True:
            for place, asked in enumerate(self.questions):
                if asked.subject == about or (not about and not asked.planted):
                    return self.questions.pop(place)
            self.case()

    def right(self, case: str) -> Any:
        """The right verdict on a planted case, one that was made of what a person approved included."""
        made = {"same": "good", "changed": "bad"}.get(case.partition(":")[0])
        return made or {one.id: one.expected for one in self.judge.cases}[case]

    def case(self, liar: bool = False) -> None:
        """The oldest question about a case is answered rightly, or by somebody who always says good."""
        asked = next(asked for asked in self.questions if asked.planted)
        self.questions.remove(asked)
        votes = (Vote("good" if liar else self.right(asked.subject), "q", "r"),)
        self.give(inp.JudgeAnswered(asked.subject, asked.attempt, inp.Judged(votes)))

    def calibrate(self, liar: bool = False) -> "JudgedWorld":
        """All cases that are asked about."""
        while any(asked.planted for asked in self.questions):
            self.case(liar)
        return self

    def decides(self, choice: Any, *examples: str, by: str = "p", only_in: Any = "") -> list[ev.Event]:
        return self.give(inp.DecisionsGiven(tuple(inp.Decision(one, choice, only_in=only_in) for one in examples), by))

    def both(self, together: bool) -> list[ev.Event]:
        """Hold a, decline b: of those that wait to be learned."""
        pair = (inp.Decision("a", "hold", only_in="pending"), inp.Decision("b", "decline", only_in="pending"))
        return self.give(inp.DecisionsGiven(pair, "p", together=together))

    def edits(self, example: str, into: str, known: bool = False) -> list[ev.Event]:
        """A person writes another example instead of one."""
        return self.give(inp.EditGiven(example, inp.Line(number=1, example=into, record=b"{}"), "p", known=known))

    def learned(self) -> list[str]:
        self.settle()
        return [one for e in self.of(ev.StepCompleted) for one in ev.all_examples(e)]
