"""The journal is the truth, the log a comment: one line for each fact a person may want to see go by."""

import msgspec
import structlog

from apollod.core import events as ev

log = structlog.get_logger()

_QUIET = (ev.ExampleAccepted, ev.ExampleEncoded, ev.ExampleDuplicate, ev.StepStarted, ev.WindowOpened, ev.WindowClosed,
          ev.EnginePaused, ev.AlignmentStarted)
_ALARMS = (ev.TrainingHalted, ev.ReplayDiverged, ev.StepFailed, ev.CheckpointFailed, ev.HookFailed, ev.RollbackRefused)
_HIDDEN = ("record", "settings", "versions", "held", "tied", "sha256", "digest", "replay", "examples", "undone", "files")


def narrate(event: ev.Event) -> None:
    """Log one recorded event."""
    fields = {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in msgspec.structs.asdict(event).items()
        if name not in _HIDDEN
    }
    unexpected = isinstance(event, ev.EngineExited | ev.TrainerExited) and not event.expected
    if isinstance(event, _QUIET):
        log.debug(event.kind, **fields)
    elif unexpected or isinstance(event, _ALARMS):
        log.error(event.kind, **fields)
    elif isinstance(event, ev.SourceQuarantined | ev.ExampleRejected | ev.AlignmentFailed) or _doubtful(event):
        log.warning(event.kind, **fields)
    else:
        log.info(event.kind, **fields)


def _doubtful(event: ev.Event) -> bool:
    """A pause that was ended before its write, a difference that no rounding makes."""
    return (isinstance(event, ev.EngineResumed) and event.expired) or (isinstance(event, ev.AlignmentMeasured) and not event.aligned)
