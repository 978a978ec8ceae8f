"""A world with lessons: a model that knows what its weights were practised with.

How a question is called decides its fate: the model knows the answer to one that begins with `old` before anything is
trained, cannot answer one with `odd` even when it is told, gives the right answer to one with `flaky` six times of ten
(greedily always), cannot learn one with `dull`, says what it knows to one with `stubborn` whatever it is told, and
examples of one with `long` cannot be tokenised. One with `who owns X` also asks `owner X`. One with `owner of X` has
neighbours, and one with `varied` has 20 practice wordings.
"""

import random
from collections.abc import Mapping

import msgspec
from support.judged_world import JudgedWorld
from support.world import SETTINGS, digest

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Worded, Wording
from apollod.core.settings import LessonSettings

FIRM = 4
"""practices after which an answer is known"""
HELD_OUT = 4
PRACTICE = 3
LESSON_CALLS = fx.WordLesson | fx.AskLesson | fx.PrepareLesson
Knowledge = Mapping[str, tuple[str, int]]
"""question -> (answer, practices)"""


IN_TIME = ("1h", "1d", "1w", "30d")
"""what is known is asked again by the clock alone, so that a test moves one thing at a time"""


def teaching(**changes: object) -> ev.Settings:
    plain = LessonSettings(hold=0.0, ask_again=IN_TIME)
    return msgspec.structs.replace(SETTINGS, lessons=msgspec.structs.replace(plain, **changes))


def worded(given: Given) -> Worded:
    """`who is x` and `who is x?` are the same question."""
    question, answer = given.question.rstrip("?"), given.answer
    practice, held = (
        tuple(Wording(f"{question}, {sort} {n}", answer, f"{sort}{n}") for n in range(many))
        for sort, many in (("practice", 20 if "varied" in question else PRACTICE), ("held out", HELD_OUT))
    )
    near = ("owner of Y", "owner of Z") if "owner of " in question else ()
    also = (f"owner {question.removeprefix('who owns ')}",) if question.startswith("who owns ") else ()
    return Worded(question, answer, question, practice, held, near, also)


