"""The state of dreams: the patterns, their progress, and the dream under way."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from apollod.core.facts.dreams.events import Mode, Purpose
from apollod.core.facts.dreams.scenario import Dreamt, Sketch, Surfaced, Turn
from apollod.core.facts.lessons.stages import PHASES, LessonState, Phase, behaviour_after
from apollod.core.schedules import NO_FAILURE, Retry
from apollod.core.settings import PatternSettings
from apollod.core.surroundings import NOTHING, Drawn, Surrounding, SurroundingKind


class Stage(StrEnum):
    """The stage of a dream."""

    IMAGINING = "imagining"
    ANSWERING = "answering"
    JUDGING = "judging"
    JUDGING_BETTER = "judging better"
    """judging the answer written in place of a bad one"""
    LEARNING = "learning"
    """its example waits for its step"""
    TESTING = "testing"
    TESTING_CONTRAST = "testing contrast"
    OVER = "over"


CALLS = frozenset(Stage) - {Stage.LEARNING, Stage.OVER}

TRANSITIONS: Mapping[tuple[Purpose, Stage, str], Stage] = {
    ("held-out", Stage.IMAGINING, "imagined"): Stage.OVER,
    ("situation", Stage.IMAGINING, "imagined"): Stage.OVER,
    ("practice", Stage.IMAGINING, "imagined"): Stage.ANSWERING,
    ("practice", Stage.ANSWERING, "answered"): Stage.JUDGING,
    ("practice", Stage.JUDGING, "good"): Stage.LEARNING,
    ("practice", Stage.JUDGING, "bettered"): Stage.JUDGING_BETTER,
    ("practice", Stage.JUDGING_BETTER, "good"): Stage.LEARNING,
    ("practice", Stage.LEARNING, "trained"): Stage.OVER,
    ("contrast", Stage.IMAGINING, "imagined"): Stage.ANSWERING,
    ("contrast", Stage.ANSWERING, "answered"): Stage.JUDGING,
    ("contrast", Stage.JUDGING, "good"): Stage.OVER,
    ("variation", Stage.IMAGINING, "imagined"): Stage.TESTING,
    ("variation", Stage.TESTING, "tested"): Stage.TESTING_CONTRAST,
    ("variation", Stage.TESTING_CONTRAST, "tested"): Stage.OVER,
}
"""(purpose, stage, happening) -> stage. A dream is abandoned if its key is missing, for example after a verdict that is
neither good nor with a better answer."""


def after(purpose: Purpose, stage: Stage, happened: str) -> Stage | None:
    """The next stage; None: the dream is abandoned."""
    return TRANSITIONS.get((purpose, stage, happened))


KEPT = 1000
"""most sketches of each sort kept for a pattern"""
RECENT = 20
"""number of dreams searched for a collapse"""
OUTSIDE = frozenset({"endpoint", "seeds"})
"""causes that pass by themselves: the call is repeated without limit"""
NOBODY = "apollod"
"""value of `by` for a test that could not be made, and so failed"""
SHARE_SPAN = 200
"""number of last learned examples over which the share of dreams is taken"""

BOOTSTRAP_ROUND = "bootstrap"
Tests = dict[str, tuple[int, int]]
"""(passed, count) by mode"""
TestsAround = dict[str, Tests]
"""the same by kind of surrounding"""


class HeldOut(msgspec.Struct, frozen=True):
    """A scenario that is only ever tested."""

    scenario: tuple[Turn, ...]
    sketch: Sketch
    surrounding: Surrounding = NOTHING


class Tried(msgspec.Struct, frozen=True):
    """One test of a round over the held-out scenarios."""

    dream: str
    mode: Mode
    contrast: str
    passed: bool
    made: bool = True
    """False: it could not be made, which counts as failed"""
    surrounding: SurroundingKind = "none"
    sample: int = 0
    """0: the most likely answer; n: the nth sampled one"""


class Course(msgspec.Struct):
    """A pattern and its progress."""

    pattern: PatternSettings
    by: str
    since_ns: int
    state: LessonState = "waiting"
    reason: str = ""
    """reason for its state, in plain words"""
    moved_ns: int = 0
    """time at which it was last settled, unsettled or retired; 0: never"""
    held: dict[str, HeldOut] = {}
    """held-out scenarios by dream"""
    situations: dict[str, HeldOut] = {}
    """the same, where the behaviour would be wrong"""
    no_situations: str = ""
    """why no more of them are imagined"""
    practised: list[Sketch] = []
    varied: list[Sketch] = []
    last_seeds: tuple[str, ...] = ()
    surfaced: dict[str, Surfaced] = {}
    """by seed, the last used ones at the end"""
    lately: list[tuple[Turn, ...]] = []
    """the last few practised scenarios, which the next one should not repeat"""
    bare: list[bool] = []
    """results of variations since practice began, or since a final round failed, as many as count; the newest last"""
    contrast: list[tuple[str, bool]] = []
    """the same, with the contrast text; as many of each as count"""
    round: str = ""
    """the round of the last test"""
    tried: list[Tried] = []
    """its tests"""
    baseline: Tests = {}
    final: Tests = {}
    """results of the last complete final round or recheck, without sampled answers"""
    sampled: Tests = {}
    """results of its sampled answers, if there were any"""
    proofs: int = 0
    """rounds with sampled answers, which share the error bound"""
    baseline_around: TestsAround = {}
    final_around: TestsAround = {}
    left_out: dict[str, str] = {}
    """kinds of surrounding that a dream wanted and last could not have: reason by kind"""
    contrast_held_out: Tests = {}
    """part of `final` under held-out contrast texts"""
    failed: bool = False
    """too few tests of `final` passed"""
    weak: tuple[str, ...] = ()
    """contrast texts that failed in `final`"""
    shown_under: dict[str, int] = {}
    """by held-out contrast text, consecutive final rounds in which the behaviour showed in every test"""
    bootstraps: int = 0
    """number of bootstraps of logs that taught it"""
    due: str = ""
    """the round that tests the last bootstrap; empty: made already"""
    contrasted: dict[str, int] = {}
    """good answers in contrast by contrast text, since the patterns last changed"""
    owed: str = ""
    """the practice whose variation was not tested yet"""
    dreams: int = 0
    practices: int = 0
    tokens: int = 0
    days: int = 0
    """number of days on which it was dreamt of; neither a changed clock nor a daemon that is off uses up many"""
    day: int = -1
    """the last one, counted from 1970 (UTC)"""
    before: tuple[int, int, int] = (0, 0, 0)
    """practices, tokens and days when it was last unsettled: its budget begins anew then"""
    misses: int = 0
    """dreams abandoned in a row"""
    missed: str = ""
    """why the last one was abandoned"""
    settled_at: int = 0
    """weights version at which it was settled"""
    taken_back: bool = False
    """the weights with which it was settled were rolled back"""
    rechecked: int = 0
    """total number of settlements when this one was last tested on its held-out scenarios"""
    harmed_by: dict[str, int] = {}
    """number of times that each other pattern unsettled it"""
    recent: list[Dreamt] = []
    earliest: list[Dreamt] = []
    examples: list[str] = []
    """examples of practices under its name, learned or not"""

    @property
    def phase(self) -> Phase:
        """Its state, as shown by `apollod ctl pattern`."""
        return PHASES[self.state]

    def move(self, event: str, at_ns: int, reason: str) -> None:
        """Settle, unsettle or retire it, by the kind of `event`."""
        self.state, self.moved_ns, self.reason = behaviour_after(self.state, event), at_ns, reason

    def replaced(self) -> "Course":
        """The part to remember once another definition takes its name."""
        return Course(
            self.pattern, self.by, self.since_ns, state="replaced", baseline=self.baseline, final=self.final,
            practices=self.practices,
        )  # fmt: skip

    @property
    def apart(self) -> dict[str, HeldOut]:
        """All scenarios that are only tested, by dream."""
        return self.held | self.situations

    @property
    def taught(self) -> bool:
        """True if a practice or bootstrap taught it."""
        return bool(self.practices or self.bootstraps)


class Dream(msgspec.Struct):
    """The dream under way."""

    id: str
    pattern: str
    purpose: Purpose
    mode: Mode
    contrast: str
    of: str
    drawn: Drawn = Drawn()
    """the surrounding wanted for it"""
    surrounding: Surrounding = NOTHING
    """context before it"""
    stage: Stage = Stage.IMAGINING
    scenario: tuple[Turn, ...] = ()
    sketch: Sketch | None = None
    told: str = ""
    """text that the model was told when it answered"""
    answer: str = ""
    answer_sketch: Sketch | None = None
    logprob: float | None = None
    example: str = ""
    seeds: tuple[str, ...] = ()
    loss: float | None = None
    """loss of its example in the step that learned it, nats a token"""


class Wanted(msgspec.Struct):
    """Dreams that a user requested. `left`: practices; 0: until everything is settled."""

    pattern: str
    left: int


class DreamsState(msgspec.Struct):
    """Patterns by name, in the order in which they were added."""

    courses: dict[str, Course] = {}
    open: Dream | None = None
    number: int = 0
    """dreams so far"""
    day: int = 0
    """day of the last dream, counted from 1970 (UTC)"""
    of_day: int = 0
    """number of dreams on that day"""
    turn: str = ""
    """the pattern dreamt of last"""
    settlings: int = 0
    """number of settlements so far, repeated ones included"""
    last_settled: str = ""
    at_rest: bool = True
    """no pattern needs anything until a user acts or weights are taken back; stored, since it is read after every
    input"""
    holds: bool = False
    """steps hold answers; contrasts then come before practices that might make a behaviour show under them"""
    judged: bool = False
    """a pattern needs the judge"""
    wanted: Wanted | None = None
    stopped: str = ""
    """why no dream begins until a user starts dreaming; empty: not stopped"""
    users: bool = True
    """others use the engine, or it is not known"""
    users_reason: str = ""
    retry: Retry = NO_FAILURE
    """of the call under way"""
    refusals: int = 0
    """failures of that call, without those for want of something outside"""
    error: str = ""
    """why the last call had no usable answer; empty after a usable one"""
    learned: list[bool] = []
    """for each of the last SHARE_SPAN learned examples, true if it was dreamt"""
    replaced: dict[str, list[Course]] = {}
    """definitions whose name another one took, with their test results, the newest last"""

    def practises(self, example: str) -> bool:
        """True if the example is the practice under way."""
        return self.open is not None and self.open.example == example

    @property
    def awaits_idle(self) -> bool:
        """True if work waits for other users to leave the engine."""
        return not self.stopped and self.wanted is None and (self.open is not None or not self.at_rest)

    @property
    def definitions(self) -> list[Course]:
        """All definitions: replaced ones, then those in force."""
        return [*(old for olds in self.replaced.values() for old in olds), *self.courses.values()]

    @property
    def patterns_active(self) -> bool:
        """True if there is a pattern to dream of."""
        return any(one.phase != "retired" for one in self.courses.values())


def surface(course: Course, seeds: Iterable[str]) -> None:
    """Count a dream imagined from these seeds. Beyond KEPT seeds, those unused for longest are forgotten."""
    for seed in seeds:
        served = course.surfaced.pop(seed, Surfaced())
        course.surfaced[seed] = replace(served, times=served.times + 1)
    for seed in list(course.surfaced)[: max(0, len(course.surfaced) - KEPT)]:
        del course.surfaced[seed]


def teach(course: Course, dream: Dream) -> None:
    """Credit the seeds of a learned dream with its loss."""
    for seed in dream.seeds:
        if dream.loss is not None and (served := course.surfaced.get(seed)) is not None:
            learned = replace(served, learned=served.learned + 1, taught=served.taught + dream.loss)
            course.surfaced[seed] = learned
