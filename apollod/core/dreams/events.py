"""Facts: what is to be learned by dreaming, and what became of each dream."""

from typing import ClassVar, Literal

from apollod.core.dreams.collapse import Dreamt
from apollod.core.dreams.scenario import Sketch, Surfaced, Turn
from apollod.core.judging.votes import Verdict
from apollod.core.kernel.event import Event
from apollod.core.lessons.stages import LessonState
from apollod.core.settings import PatternSettings
from apollod.core.surroundings import NOTHING, Drawn, Surrounding, SurroundingKind

Purpose = Literal["held-out", "practice", "variation", "situation", "contrast"]
"""held-out: imagined before practice began, only ever tested; situation: the same, where the behaviour would be wrong
although nobody says so; contrast: answered and judged under a text that makes the behaviour wrong, and held by the
steps that follow; practice: answered, judged, trained; variation: a new scenario after a practice, only tested."""
LEARNED_FROM: frozenset[Purpose] = frozenset({"practice", "contrast"})
"""purposes of which no scenario may be tested, nor be like one that is"""
Mode = Literal["bare", "contrast", "told", "situation"]
"""How a scenario is answered in its surrounding. bare: without the instruction, which has to show the behaviour; told:
with it; contrast: with a text under which the behaviour would be wrong; situation: without any text, where it would be
wrong."""
WRONG: frozenset[Mode] = frozenset({"contrast", "situation"})
"""modes in which the behaviour must not show"""
Cause = Literal[
    "endpoint", "nonsense", "refused", "cut", "repeats", "held-out", "leak", "echo", "seeds", "check", "teacher"
]
"""Why a call had no usable answer. endpoint: nobody answers in time; nonsense: no scenario, no verdict; refused: this
cannot be asked; cut: the answer did not end; repeats: a scenario that was dreamt already; held-out: one that is kept
apart; leak: it says what should be shown; echo: it is one of its seeds; seeds: they cannot be read; check: the
pattern's check cannot be run; teacher: what the told model says cannot be had."""


class PatternAdded(Event, frozen=True):
    """A behaviour is to be learned; in place of another one of this name, if there is one. `by`: config, or who."""

    kind: ClassVar[str] = "pattern.added"
    pattern: PatternSettings
    by: str

    def key(self) -> str:
        return self.pattern.name


class PatternSettled(Event, frozen=True):
    """The behaviour is shown without being told. `tests`: of the final round, (passed, of how many) by mode;
    `baseline`: the same before the first practice; `around`: `tests` by kind of surrounding; `sampled`: of sampled
    answers, by which the error bound was kept (`core.proof`); `contrast_held_out`: of `tests`, those under texts that
    no practice has; `step`: weights version that was tested."""

    kind: ClassVar[str] = "pattern.settled"
    pattern: str
    step: int
    tests: dict[str, tuple[int, int]]
    baseline: dict[str, tuple[int, int]]
    dreams: int
    practices: int
    tokens: int
    around: dict[str, dict[str, tuple[int, int]]] = {}
    sampled: dict[str, tuple[int, int]] = {}
    contrast_held_out: dict[str, tuple[int, int]] = {}

    def key(self) -> str:
        return self.pattern


class PatternUnsettled(Event, frozen=True):
    """The behaviour is no longer shown, or that is not known: it is dreamt of again. `harmed_by`: the pattern that
    settled before that was found."""

    kind: ClassVar[str] = "pattern.unsettled"
    pattern: str
    reason: str
    harmed_by: str = ""

    def key(self) -> str:
        return self.pattern


class PatternRetired(Event, frozen=True):
    """The pattern is no longer dreamt of: a user said so, it is gone from the configuration, its budget is spent, or it
    contradicts another one."""

    kind: ClassVar[str] = "pattern.retired"
    pattern: str
    by: str
    reason: str

    def key(self) -> str:
        return self.pattern


