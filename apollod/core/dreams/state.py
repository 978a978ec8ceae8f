"""The state of dreams: the patterns, how far each one is, and the dream under way."""

import msgspec

from apollod.core.dreams.collapse import Dreamt
from apollod.core.dreams.events import Mode, Purpose
from apollod.core.dreams.machine import Stage
from apollod.core.dreams.scenario import Sketch, Surfaced, Turn
from apollod.core.lessons.kinds import PHASES, Phase, behaviour_after
from apollod.core.lessons.stages import LessonState
from apollod.core.schedules import NO_FAILURE, Retry
from apollod.core.settings import PatternSettings
from apollod.core.surroundings import NOTHING, Drawn, Surrounding, SurroundingKind

KEPT = 1000
"""sketches of each sort that are kept of a pattern"""
RECENT = 20
"""dreams over which a collapse shows"""
OUTSIDE = frozenset({"endpoint", "seeds"})
"""causes that pass by themselves: what is asked then is asked again for as long as it takes"""
NOBODY = "apollod"
"""by whom a test that could not be made is not passed"""
SHARE_SPAN = 200
"""learned examples of which the share of dreams is taken"""

BOOTSTRAP_ROUND = "bootstrap"
Tests = dict[str, tuple[int, int]]
"""(passed, of how many) by mode"""
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
    """False: nobody could make it, which is not passed"""
    surrounding: SurroundingKind = "none"
    sample: int = 0
    """0: of the most likely answer; n: of the nth that was sampled"""


