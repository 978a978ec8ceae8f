"""A world with dreams: an imagination, a model and a judge that answer as they are told to.

The model is two numbers a pattern: how firmly it shows the behaviour untold, and how much of it leaks to where it would
be wrong. A bare practice adds to both, one in contrast takes the leak back.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from support.judged_world import JudgedWorld
from support.world import SETTINGS, changed, digest

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.settings import Check, PatternSettings
from apollod.core.surroundings import NOTHING, Surrounding
from apollod.curation.dreaming.scenario_text import sketch_of

FIRM = 4
"""bare practices after which a behaviour shows"""
LEAKS = 3
"""bare practices that no contrast follows, after which it shows everywhere"""

BY_CODE = Check(regex="x")
PATTERN = PatternSettings(
    name="ask", instruction="Ask before you act.", check=BY_CODE, held_out=4, contrast=("Act at once.",)
)
DREAMING = msgspec.structs.replace(
    SETTINGS, dream=msgspec.structs.replace(SETTINGS.dream, mode="always", share_max=1.0, pattern=(PATTERN,))
)
DREAM_CALLS = fx.ImagineScenario | fx.AnswerScenario | fx.JudgeDream | fx.TestScenario


def with_patterns(*patterns: PatternSettings, dream: Mapping[str, Any] = {}, **changes: object) -> ev.Settings:
    """`dream`: other settings of the section."""
    section = msgspec.structs.replace(DREAMING.dream, pattern=patterns, **dream)
    return changed(msgspec.structs.replace(DREAMING, dream=section), **changes)


def dreaming(names: tuple[str, ...] = ("ask",), judged: bool = False, **changes: Any) -> ev.Settings:
    """Patterns of these names, checked by code or by the judge; `changes`: fields of each, of the section, or of other
    sections."""
    own = {name: changes.pop(name) for name in list(changes) if name in PatternSettings.__struct_fields__}
    section = {name: changes.pop(name) for name in list(changes) if name in DREAMING.dream.__struct_fields__}
    own |= {"check": Check()} if judged else {}
    instructions = {"caps": "Answer in capitals."}
    patterns = [
        msgspec.structs.replace(
            PATTERN, **{"name": one, "instruction": instructions.get(one, PATTERN.instruction)} | own
        )
        for one in names
    ]
    return with_patterns(*patterns, dream=section, **changes)


def text(number: int) -> str:
    """A scenario unlike every other one."""
    return " ".join(digest(f"{number} {word}") for word in range(6))


def placed(asked: fx.ImagineScenario) -> Surrounding:
    """The surrounding that is asked for, which there is one of for each use and turn."""
    kind, turn = asked.surrounding.kind, asked.surrounding.turn
    said = f"{kind} {asked.use} {turn}"
    return Surrounding(kind, said, ({"role": "system", "content": said},)) if kind != "none" else NOTHING


class DreamingWorld(JudgedWorld):
    """`dream` answers calls until there is none, or so many were answered."""

    def __init__(self, settings: ev.Settings = DREAMING, dies_at: int = 0) -> None:
        super().__init__(settings, dies_at)
        self.calls: list[fx.Effect] = []
        self.firm: dict[str, int] = {}
        self.leak: dict[str, int] = {}
        self.scenarios = 0
        self.cancelled = 0
        self.harms: dict[str, str] = {}
        """practice of one pattern takes from another one's firmness"""
        self.imagines: Callable[[fx.ImagineScenario], str] = lambda asked: text(self.scenarios)
        self.verdicts = "good"
        """of the check, or `better`: the first answer is bad, and a better one is good"""
        self.verdict: Callable[[fx.JudgeDream], str] = self._verdict
        self.cheat = ""
        """leak, echo: what every imagined scenario does"""
        self.answered: list[fx.Effect] = []
        self.only_elsewhere: set[str] = set()
        """kinds of surroundings in which nothing is shown that was not told"""
        self.surrounding: Callable[[fx.ImagineScenario], Surrounding] = placed

    def _verdict(self, asked: fx.JudgeDream) -> str:
        return self.verdicts if self.verdicts != "better" else "good" if asked.stage == "judging better" else "bad"

    def same_text(self, least: int = 0) -> None:
        """The imagination writes one text, or so many in turn."""
        self.imagines = lambda asked: text(self.scenarios % (least or 1))

    def alike(self) -> None:
        """The imagination writes texts that differ in a number."""
        self.imagines = lambda asked: f"{text(0)} {text(0)} {self.scenarios}{self.scenarios * 7919}"

    def vivid(self) -> None:
        """The imagination writes texts unlike each other."""
        self.imagines = lambda asked: text(self.scenarios)

    def defined(self, *names: str, **changes: Any) -> None:
        """The configuration has other patterns from the next start on, which is now."""
        self.settings = dreaming(names, **changes)
        self.start()

    def wants(self, **changes: Any) -> list[ev.Event]:
        """A person gives a pattern of another definition."""
        return self.give(inp.PatternWanted(msgspec.structs.replace(PATTERN, **changes), "p"))

    def call_until(self, kind: str) -> None:
        """Calls are answered until the oldest is of this kind."""
        while not (self.calls and type(self.calls[0]).__name__ == kind):
            self.settle()
            self.call()

    def fails_call(self, cause: Any, reason: str, tokens: int = 0) -> None:
        """The oldest call, which is about a scenario to imagine, has no usable answer."""
        asked: Any = self.calls.pop(0)
        self.give(inp.DreamCallFailed(asked.dream, "imagining", asked.attempt, cause, reason, tokens=tokens))

    def late_answer(self) -> list[ev.Event]:
        """The call that was answered last is answered once more."""
        return self.give(self.reply(self.answered[-1]))

    def _run(self, effect: fx.Effect) -> list[ev.Event]:
        if isinstance(effect, DREAM_CALLS):
            if effect.key() not in [one.key() for one in self.calls]:
                self.calls.append(effect)
            return []
        if isinstance(effect, fx.CancelDream):
            self.calls, self.cancelled = [], self.cancelled + 1
            return []
        return super()._run(effect)

    def run_step(self, step: fx.RunStep) -> None:
        if not step.replay and step.examples[0].startswith("dream-"):
            _, name, mode, _ = step.examples[0].split("-")
            bare = mode == "bare"
            self.firm[name] = self.firm.get(name, 0) + bare
            self.leak[name] = max(0, self.leak.get(name, 0) + (1 if bare else -LEAKS))
            if (other := self.harms.get(name)) is not None:
                self.firm[other] = 0
        super().run_step(step)

    def call(self) -> bool:
        """Answer the oldest call; False where there is none."""
        if not self.calls:
            return False
        asked = self.calls.pop(0)
        self.answered.append(asked)
        self.give(self.reply(asked))
        return True

    def reply(self, asked: fx.Effect) -> inp.Input:
        match asked:
            case fx.ImagineScenario(dream=dream):
                said = self.imagines(asked)
                self.scenarios += 1
                imagined = ev.DreamImagined(
                    dream, (Turn("user", said),), sketch_of(said), seeds=(f"s{self.scenarios}",), tokens=10,
                    surrounding=self.surrounding(asked),
                )  # fmt: skip
                return inp.ScenarioImagined(imagined, **{self.cheat: "it says so"} if self.cheat else {})
            case fx.AnswerScenario(dream=dream, told=told):
                return inp.DreamAnswered(dream, told, "answer", sketch_of(f"answer {dream}"), -0.5, tokens=5)
            case fx.JudgeDream(dream=dream, pattern=pattern, mode=mode):
                verdict = self.verdict(asked)
                better = "a better one" if verdict == "bad" else None
                example = f"dream-{pattern.name}-{mode}-{dream}"
                line = inp.Line(number=0, example=example, record=b"{}") if verdict == "good" else None
                by = "regex" if pattern.check.by_code else "judge"
                judged = ev.DreamJudged(dream, verdict, by, better=better)  # type: ignore[arg-type]
                return inp.DreamVerdict(judged, asked.stage, line, known=example in self.known)
            case fx.TestScenario(dream=dream, pattern=pattern, mode=mode) as test:
                shown = self.firm.get(pattern.name, 0) >= FIRM
                leaks = self.leak.get(pattern.name, 0) >= LEAKS
                by = "regex" if pattern.check.by_code else "judge"
                shown = shown and test.surrounding.kind not in self.only_elsewhere
                wrong = leaks or (shown and self.firm.get(f"{pattern.name} everywhere", 0))
                passed = {"told": True, "bare": shown, "contrast": not leaks, "situation": not wrong}[mode]
                return inp.DreamTested(
                    dream, pattern.name, mode, passed, "said", by, test.round, test.contrast, sample=test.sample,
                    surrounding=test.surrounding.kind,
                )  # fmt: skip
        raise AssertionError(asked)

    def dream(self, most: int = 10_000) -> None:
        """Calls and steps until nothing is left to do."""
        for _ in range(most):
            self.settle()
            if not self.call():
                return

    def up(self) -> "DreamingWorld":
        super().up()
        return self

    def successor(self, dies_at: int = 0) -> "DreamingWorld":
        other = super().successor(dies_at)
        assert isinstance(other, DreamingWorld)
        other.firm, other.leak, other.harms, other.scenarios = self.firm, self.leak, self.harms, self.scenarios
        other.imagines, other.verdict, other.judge = self.imagines, self.verdict, self.judge
        other.verdicts, other.cheat = self.verdicts, self.cheat
        other.only_elsewhere, other.surrounding = self.only_elsewhere, self.surrounding
        return other
