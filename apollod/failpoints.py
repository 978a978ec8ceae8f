"""Named points at which a test kills this process, to check recovery from a crash exactly there.

Off unless APOLLOD_FAILPOINT is set, which only tests do: `NAME` or `NAME:N` (the Nth time the point is passed, counted
from 1 in each process), several separated by commas. A process that passes an armed point reports it on standard error
and sends SIGKILL to itself: no handler, no `finally`, no flush. With APOLLOD_FAILPOINT_ONCE=DIRECTORY a point kills one
process only, the one that creates DIRECTORY/NAME; its successors pass. A name that is not listed here is refused when
the process starts, so that a test cannot wait for a nonexistent point.
"""

import os
import signal

from apollod.errors import ConfigError

VARIABLE = "APOLLOD_FAILPOINT"
ONCE = "APOLLOD_FAILPOINT_ONCE"

EFFECTS = (
    "AnswerScenario", "AskJudge", "AskLesson", "AttachTrainer", "CancelDream", "CompareWeights", "DropScore",
    "DropUpdateFiles", "EncodeAnchors", "EncodeExamples", "EndSearch", "Exit", "FreezeAnchor", "ImagineScenario",
    "JudgeDream", "KeepBase", "MeasureQuality", "ObserveCheckpoint", "PauseEngine", "PlanForget", "PlanRollback",
    "PrepareLesson", "ProbeTrainer", "RankExamples", "RefreshEngine", "RemoveCheckpoint", "RemoveUpdateFiles",
    "ReplayWindow", "RescoreExamples", "Restore", "ResumeEngine", "RunHook", "RunStep", "SampleGroup", "ScoreExample",
    "ScoreFollowUp", "ScoreProbe", "SpawnEngine", "SpawnTrainer", "StopChild", "TellAlarm", "TestScenario",
    "WordLesson", "WriteCheckpoint",
)  # fmt: skip

POINTS: dict[str, str] = {
    # supervisor: intake
    "quarantine.before-rename": "a bad line's bytes are flushed under a temporary name",
    "quarantine.kept": "they have their name; no event speaks of them yet",
    "inbox.batch-read": "a batch of lines is read; the loop does not know it",
    # supervisor: one input on its way through the loop
    "loop.input-taken": "an input is off the queue; nothing is decided",
    "loop.decided": "events and effects are decided, also where there are none",
    "loop.before-append": "events are decided; the journal does not have them",
    "journal.before-commit": "the rows are numbered and chained; SQLite does not have them",
    "journal.after-commit": "the transaction is durable; nobody was told",
    "loop.appended": "events are durable; the state does not have them",
    "loop.folded": "the state has them; no effect was run",
    **{f"effect.{name}.before": f"{name} is due and was not run" for name in EFFECTS},
    **{f"effect.{name}.after": f"{name} was run; what it reports is not recorded" for name in EFFECTS},
    # files that events name
    "blob.before-rename": "its bytes are flushed under a temporary name",
    "blob.kept": "it is durable under its digest; no event speaks of it yet",
    # archiving a journal
    "archive.copied": "the archive is whole under its name; the journal is the old one",
    "archive.begun": "the next journal is whole under a name of its own; the journal is the old one",
    # trainer
    "trainer.restore.half-way": "optimizer state is loaded; the weights are as they were found",
    "trainer.restore.written": "the weights are written; nobody was told",
    "trainer.step.begun": "a step was asked for; nothing is written",
    "trainer.update.half-way": "one tensor of an outside trainer's update is written, the others are not",
    "trainer.step.updated": "every parameter is updated; the optimizer has not finished",
    "trainer.step.unreported": "weights and optimizer are at the new step; nobody was told",
    "trainer.checkpoint.copied": "weights and optimizer state are copied out; nothing is written",
    "trainer.checkpoint.weights-written": "the way back is in a temporary directory; optimizer state and record "
    "are not",
    "trainer.checkpoint.before-rename": "the checkpoint's directory is complete and flushed, under its temporary name",
    "trainer.checkpoint.renamed": "it is in place; the model directory holds the older weights",
    "trainer.checkpoint.committed": "the model directory holds the new weights; nobody was told",
    # engine
    "engine.memory-asked": "the loader has asked for memory; it has none yet",
    "engine.weights-loaded": "weights are loaded and verified; the supervisor has no manifest",
}
"""The state of a process that dies at each point."""


def failpoint(name: str) -> None:
    """Die here if a test has armed this point."""
    if _armed:
        _pass(name)


def environment_of(role: str) -> dict[str, str]:
    """The variable for the environment of a child: the armed points of its `role`; empty if none is armed."""
    if not _armed:
        return {}
    return {VARIABLE: ",".join(f"{name}:{nth}" for name, nth in _armed.items() if name.startswith(f"{role}."))}


def parse(text: str) -> dict[str, int]:
    """Point -> number of the pass at which it kills. Raises ConfigError for an unknown name, or a count below 1."""
    armed = {}
    for item in filter(None, text.split(",")):
        name, _, nth = item.partition(":")
        if name not in POINTS:
            raise ConfigError(f"{VARIABLE} names {name!r}, which is not a failpoint", f"known are {', '.join(POINTS)}")
        if nth and not (nth.isdecimal() and int(nth) > 0):
            raise ConfigError(
                f"{VARIABLE} has {item!r}, whose count is not a number from 1", "write NAME:N, such as loop.decided:3"
            )
        armed[name] = int(nth or 1)
    return armed


def _pass(name: str) -> None:
    left = _armed.get(name)
    if left is None:
        return
    _armed[name] = left - 1
    if left == 1 and _first(name):
        os.write(2, f"failpoint {name} reached by pid {os.getpid()}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)


def _first(name: str) -> bool:
    """True if this process is the one to be killed."""
    directory = os.environ.get(ONCE)
    if not directory:
        return True
    try:
        os.close(os.open(os.path.join(directory, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


_armed = parse(os.environ.get(VARIABLE, ""))
