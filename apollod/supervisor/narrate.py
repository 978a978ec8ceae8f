"""Logs one line for each event that a person may want to see. The journal is the truth, the log a comment."""

import msgspec
import structlog

from apollod.core import events as ev
from apollod.core.settings import PatternSettings
from apollod.core.surroundings import Drawn, Surrounding

log = structlog.get_logger()

LISTED = 8
"""most items of a list that are logged one by one"""

_DEBUG = (
    ev.ExampleAccepted, ev.ExampleEncoded, ev.ExampleDuplicate, ev.StepStarted, ev.WindowOpened, ev.WindowClosed,
    ev.EnginePaused, ev.AlignmentStarted, ev.AlignmentOvertaken, ev.ScoreRequested, ev.ExampleScored,
    ev.VerdictRequested, ev.DreamRequested, ev.DreamImagined, ev.DreamAnswered, ev.DreamJudged, ev.DreamTrained,
    ev.DreamTested, ev.DreamSettled, ev.DreamAbandoned, ev.DreamFailed, ev.LessonBegun, ev.LessonWorded,
    ev.LessonAsked, ev.LessonPutOff, ev.LessonPrepared, ev.LessonPractised, ev.LessonFailed, ev.EngineBusy,
    ev.EngineIdle,
)  # fmt: skip
_ERROR = (ev.TrainingHalted, ev.ReplayDiverged, ev.StepFailed, ev.CheckpointFailed, ev.HookFailed, ev.RollbackRefused)
_WARNING = (
    ev.SourceQuarantined, ev.SourceBlocked, ev.ExampleRejected, ev.AlignmentFailed, ev.ScoreFailed, ev.VerdictFailed,
    ev.QualityFailed, ev.QualityAlarmed, ev.QualityReplayFailed, ev.QualityRankFailed,
    ev.QualityReferencesLost,
    ev.ForgetRefused,
)  # fmt: skip
_HIDDEN = (
    "record", "sampled", "original", "answer", "correction", "settings", "versions", "held", "tied", "sha256",
    "digest", "replay", "examples", "undone", "files", "cases", "quote", "better", "scenario", "sketch", "told",
    "figures", "after", "fell", "scores", "unscored", "left_out", "again", "given", "worded", "answers", "curve",
)  # fmt: skip
"""fields that are long or of no use to a person"""


def narrate(event: ev.Event) -> None:
    """Log one recorded event."""
    fields = {name: _short(value) for name, value in msgspec.structs.asdict(event).items() if name not in _HIDDEN}
    unexpected = isinstance(event, ev.EngineExited | ev.TrainerExited) and not event.expected
    if isinstance(event, _DEBUG) or _follows(event):
        log.debug(event.kind, **fields)
    elif unexpected or isinstance(event, _ERROR) or (isinstance(event, ev.QualityTold) and event.gives_up):
        log.error(event.kind, **fields)
    elif isinstance(event, _WARNING) or _doubtful(event):
        log.warning(event.kind, **fields)
    else:
        log.info(event.kind, **fields)


def _short(value: object) -> object:
    """Shorten a value: a pattern to its name, a surrounding to its kind, a long list to its length."""
    if isinstance(value, PatternSettings):
        return value.name
    if isinstance(value, Surrounding | Drawn):
        return value.kind
    if isinstance(value, tuple) and len(value) > LISTED:
        return f"{len(value)} of them"
    return round(value, 6) if isinstance(value, float) else value


def _follows(event: ev.Event) -> bool:
    """True for a score that the engine did not give once more, an example that waits for a verdict, and an example's
    change that follows from one. The verdict itself is logged."""
    return (
        (isinstance(event, ev.ScoreFailed) and event.in_a_row > 1)
        or (isinstance(event, ev.ExampleHeld) and event.waits_for == "judge")
        or (isinstance(event, ev.ExampleApproved | ev.ExampleDeclined) and event.by == "judge")
    )


def _doubtful(event: ev.Event) -> bool:
    """True for events that should worry: a pause that ended before its write, a difference that rounding does not
    explain, a chat template that spoils what is learned, dreams that collapsed, or an alarm that could not be
    delivered."""
    return (
        (isinstance(event, ev.EngineResumed) and event.expired)
        or (isinstance(event, ev.AlignmentMeasured) and not event.aligned)
        or (isinstance(event, ev.AlignmentCompared) and event.differing > 0)
        or (isinstance(event, ev.AlignmentAbandoned) and event.doubted)
        or (isinstance(event, ev.TrainerBound) and bool(event.template))
        or (isinstance(event, ev.DreamingStopped) and event.by == "guard")
        or (isinstance(event, ev.QualityTold) and not event.ok)
    )
