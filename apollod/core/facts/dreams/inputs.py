"""Inputs: answers to the calls of dreams, requests of people, users coming to and leaving the engine."""

from apollod.core.facts.dreams.events import DreamImagined, DreamJudged, Mode
from apollod.core.facts.intake.inputs import Line
from apollod.core.facts.judging import JudgeConfigured
from apollod.core.kernel.input import Input
from apollod.core.kernel.reasons import Cause
from apollod.core.settings import PatternSettings


class ScenarioImagined(Input, frozen=True):
    """Answers `ImagineScenario`. `imagined`: the event, if the scenario is accepted; `leak`, `echo`: why it cannot be
    learned from; empty: it can."""

    imagined: DreamImagined
    leak: str = ""
    echo: str = ""


class DreamVerdict(Input, frozen=True):
    """Answers `JudgeDream`. `judged`: the event, with the better answer if one was written; `line`: the record to learn
    if it is good; `known`: the journal holds it already; `teacher`: see `ExampleAccepted`."""

    judged: DreamJudged
    stage: str
    line: Line | None = None
    known: bool = False
    teacher: str = ""


class DreamCallFailed(Input, frozen=True):
    """A call failed, or its answer is unusable. `retry_after_s`: wait that the endpoint requests; `case`: mode and
    sample of a test."""

    dream: str
    stage: str
    attempt: int
    cause: Cause
    reason: str
    retry_after_s: float = 0.0
    tokens: int = 0
    case: tuple[Mode, int] = ("bare", 0)


class EngineUse(Input, frozen=True):
    """Others began to use the engine, or have not used it for `idle_s`. `reason`: why its use is not known."""

    users: bool
    reason: str = ""


class PatternWanted(Input, frozen=True):
    """A user adds a pattern, or changes one."""

    pattern: PatternSettings
    by: str
    judge: JudgeConfigured | None = None
    """the judge to configure if there is none yet"""


class PatternUnwanted(Input, frozen=True):
    """A person retires a pattern. `forget`: examples of its dreams are taken out of the weights as well."""

    pattern: str
    by: str
    forget: bool = False
