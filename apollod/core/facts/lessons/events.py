"""Events of lessons: they are given, worded, asked, practised, and become known or are given up."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.stages import Course, Stage
from apollod.core.kernel.event import Event, ExampleEvent
from apollod.core.kernel.input import Input
from apollod.core.kernel.reasons import Cause


class Wording(msgspec.Struct, frozen=True, gc=False):
    """One question about it."""

    prompt: str
    """the user's message"""
    answer: str
    """short, exact text that an answer has to contain: `curation.lessons.matching.matches`"""
    how: str
    """its origin: "given", "imagined", or the id of a frame"""
    says: str = ""
    """a whole answer to learn; empty: `answer` is learned"""


class Worded(msgspec.Struct, frozen=True, gc=False):
    """All wordings of a lesson. No prompt is in both lists; none contains its answer."""

    question: str
    """the question, as given or made from the statement"""
    answer: str
    """short and exact"""
    key: str
    """key of the question: of two lessons with the same key and different answers one replaces the other"""
    practice: tuple[Wording, ...]
    held_out: tuple[Wording, ...]
    neighbours: tuple[str, ...] = ()
    """the question about other subjects: the model's answers to them are held while the lesson is practised"""
    also: tuple[str, ...] = ()
    """keys of its other questions, such as "Who is the owner of it?" beside "Who owns it?"; see `key`"""
    dropped: dict[str, int] = {}
    """wordings that were left out, by reason: "near-copy", "leak", "off" (not about the lesson), "answer" (it has
    another answer), "told" (the told model fails it)"""


def keys_of(worded: Worded | None) -> tuple[str, ...]:
    """Keys of all its questions; none if it is not worded yet."""
    return (worded.key, *worded.also) if worded is not None else ()


AskMode = Literal["bare", "told"]
"""bare: without a system message; told: with the told text of the lesson as the system message."""
Tally = tuple[int, int]
"""(passed, count)"""


