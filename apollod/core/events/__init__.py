"""The facts that the journal holds: the only vocabulary on disk.

Law of this file: a kind, once released, is never renamed or reused; a field is never removed; a change of meaning is
a new `version` with an upcast in `wire.journal`. Bodies hold JSON values only, no floats that JSON cannot carry.
"""

from apollod.core.events.base import (
    Event,
    Recorded,
)
from apollod.core.events.intake import (
    ExampleAccepted,
    ExampleDuplicate,
    ExampleEncoded,
    ExampleRejected,
    ExampleRequeued,
    SourceConsumed,
    SourceDiscovered,
    SourceQuarantined,
    Tier,
)
from apollod.core.events.processes import (
    ConfigChanged,
    DaemonStarted,
    DaemonStopped,
    EngineExited,
    EngineReady,
    EngineSpawned,
    Settings,
    ShutdownRequested,
    TrainerAttached,
    TrainerBound,
    TrainerExited,
    TrainerSpawned,
    TrainingHalted,
    TrainingPaused,
    TrainingResumed,
)
from apollod.core.events.publishing import (
    AlignmentFailed,
    AlignmentMeasured,
    AlignmentStarted,
    EnginePaused,
    EngineResumed,
)
from apollod.core.events.training import (
    ReplayDiverged,
    ReplayVerified,
    StepCompleted,
    StepFailed,
    StepStarted,
    WindowClosed,
    WindowOpened,
    all_examples,
)
from apollod.core.events.weights import (
    Again,
    BaseKept,
    BaseLost,
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointRemoved,
    CheckpointStarted,
    HookCompleted,
    HookFailed,
    RollbackCompleted,
    RollbackRefused,
    RollbackRequested,
    RollbackStarted,
)

__all__ = [
    "KINDS", "Again", "AlignmentFailed", "AlignmentMeasured", "AlignmentStarted", "BaseKept", "BaseLost", "CheckpointCommitted",
    "CheckpointFailed", "CheckpointRemoved", "CheckpointStarted", "ConfigChanged", "DaemonStarted", "DaemonStopped", "EngineExited",
    "EnginePaused", "EngineReady", "EngineResumed", "EngineSpawned", "Event", "ExampleAccepted", "ExampleDuplicate",
    "ExampleEncoded", "ExampleRejected", "ExampleRequeued", "HookCompleted", "HookFailed", "Recorded", "ReplayDiverged",
    "ReplayVerified", "RollbackCompleted", "RollbackRefused", "RollbackRequested", "RollbackStarted", "Settings",
    "ShutdownRequested", "SourceConsumed", "SourceDiscovered", "SourceQuarantined", "StepCompleted", "StepFailed", "StepStarted",
    "Tier", "TrainerAttached", "TrainerBound", "TrainerExited", "TrainerSpawned", "TrainingHalted", "TrainingPaused",
    "TrainingResumed", "WindowClosed", "WindowOpened", "all_examples",
]

KINDS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        DaemonStarted, ConfigChanged, ShutdownRequested, DaemonStopped, TrainingPaused, TrainingHalted, TrainingResumed,
        EngineSpawned, EngineReady, EngineExited, TrainerSpawned, TrainerBound, TrainerAttached, TrainerExited,
        SourceDiscovered, SourceConsumed, SourceQuarantined,
        ExampleAccepted, ExampleDuplicate, ExampleEncoded, ExampleRejected,
        WindowOpened, WindowClosed, StepStarted, StepCompleted, StepFailed, ReplayVerified, ReplayDiverged,
        CheckpointStarted, CheckpointCommitted, CheckpointFailed, CheckpointRemoved, HookCompleted, HookFailed, BaseKept, BaseLost,
        RollbackRequested, RollbackRefused, RollbackStarted, RollbackCompleted, ExampleRequeued,
        EnginePaused, EngineResumed, AlignmentStarted, AlignmentMeasured, AlignmentFailed,
    )
}
