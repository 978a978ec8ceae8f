"""State: all lessons, and the one under way."""

import msgspec

from apollod.core.intake.events import Tier
from apollod.core.lessons.events import Point, Tally
from apollod.core.lessons.open_course import Course
from apollod.core.lessons.stages import LessonState
from apollod.core.lessons.wording import Given, Worded
from apollod.core.schedules import NO_FAILURE, Retry

OUT: frozenset[LessonState] = frozenset({"replaced", "given up"})
"""of lessons that say nothing any more"""
CURVE_MAX = 50
"""points that are kept of a lesson"""
TIER: Tier = "direct"
"""of practices"""
OUTSIDE = frozenset({"endpoint", "seeds"})
"""causes that pass by themselves: what is asked then is asked again for as long as it takes"""
CARRIED = (
    "state", "reason", "not_these", "replaced_by", "after", "steps", "practices", "budget_from", "rounds", "proofs",
    "drift", "seconds", "last_step", "distance", "due_ns", "due_step", "shown", "looked",
)  # fmt: skip
"""fields that an archive's successor takes over as they are (`LessonCarried`)"""


class Lesson(msgspec.Struct, gc=False):
    """A lesson and how far it is."""

    id: str
    given: Given
    by: str
    given_ns: int
    state: LessonState = "waiting"
    reason: str = ""
    """of its state, in people's words"""
    told: str = ""
    worded: Worded | None = None
    """None: it was not worded yet"""
    not_these: tuple[str, ...] = ()
    """answers of lessons that it replaced"""
    replaced_by: str = ""
    before: dict[str, Tally] = {}
    """greedy answers to held-out wordings before the first step, by mode"""
    after: Tally | None = None
    """the same, bare, when it was tested last"""
    steps: int = 0
    """that learned it"""
    practices: int = 0
    """practice wordings whose turn it was, learned or not"""
    budget_from: int = 0
    """steps when its course began"""
    rounds: int = 0
    """of asking that could show it"""
    proofs: int = 0
    """rounds in which sampled answers were asked for, which the error bound takes together"""
    drift: float = 0.0
    """nats a token, over its steps"""
    seconds: float = 0.0
    """under way, in all its courses"""
    examples: list[str] = []
    """of its practices, learned or not, after the line of which it was made"""
    example: str = ""
    """that line, if it was made of one"""
    shown: int = 0
    """weights version that answered it rightly last"""
    looked: int = 0
    """number of the last look of the quality guard that asked it"""
    last_step: int = 0
    """the last step that learned it"""
    distance: int = 0
    """index of the distance after which it is asked again, in `[lessons] ask_again`"""
    due_ns: int = 0
    """when it is asked again; 0: no time is set"""
    due_step: int = 0
    """weights version at which it is; 0: none"""
    curve: list[Point] = []
    """of being asked again, the newest last"""


class LessonsState(msgspec.Struct):
    """All lessons by id, in the order in which they were given."""

    lessons: dict[str, Lesson] = {}
    number: int = 0
    """of the last one"""
    open: Course | None = None
    queue: dict[str, None] = {}
    """ids of those that wait for their turn, in order"""
    asked_again: bool = False
    """the last one under way was a known lesson: then a lesson of the queue comes first"""
    due: list[tuple[int, int]] = []
    """(time in ns, number) of known lessons that are asked again, sorted"""
    due_steps: list[tuple[int, int]] = []
    """(weights version, number) of the same"""
    by_key: dict[str, str] = {}
    """the lesson that answers a question, by the question's key, see `Worded`; those that were replaced or given up
    answer none"""
    of_line: dict[str, str] = {}
    """the lesson that was made of a line, by the line's example"""
    offered: dict[str, Given] = {}
    """held examples of which a lesson is made once they are approved"""
    replaced: dict[str, str] = {}
    """lessons by the examples that are wrong since they were given (`ExampleReplaced`)"""
    taken_back: dict[str, str] = {}
    """lessons whose last step was taken back, by their examples: steps may be repeated"""
    harmful: dict[str, str] = {}
    """lessons of which an example is held, and why: they are given up"""
    retry: Retry = NO_FAILURE
    """of the call under way"""
    refusals: int = 0
    """failures of that call, without those for want of something outside"""
    error: str = ""
    """why the last call had no usable answer; empty after one that had"""

    def of_form(self, lesson: Lesson) -> list[Lesson]:
        """The lessons of the same form, itself among them: they have the same neighbours. Empty where it has none."""
        near = lesson.worded.neighbours if lesson.worded is not None else ()
        every = self.lessons.values() if near else ()
        return [one for one in every if one.worded is not None and one.worded.neighbours == near]