class DreamRequested(Event, frozen=True):
    """Intent: a scenario is to be imagined. `contrast`: the system message in mode contrast; `of`: the dream that this
    is a variation of; `surrounding`: which one is to stand before it."""

    kind: ClassVar[str] = "dream.requested"
    dream: str
    pattern: str
    purpose: Purpose
    mode: Mode = "bare"
    contrast: str = ""
    of: str = ""
    surrounding: Drawn = Drawn()

    def key(self) -> str:
        return self.dream


class DreamImagined(Event, frozen=True):
    """Result. `seeds`: ids of what it was imagined from, `places`: where that stands; `sketch`: see
    `core.dreams.scenario`; `surrounding`: what stands before it whenever it is answered, `left_out`: why that is of
    another kind than was asked for."""

    kind: ClassVar[str] = "dream.imagined"
    dream: str
    scenario: tuple[Turn, ...]
    sketch: Sketch
    seeds: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    model: str = ""
    prompt_hash: str = ""
    tokens: int = 0
    seconds: float = 0.0
    surrounding: Surrounding = NOTHING
    left_out: str = ""

    def key(self) -> str:
        return self.dream


class DreamAnswered(Event, frozen=True):
    """Result: the served model's answer when it is `told` so in the surrounding of its dream. `logprob`: mean of its
    tokens, natural logarithm, nearer to 0 is surer."""

    kind: ClassVar[str] = "dream.answered"
    dream: str
    told: str
    answer: str
    sketch: Sketch
    logprob: float | None = None
    weights_version: int | None = None
    tokens: int = 0
    seconds: float = 0.0

    def key(self) -> str:
        return self.dream


class DreamJudged(Event, frozen=True):
    """Result: what check or judge say of the answer; `answer`: empty, or the better one that was judged in its place.
    `better`: what should have been answered, which is judged next; `example`: what is learned."""

    kind: ClassVar[str] = "dream.judged"
    dream: str
    verdict: Verdict
    by: str
    reason: str = ""
    quote: str = ""
    answer: str = ""
    better: str | None = None
    example: str = ""
    votes: tuple[Verdict, ...] = ()
    tokens: int = 0
    seconds: float = 0.0

    def key(self) -> str:
        return self.dream


class DreamTrained(Event, frozen=True):
    """The dream's example was learned by `step`."""

    kind: ClassVar[str] = "dream.trained"
    dream: str
    example: str
    step: int

    def key(self) -> str:
        return self.dream


class DreamTested(Event, frozen=True):
    """Result: the scenario was answered and judged, and nothing is learned of it. `round`: empty for a variation, or
    which round over the held-out scenarios: `baseline`, `shown`, `final 12`, `recheck 3`, `bootstrap 1`.
    `surrounding`: what kind of it. `sample`: 0: of the most likely answer; n: of the nth that was sampled in this mode
    and round."""

    kind: ClassVar[str] = "dream.tested"
    dream: str
    pattern: str
    mode: Mode
    passed: bool
    answer: str
    by: str
    round: str = ""
    contrast: str = ""
    reason: str = ""
    logprob: float | None = None
    weights_version: int | None = None
    tokens: int = 0
    seconds: float = 0.0
    surrounding: SurroundingKind = "none"
    sample: int = 0

    def key(self) -> str:
        return self.dream


class DreamSettled(Event, frozen=True):
    """The dream is complete: a held-out scenario is kept, an answer in contrast is good, a practice was learned, a
    variation was tested."""

    kind: ClassVar[str] = "dream.settled"
    dream: str

    def key(self) -> str:
        return self.dream


class DreamAbandoned(Event, frozen=True):
    """The dream ended early; what was learned of it stays learned."""

    kind: ClassVar[str] = "dream.abandoned"
    dream: str
    reason: str

    def key(self) -> str:
        return self.dream


