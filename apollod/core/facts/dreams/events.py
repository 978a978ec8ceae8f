"""Events: patterns to learn by dreaming, and the course of each dream."""

from typing import ClassVar, Literal

from apollod.core.facts.dreams.scenario import Dreamt, Sketch, Surfaced, Turn
from apollod.core.facts.judging.events import Verdict
from apollod.core.facts.lessons.stages import LessonState
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.kernel.reasons import Cause
from apollod.core.settings import PatternSettings
from apollod.core.surroundings import NOTHING, Drawn, Surrounding, SurroundingKind

Purpose = Literal["held-out", "practice", "variation", "situation", "contrast"]
"""held-out: imagined before practice began, only ever tested; situation: the same, where the behaviour would be wrong
although no message says so; contrast: answered and judged under a text that makes the behaviour wrong, and held by the
steps that follow; practice: answered, judged, trained; variation: a new scenario after a practice, only tested."""
LEARNED_FROM: frozenset[Purpose] = frozenset({"practice", "contrast"})
"""purposes whose scenarios may neither be tested nor resemble a tested one"""
Mode = Literal["bare", "contrast", "told", "situation"]
"""Way of answering a scenario in its surrounding. bare: without the instruction; the answer has to show the behaviour;
told: with it; contrast: with a text under which the behaviour would be wrong; situation: without any text, where it
would be wrong."""
WRONG: frozenset[Mode] = frozenset({"contrast", "situation"})
"""modes in which the behaviour must not show"""


class PatternEvent(Event, frozen=True):
    """Base of events about one pattern, by its name."""

    pattern: str

    def key(self) -> str:
        return self.pattern


class DreamEvent(Event, frozen=True):
    """Base of events about one dream."""

    dream: str

    def key(self) -> str:
        return self.dream


class PatternAdded(Event, frozen=True):
    """A behaviour is to be learned, in place of an earlier one of this name. `by`: config, or the user."""

    kind: ClassVar[str] = "pattern.added"
    pattern: PatternSettings
    by: str

    def key(self) -> str:
        return self.pattern.name


class PatternSettled(PatternEvent, frozen=True):
    """The behaviour is shown without being told. `tests`: results of the final round, (passed, count) by mode;
    `baseline`: the same before the first practice; `around`: `tests` by kind of surrounding; `sampled`: results of
    sampled answers, which keep the error bound (`core.proof`); `contrast_held_out`: the part of `tests` under held-out
    contrast texts; `step`: tested weights version."""

    kind: ClassVar[str] = "pattern.settled"
    step: int
    tests: dict[str, tuple[int, int]]
    baseline: dict[str, tuple[int, int]]
    dreams: int
    practices: int
    tokens: int
    around: dict[str, dict[str, tuple[int, int]]] = {}
    sampled: dict[str, tuple[int, int]] = {}
    contrast_held_out: dict[str, tuple[int, int]] = {}


class PatternUnsettled(PatternEvent, frozen=True):
    """The behaviour is no longer shown, or not known to be: it is dreamt of again. `harmed_by`: the pattern that
    settled just before."""

    kind: ClassVar[str] = "pattern.unsettled"
    reason: str
    harmed_by: str = ""


class PatternRetired(PatternEvent, frozen=True):
    """The pattern is no longer dreamt of: by a user's request, because it is gone from the configuration, its budget is
    spent, or it contradicts another one."""

    kind: ClassVar[str] = "pattern.retired"
    by: str
    reason: str


class DreamRequested(DreamEvent, frozen=True):
    """Intent: a scenario is to be imagined. `contrast`: the system message in mode contrast; `of`: the dream that this
    one varies; `surrounding`: the wanted one."""

    kind: ClassVar[str] = "dream.requested"
    pattern: str
    purpose: Purpose
    mode: Mode = "bare"
    contrast: str = ""
    of: str = ""
    surrounding: Drawn = Drawn()