class Said(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An answer to one held-out wording. `wording`: its index among them; `seed`: of the sampling;
    None: the greedy answer."""

    wording: int
    text: str
    passed: bool
    seed: int | None = None


class Point(msgspec.Struct, frozen=True, gc=False):
    """One time at which a known lesson was asked again: weights version `step`."""

    at_ns: int
    step: int
    passed: int
    of: int


class LessonEvent(Event, frozen=True):
    """Base of events about one lesson."""

    lesson: str

    def key(self) -> str:
        return self.lesson


class LessonGiven(LessonEvent, frozen=True):
    """A lesson is to be taught. `replaces`: the lesson that it corrects, empty: none named. `example`: the direct line
    of which it was made, empty: it was given as a lesson."""

    kind: ClassVar[str] = "lesson.given"
    given: Given
    by: str
    replaces: str = ""
    example: str = ""


class LessonsLeftOut(Event, frozen=True):
    """Direct examples without a lesson: they are learned as they are."""

    kind: ClassVar[str] = "lesson.left-out"
    examples: tuple[str, ...]
    reason: str


class LessonBegun(LessonEvent, frozen=True):
    """Intent: a course of this lesson begins with this stage. `why`: given, fading, again (asked again), requested."""

    kind: ClassVar[str] = "lesson.begun"
    stage: Stage
    why: str


class LessonWorded(LessonEvent, frozen=True):
    """Result: the wordings of the lesson, and `told`, the system message with which the model can answer."""

    kind: ClassVar[str] = "lesson.worded"
    told: str
    worded: Worded
    model: str = ""
    """the model that imagined wordings; empty: none"""
    tokens: int = 0
    seconds: float = 0.0


class LessonAsked(LessonEvent, frozen=True):
    """Result: wordings were asked, without learning. `stage`: baseline, told, testing or again; `round`: number of
    tests so far that could show the lesson to be known, this one included; `proof`: number of those with sampled
    answers (0: as `round`)."""

    kind: ClassVar[str] = "lesson.asked"
    stage: Stage
    mode: AskMode
    round: int
    answers: tuple[Said, ...]
    weights_version: int | None = None
    tokens: int = 0
    seconds: float = 0.0
    proof: int = 0


class LessonPutOff(LessonEvent, frozen=True):
    """The lesson waits for its turn again before its practice begins: lines that wait for their first look come
    first."""

    kind: ClassVar[str] = "lesson.put-off"


class LessonPrepared(LessonEvent, frozen=True):
    """The practice wording with this index waits for its step, as `example`. `more`: others of its round are prepared
    next, and learned with it."""

    kind: ClassVar[str] = "lesson.prepared"
    wording: int
    example: str
    tokens: int = 0
    seconds: float = 0.0
    more: bool = False


class LessonPractised(LessonEvent, frozen=True):
    """Result: `step` learned the example, or found it known (`reason`). Step 0: not learned, for the `reason`."""

    kind: ClassVar[str] = "lesson.practised"
    wording: int
    example: str
    step: int
    reason: str = ""


class LessonKnown(LessonEvent, frozen=True):
    """The model answers it bare, in held-out wordings, beyond the error bound (`core.proof`). `step`: tested weights
    version; `before`: greedy answers before the first step, by mode; `after`: bare ones now; `steps`: steps that
    learned it, in all its courses; `drift`: nats a token, see `core.rules.lessons.drift`; `prompt`: a practice wording,
    to hold its answer; `seconds`: duration of this course."""

    kind: ClassVar[str] = "lesson.known"
    step: int
    before: dict[str, Tally]
    after: Tally
    steps: int
    drift: float
    seconds: float
    prompt: str
    asks: int = 0
    """number of answers in the test that showed it"""


class LessonKept(LessonEvent, frozen=True):
    """Result: a known lesson was asked again, and all held-out wordings pass. `step`: weights version."""

    kind: ClassVar[str] = "lesson.kept"
    step: int
    passed: Tally


class LessonFading(LessonEvent, frozen=True):
    """A known lesson has to be shown again: a held-out wording failed when it was asked again."""

    kind: ClassVar[str] = "lesson.fading"
    reason: str
    step: int
    passed: Tally


class LessonRequested(LessonEvent, Input, frozen=True):
    """Request to practise a lesson: it is tested again and practised if it fails, with a new budget."""

    kind: ClassVar[str] = "lesson.requested"
    by: str


class LessonReplaced(LessonEvent, frozen=True):
    """The lesson is wrong since lesson `by` was given, which has another answer to the same question."""

    kind: ClassVar[str] = "lesson.replaced"
    by: str


class ExampleReplaced(ExampleEvent, frozen=True):
    """An example contradicts the lesson that answers its question: it is not taught again, unless it is given directly.
    `answer`: its short answer; empty: it cannot be told apart from other words."""

    kind: ClassVar[str] = "example.replaced"
    lesson: str
    reason: str
    answer: str = ""


class LessonGivenUp(LessonEvent, frozen=True):
    """The lesson is no longer taught, for the `reason`. `by`: apollod, or the person who had it forgotten."""

    kind: ClassVar[str] = "lesson.given-up"
    by: str
    reason: str
    before: dict[str, Tally] = {}
    after: Tally | None = None
    steps: int = 0
    drift: float = 0.0
    seconds: float = 0.0


class LessonFailed(LessonEvent, frozen=True):
    """Result: a call for the lesson had no usable answer. It is repeated after `retry_s` at the earliest."""

    kind: ClassVar[str] = "lesson.failed"
    stage: Stage
    attempt: int
    cause: Cause
    reason: str
    retry_s: float = 0.0
    tokens: int = 0


class LessonCarried(LessonEvent, frozen=True):
    """State of a lesson at the end of the journal's archive, as far as no other event that was taken over holds it; see
    the fields of `Lesson`."""

    kind: ClassVar[str] = "lesson.carried"
    state: str
    reason: str = ""
    not_these: tuple[str, ...] = ()
    replaced_by: str = ""
    before: dict[str, Tally] = {}
    after: Tally | None = None
    steps: int = 0
    practices: int = 0
    budget_from: int = 0
    rounds: int = 0
    proofs: int = 0
    drift: float = 0.0
    seconds: float = 0.0
    examples: tuple[str, ...] = ()
    last_step: int = 0
    shown: int = 0
    looked: int = 0
    distance: int = 0
    due_ns: int = 0
    due_step: int = 0
    curve: tuple[Point, ...] = ()


class LessonsCarried(Event, frozen=True):
    """The state of all lessons at the end of the journal's archive: the number of the last one, the waiting ones, and
    the one under way."""

    kind: ClassVar[str] = "lessons.carried"
    number: int
    queue: tuple[str, ...] = ()
    open: Course | None = None
    asked_again: bool = False
    harmful: dict[str, str] = {}
    first_looks: dict[str, str] = {}
    """see `IntakeState`"""