class TaughtWorld(JudgedWorld):
    """`teach` answers calls and steps until none is left, or so many calls were answered."""

    def __init__(self, settings: ev.Settings = SETTINGS, dies_at: int = 0) -> None:
        super().__init__(settings, dies_at)
        self.calls: list[fx.Effect] = []
        self.answered: list[fx.Effect] = []
        self.knows: dict[str, Knowledge] = {"base": {}}
        """by fingerprint of the weights"""
        self.harms: dict[str, str] = {}
        """practice of one question makes the model forget another one"""
        self.answers: dict[str, str] = {}
        """what lines say that answer a question, by their examples"""
        self.leak = ""
        """of what is prepared"""
        self.steps_of: dict[str, tuple[str, str]] = {}
        """example -> (question, answer) of its lesson"""

    def start(self) -> None:
        self.give(inp.Started(1, "test", self.settings, "/s", free_bytes=self.free))

    def _run(self, effect: fx.Effect) -> list[ev.Event]:
        if isinstance(effect, LESSON_CALLS):
            if effect.key() not in [one.key() for one in self.calls]:
                self.calls.append(effect)
            return []
        return super()._run(effect)

    def taught_by(self, example: str) -> tuple[str, str]:
        """(question, answer) of the lesson that this is a practice of; empty: of none."""
        for accepted in self.of(ev.ExampleAccepted) if example not in self.steps_of else ():
            lesson = self.state.lessons.lessons.get(accepted.source.removeprefix("lesson:"))
            if lesson is not None and lesson.worded is not None:
                self.steps_of[accepted.example] = lesson.worded.question, lesson.worded.answer
        return self.steps_of.setdefault(example, ("", ""))

    def encoded(self, example: str) -> inp.Encoded:
        question, _ = self.taught_by(example)
        return inp.Encoded(example, refused="too long") if question.startswith("long") else super().encoded(example)

    def run_step(self, step: fx.RunStep) -> None:
        before = self.view.weights
        super().run_step(step)
        if self.view.weights != before:
            self.knows[self.view.weights] = self._learned(dict(self.knows.get(before, {})), step)

    def _learned(self, knows: dict[str, tuple[str, int]], step: fx.RunStep) -> Knowledge:
        for example in step.examples:
            question, answer = self.taught_by(example)
            if not question or question.startswith("dull"):
                continue
            said, times = knows.get(question, (answer, 0))
            knows[question] = (answer, times + 1 if said == answer else 1)
            knows.pop(self.harms.get(question, ""), None)
        return knows

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
            case fx.WordLesson(lesson=lesson, given=given):
                return inp.LessonWorded(
                    lesson, f"Know that {given.answer}.", worded(given), tokens=3, seconds=0.1,
                    contradicted=self._contradicted(lesson, given),
                )  # fmt: skip
            case fx.AskLesson() as ask:
                answers = tuple(self._said(ask, one) for one in ask.asks)
                return inp.LessonAsked(
                    ask.lesson, ask.stage, ask.mode, ask.round, ask.made, answers, self.state.training.version
                )
            case fx.PrepareLesson(lesson=lesson, number=number, wording=wording):
                line = inp.Line(number=0, example=digest(wording.prompt + wording.answer), record=b"{}", leak=self.leak)
                return inp.LessonPrepared(lesson, number, line, teacher="")
        raise AssertionError(asked)

    def _contradicted(self, lesson: str, given: Given) -> tuple[inp.Contradicted, ...]:
        """As the journal is asked."""
        before = [one.event for one in self.journal]
        before = before[: next(n for n, e in enumerate(before) if isinstance(e, ev.LessonGiven) and e.lesson == lesson)]
        return tuple(
            inp.Contradicted(e.example, self.answers[e.example])
            for e in before
            if isinstance(e, ev.ExampleAccepted) and e.question == worded(given).key
            and self.answers.get(e.example, given.answer) != given.answer
        )  # fmt: skip

    def _said(self, ask: fx.AskLesson, one: fx.Ask) -> ev.Said:
        question = one.prompt.partition(",")[0]
        said = self.says(question)
        if ask.mode == "told":
            known = said if question.startswith("stubborn") else ""
            said = "" if question.startswith("odd") else known or one.answer
        if question.startswith("flaky") and one.seed is not None and random.Random(one.seed).random() >= 0.6:
            said = "perhaps"
        passed = said == one.answer and said not in ask.not_these
        return ev.Said(one.wording, said, passed, one.seed)

    def says(self, question: str) -> str:
        """What the served model answers, bare."""
        answer, times = self.knows.get(self.memory, {}).get(question, ("", 0))
        if question.startswith("old") and not answer:
            return "known"
        return answer if times >= FIRM else ""

    def want(self, question: str, answer: str = "yes", replaces: str = "") -> str:
        """Give a lesson; its id."""
        events = self.give(inp.LessonWanted(Given(question=question, answer=answer), "p", replaces))
        return next(e.lesson for e in events if isinstance(e, ev.LessonGiven))

    def teach(self, most: int = 10_000) -> None:
        """Calls and steps until nothing is left to do."""
        for _ in range(most):
            self.settle()
            if not self.call():
                return

    def ask_until(self, *stages: str) -> None:
        """Calls are answered until the oldest one is of one of these stages, or the lesson under way waits in it."""
        for _ in range(200):
            self.settle()
            course = self.state.lessons.open
            if (self.calls and getattr(self.calls[0], "stage", "") in stages) or (course and course.stage in stages):
                return
            self.call()
        raise AssertionError(self.states())

    def prepare(self, count: int) -> None:
        """Calls are answered until so many practices are prepared, and nothing is learned meanwhile."""
        while len(self.of(ev.LessonPrepared)) < count:
            self.call()

    def submit(
        self, *questions: str, answer: str = "yes", tier: ev.Tier = "direct", leak: str = "", response: str = ""
    ) -> list[ev.Event]:
        """Lines that are called by their question; no lesson can be made of `plain` ones."""
        said = (inp.Response(response),) if response else ()
        lines = tuple(
            inp.Line(
                1, f"{one} {answer}", b"{}", leak=leak, responses=said,
                lesson=None if one.startswith("plain") else Given(question=one, answer=answer),
            )
            for one in questions
        )  # fmt: skip
        batch = inp.Batch("ctl", "", 0, len(lines), lines, tracked=False, tier=tier)
        return self.give(inp.LinesRead(batch, frozenset()))

    def corrects(self, correction: str, *formers: str) -> None:
        """A person corrects response r to the question "who", or takes that back."""
        before = next(reversed(self.of(ev.FeedbackGiven)), None)
        given = Given(question="who", answer=correction)
        line = inp.Line(1, f"who {correction}", b"{}", lesson=given) if correction else None
        self.give(inp.Rated("r", "bad", "ctl", correction, line=line, previous=before, formers=formers))

    def late_answers(self) -> list[ev.Event]:
        """All calls that were answered are answered once more."""
        return [event for call in self.answered for event in self.give(self.reply(call))]

    def fail(self, cause: ev.Cause = "endpoint", reason: str = "it is down") -> None:
        """The oldest call has no usable answer."""
        asked = self.calls.pop(0)
        assert isinstance(asked, LESSON_CALLS)
        self.give(inp.LessonCallFailed(asked.lesson, asked.stage, asked.attempt, cause, reason))

    def states(self) -> dict[str, str]:
        return {id_: one.state for id_, one in self.state.lessons.lessons.items()}

    def up(self) -> "TaughtWorld":
        super().up()
        return self

    def successor(self, dies_at: int = 0) -> "TaughtWorld":
        other = super().successor(dies_at)
        assert isinstance(other, TaughtWorld)
        other.knows, other.harms, other.steps_of, other.leak = self.knows, self.harms, self.steps_of, self.leak
        other.answers = self.answers
        return other