class DreamImagined(DreamEvent, frozen=True):
    """Result. `seeds`: ids of its seeds, `places`: their locations; `sketch`: see `core.facts.dreams.scenario`;
    `surrounding`: context before it whenever it is answered, `left_out`: why its kind is not the wanted one."""

    kind: ClassVar[str] = "dream.imagined"
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


class DreamAnswered(DreamEvent, Input, frozen=True):
    """Result: the served model's answer when `told` this in the surrounding of the dream. `logprob`: mean natural
    log-probability of its tokens."""

    kind: ClassVar[str] = "dream.answered"
    told: str
    answer: str
    sketch: Sketch
    logprob: float | None = None
    weights_version: int | None = None
    tokens: int = 0
    seconds: float = 0.0


class DreamJudged(DreamEvent, frozen=True):
    """Result: verdict of check or judge on the answer; `answer`: empty, or the better one that was judged in its place.
    `better`: a better answer, which is judged next; `example`: the one to learn."""

    kind: ClassVar[str] = "dream.judged"
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


class DreamTrained(DreamEvent, frozen=True):
    """The dream's example was learned by `step`."""

    kind: ClassVar[str] = "dream.trained"
    example: str
    step: int


class DreamTested(DreamEvent, Input, frozen=True):
    """Result: the scenario was answered and judged, and nothing is learned of it. `round`: empty for a variation, or
    the round over the held-out scenarios: `baseline`, `shown`, `final 12`, `recheck 3`, `bootstrap 1`. `surrounding`:
    its kind. `sample`: 0: the most likely answer; n: the nth sampled one in this mode and round."""

    kind: ClassVar[str] = "dream.tested"
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


class DreamSettled(DreamEvent, frozen=True):
    """The dream is complete: a held-out scenario is kept, an answer in contrast is good, a practice was learned, a
    variation was tested."""

    kind: ClassVar[str] = "dream.settled"


class DreamAbandoned(DreamEvent, frozen=True):
    """The dream ended early; an example already learned from it stays learned."""

    kind: ClassVar[str] = "dream.abandoned"
    reason: str


class DreamFailed(DreamEvent, frozen=True):
    """Result: a call for this dream had no usable answer. It is made again after `retry_s` at the earliest."""

    kind: ClassVar[str] = "dream.failed"
    stage: str
    attempt: int
    cause: Cause
    reason: str
    retry_s: float = 0.0
    tokens: int = 0


class DreamingStarted(Event, Input, frozen=True):
    """A user started dreams, regardless of the schedule. `pattern`: only this one; `count`: number of practices; 0:
    until everything is settled."""

    kind: ClassVar[str] = "dreaming.started"
    by: str
    pattern: str = ""
    count: int = 0


class DreamingStopped(Event, Input, frozen=True):
    """No further dream begins, and the one under way waits, until a user starts dreaming again. `finished`: only the
    requested dreams are over; the schedule goes on."""

    kind: ClassVar[str] = "dreaming.stopped"
    by: str
    reason: str
    finished: bool = False


class PatternCarried(PatternEvent, frozen=True):
    """State of a pattern at the end of the journal's archive, as far as no other event that was taken over holds it;
    see the fields of `Course`."""

    kind: ClassVar[str] = "pattern.carried"
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
    """empty: as the taken over events imply"""
    examples: tuple[str, ...] = ()
    surfaced: dict[str, Surfaced] = {}
    contrasted: dict[str, int] = {}
    shown_under: dict[str, int] = {}


class ScenariosCarried(PatternEvent, frozen=True):
    """Scenarios of the journal's archive: practised ones, which are never tested, and variations, which are never
    practised. Held-out ones are taken over whole."""

    kind: ClassVar[str] = "scenario.carried"
    practised: tuple[Sketch, ...] = ()
    varied: tuple[Sketch, ...] = ()


class DreamingCarried(Event, frozen=True):
    """At the end of the journal's archive: the `number` of the last dream, its day (counted from 1970, UTC) and the
    number of dreams on that day, the pattern whose `turn` it was, the count of settlements and the last settled
    pattern; `learned`: for the last learned examples, true if dreamt."""

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