class DreamFailed(Event, frozen=True):
    """Result: a call for this dream had no usable answer. It is made again, not before `retry_s` are over."""

    kind: ClassVar[str] = "dream.failed"
    dream: str
    stage: str
    attempt: int
    cause: Cause
    reason: str
    retry_s: float = 0.0
    tokens: int = 0

    def key(self) -> str:
        return self.dream


class DreamingStarted(Event, frozen=True):
    """A user started dreams, whatever the schedule says. `pattern`: of this one only; `count`: so many practices; 0:
    until everything is settled."""

    kind: ClassVar[str] = "dreaming.started"
    by: str
    pattern: str = ""
    count: int = 0


class DreamingStopped(Event, frozen=True):
    """No further dream begins, and the one under way waits, until a user starts them again. `finished`: only what
    somebody had wanted is over; the schedule goes on."""

    kind: ClassVar[str] = "dreaming.stopped"
    by: str
    reason: str
    finished: bool = False


class PatternCarried(Event, frozen=True):
    """The state of a pattern at the end of the journal's archive, where no event that was taken over says it; see the
    fields of `Course`."""

    kind: ClassVar[str] = "pattern.carried"
    pattern: str
    dreams: int
    practices: int
    tokens: int
    misses: int = 0
    missed: str = ""
    baseline: dict[str, tuple[int, int]] = {}
    final: dict[str, tuple[int, int]] = {}
    weak: tuple[str, ...] = ()
    owed: str = ""
    bare: tuple[bool, ...] = ()
    contrast: tuple[tuple[str, bool], ...] = ()
    last_seeds: tuple[str, ...] = ()
    lately: tuple[tuple[Turn, ...], ...] = ()
    settled_at: int = 0
    taken_back: bool = False
    rechecked: int = 0
    harmed_by: dict[str, int] = {}
    recent: tuple[Dreamt, ...] = ()
    earliest: tuple[Dreamt, ...] = ()
    days: int = 0
    day: int = -1
    before: tuple[int, int, int] = (0, 0, 0)
    baseline_around: dict[str, dict[str, tuple[int, int]]] = {}
    final_around: dict[str, dict[str, tuple[int, int]]] = {}
    left_out: dict[str, str] = {}
    sampled: dict[str, tuple[int, int]] = {}
    proofs: int = 0
    failed: bool = False
    contrast_held_out: dict[str, tuple[int, int]] = {}
    bootstraps: int = 0
    due: str = ""
    no_situations: str = ""
    state: LessonState | Literal[""] = ""
    """empty: as the events say that were taken over"""
    examples: tuple[str, ...] = ()
    surfaced: dict[str, Surfaced] = {}
    contrasted: dict[str, int] = {}
    shown_under: dict[str, int] = {}

    def key(self) -> str:
        return self.pattern


class ScenariosCarried(Event, frozen=True):
    """Scenarios in the journal's archive that were practised, which are not tested, and that varied practised ones,
    which are not practised. Held-out ones are taken over whole."""

    kind: ClassVar[str] = "scenario.carried"
    pattern: str
    practised: tuple[Sketch, ...] = ()
    varied: tuple[Sketch, ...] = ()

    def key(self) -> str:
        return self.pattern


class DreamingCarried(Event, frozen=True):
    """At the end of the journal's archive: the `number` of the last dream, its day (counted from 1970, UTC) and how
    many were of that day, whose `turn` it was, how many patterns had settled, which was the last one; and of the last
    learned examples, were they dreamt."""

    kind: ClassVar[str] = "dreaming.carried"
    number: int
    turn: str = ""
    settlings: int = 0
    last_settled: str = ""
    learned: tuple[bool, ...] = ()
    day: int = 0
    of_day: int = 0


class EngineBusy(Event, frozen=True):
    """A user uses the engine: dreams wait."""

    kind: ClassVar[str] = "engine.busy"
    reason: str = ""


class EngineIdle(Event, frozen=True):
    """No user used the engine for `seconds`."""

    kind: ClassVar[str] = "engine.idle"
    seconds: float
