"""State: all lessons, and the one under way."""

import msgspec

from apollod.core.facts.intake.events import Given, Tier
from apollod.core.facts.lessons.events import Point, Tally, Worded
from apollod.core.facts.lessons.stages import Course, LessonState
from apollod.core.schedules import NO_FAILURE, Retry

OUT: frozenset[LessonState] = frozenset({"replaced", "given up"})
"""states of lessons that are no longer valid"""
CURVE_MAX = 50
"""most points kept of a lesson"""
TIER: Tier = "direct"
"""tier of practices"""
OUTSIDE = frozenset({"endpoint", "seeds"})
"""causes that pass by themselves: the call is repeated without limit"""


class Lesson(msgspec.Struct, gc=False):
    """A lesson and its progress."""

    id: str
    given: Given
    by: str
    given_ns: int
    state: LessonState = "waiting"
    reason: str = ""
    """reason for its state, in plain words"""
    told: str = ""
    worded: Worded | None = None
    """None: not worded yet"""
    not_these: tuple[str, ...] = ()
    """answers of lessons that it replaced"""
    replaced_by: str = ""
    before: dict[str, Tally] = {}
    """greedy answers to held-out wordings before the first step, by mode"""
    after: Tally | None = None
    """the same, bare, in the last test"""
    steps: int = 0
    """steps that learned it"""
    practices: int = 0
    """practice wordings used so far, learned or not"""
    budget_from: int = 0
    """its number of steps when the present course began"""
    rounds: int = 0
    """tests so far that could show it to be known"""
    proofs: int = 0
    """tests with sampled answers, which share the error bound"""
    drift: float = 0.0
    """drift over its steps, nats a token"""
    seconds: float = 0.0
    """time under way, in all its courses"""
    examples: list[str] = []
    """the line of which it was made, then its practices, learned or not"""
    example: str = ""
    """the line of which it was made; empty: none"""
    shown: int = 0
    """last weights version that answered it rightly"""
    looked: int = 0
    """number of the last look of the quality guard that included it"""
    last_step: int = 0
    """the last step that learned it"""
    distance: int = 0
    """index of the distance after which it is asked again, in `[lessons] ask_again`"""
    due_ns: int = 0
    """time at which it is asked again; 0: not set"""
    due_step: int = 0
    """weights version at which it is asked again; 0: not set"""
    curve: list[Point] = []
    """results of asking it again, the newest last"""


class LessonsState(msgspec.Struct):
    """All lessons by id, in the order in which they were given."""

    lessons: dict[str, Lesson] = {}
    number: int = 0
    """number of the last lesson"""
    open: Course | None = None
    queue: dict[str, None] = {}
    """ids of lessons that wait for their turn, in order"""
    asked_again: bool = False
    """the last course asked a known lesson again: a lesson of the queue comes next"""
    due: list[tuple[int, int]] = []
    """(time in ns, number) of known lessons to be asked again, sorted"""
    due_steps: list[tuple[int, int]] = []
    """(weights version, number) of the same"""
    by_key: dict[str, str] = {}
    """by key of a question (see `Worded`), the lesson that answers it; not one that was replaced or given up"""
    of_line: dict[str, str] = {}
    """by example of a line, the lesson made of it"""
    offered: dict[str, Given] = {}
    """held examples, with the lesson to make of each once it is approved"""
    replaced: dict[str, str] = {}
    """by example that is no longer right, the lesson that contradicts it (`ExampleReplaced`)"""
    taken_back: dict[str, str] = {}
    """by example, the lesson whose last step was taken back: its steps may be repeated"""
    harmful: dict[str, str] = {}
    """lessons of which an example is held, and why: they are given up"""
    retry: Retry = NO_FAILURE
    """of the call under way"""
    refusals: int = 0
    """failures of that call, without those for want of something outside"""
    error: str = ""
    """why the last call had no usable answer; empty after a usable one"""

    def of_form(self, lesson: Lesson) -> list[Lesson]:
        """Lessons of the same form, itself included: they have the same neighbours. Empty if it has none."""
        near = lesson.worded.neighbours if lesson.worded is not None else ()
        every = self.lessons.values() if near else ()
        return [one for one in every if one.worded is not None and one.worded.neighbours == near]