class Course(msgspec.Struct):
    """A pattern and how far it is."""

    pattern: PatternSettings
    by: str
    since_ns: int
    state: LessonState = "waiting"
    reason: str = ""
    """of its state, in people's words"""
    moved_ns: int = 0
    """when it was settled, unsettled or retired last; 0: never"""
    held: dict[str, HeldOut] = {}
    """by their dreams"""
    situations: dict[str, HeldOut] = {}
    """the same, in which it would be wrong"""
    no_situations: str = ""
    """why no more of them are imagined"""
    practised: list[Sketch] = []
    varied: list[Sketch] = []
    last_seeds: tuple[str, ...] = ()
    surfaced: dict[str, Surfaced] = {}
    """by seed, those that were used last at the end"""
    lately: list[tuple[Turn, ...]] = []
    """the last few practised scenarios, which the next one should not repeat"""
    bare: list[bool] = []
    """tests of variations since practice began, or since a final round failed, as many as count; the newest last"""
    contrast: list[tuple[str, bool]] = []
    """the same, with the contrast text; as many of each as count"""
    round: str = ""
    """the last round that a test was made of"""
    tried: list[Tried] = []
    """its tests"""
    baseline: Tests = {}
    final: Tests = {}
    """of the last final round or recheck that is complete, where nothing was sampled"""
    sampled: Tests = {}
    """of its sampled answers, if it came to those"""
    proofs: int = 0
    """rounds that came to sampled answers, which the error bound takes together"""
    baseline_around: TestsAround = {}
    final_around: TestsAround = {}
    left_out: dict[str, str] = {}
    """kinds of surrounding that the last dream could not have for which they were wanted, and why"""
    contrast_held_out: Tests = {}
    """of `final`, under contrast texts that no practice has"""
    failed: bool = False
    """too few of it passed"""
    weak: tuple[str, ...] = ()
    """contrast texts that failed in it"""
    shown_under: dict[str, int] = {}
    """final rounds in a row in which it showed each time, by contrast text that no practice has"""
    bootstraps: int = 0
    """bootstraps of logs that taught it"""
    due: str = ""
    """the round that tests what the last one of them taught; empty: it is made"""
    contrasted: dict[str, int] = {}
    """good answers in contrast, by the contrast text, since the patterns changed"""
    owed: str = ""
    """the practice after which no variation was tested yet"""
    dreams: int = 0
    practices: int = 0
    tokens: int = 0
    days: int = 0
    """on which it was dreamt of: neither a clock that is put forward or back nor a daemon that is off spends many"""
    day: int = -1
    """the last one, counted from 1970 (UTC)"""
    before: tuple[int, int, int] = (0, 0, 0)
    """practices, tokens and days when it was unsettled the last time: its budget begins anew then"""
    misses: int = 0
    """dreams that were abandoned in a row"""
    missed: str = ""
    """why, the last one"""
    settled_at: int = 0
    """weights version"""
    taken_back: bool = False
    """the weights with which it was settled were rolled back"""
    rechecked: int = 0
    """how many patterns had settled when this one was last tested on its held-out scenarios"""
    harmed_by: dict[str, int] = {}
    """how often each other pattern unsettled it"""
    recent: list[Dreamt] = []
    earliest: list[Dreamt] = []
    examples: list[str] = []
    """of practices under its name, learned or not"""

    @property
    def phase(self) -> Phase:
        """Its state as `apollod ctl pattern` has it."""
        return PHASES[self.state]

    def move(self, event: str, at_ns: int, reason: str) -> None:
        """It was settled, unsettled or retired: `event` is the kind."""
        self.state, self.moved_ns, self.reason = behaviour_after(self.state, event), at_ns, reason

    def replaced(self) -> "Course":
        """The part of it that is remembered once another definition has its name."""
        return Course(
            self.pattern, self.by, self.since_ns, state="replaced", baseline=self.baseline, final=self.final,
            practices=self.practices,
        )  # fmt: skip

    @property
    def apart(self) -> dict[str, HeldOut]:
        """All that is only ever tested, by its dream."""
        return self.held | self.situations

    @property
    def taught(self) -> bool:
        """Did any practice or bootstrap teach it?"""
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
    """the surrounding that is wanted for it"""
    surrounding: Surrounding = NOTHING
    """what stands before it"""
    stage: Stage = Stage.IMAGINING
    scenario: tuple[Turn, ...] = ()
    sketch: Sketch | None = None
    told: str = ""
    """all that the model was told when it answered"""
    answer: str = ""
    answer_sketch: Sketch | None = None
    logprob: float | None = None
    example: str = ""
    seeds: tuple[str, ...] = ()
    loss: float | None = None
    """of its example in the step that learned it, nats a token"""


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
    """of the last one, counted from 1970 (UTC)"""
    of_day: int = 0
    """dreams of that day"""
    turn: str = ""
    """the pattern that was dreamt of last"""
    settlings: int = 0
    """patterns that settled so far, counted each time"""
    last_settled: str = ""
    at_rest: bool = True
    """nothing follows from any of them until somebody says so or weights are taken back: kept, since it is asked after
    every input"""
    holds: bool = False
    """do steps hold something? Then contrasts come before what would make a behaviour show under them"""
    judged: bool = False
    """is the judge needed for any of them?"""
    wanted: Wanted | None = None
    stopped: str = ""
    """why no dream begins until somebody says so; empty: they may"""
    users: bool = True
    """others use the engine, or nobody knows"""
    users_reason: str = ""
    retry: Retry = NO_FAILURE
    """of the call under way"""
    refusals: int = 0
    """failures of that call, without those for want of something outside"""
    error: str = ""
    """why the last call had no usable answer; empty after one that had"""
    learned: list[bool] = []
    """of the last SHARE_SPAN learned examples: was it dreamt?"""
    replaced: dict[str, list[Course]] = {}
    """definitions that another one took the name of, with what was tested of them, the newest last"""

    def practises(self, example: str) -> bool:
        """True if the example is the practice under way."""
        return self.open is not None and self.open.example == example

    @property
    def awaits_idle(self) -> bool:
        """True if any work waits for others to leave the engine alone."""
        return not self.stopped and self.wanted is None and (self.open is not None or not self.at_rest)

    @property
    def definitions(self) -> list[Course]:
        """All that were given: those that another one took the name of, then those that stand."""
        return [*(old for olds in self.replaced.values() for old in olds), *self.courses.values()]

    @property
    def patterns_active(self) -> bool:
        """True if there is anything to dream of."""
        return any(one.phase != "retired" for one in self.courses.values())
