"""The daemon killed at every failpoint, and what its next lives make of it."""

import ast
import json
import os
import signal
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from support.daemon import CRASH_ENGINE, SOON, VLLM, Daemon, chat_line, dead_within
from support.invariants import check_replay, check_stopped, journal_of, say, taken, wait_up
from support.load import Load, check_intake

import apollod
from apollod import failpoints
from apollod.adapters.journal.writer import Journal
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.errors import ApolloError
from apollod.failpoints import EFFECTS, ONCE, POINTS, VARIABLE
from apollod.supervisor.child_commands import ENGINE_MODULE
from apollod.supervisor.config import load_config
from apollod.wire import messages as msg

pytestmark = pytest.mark.crash

STOP_S = 10.0
DIES_S = 60.0


class Points:
    """Arms points and knows which were reached: with each arming a point kills once, and leaves a file behind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._armings = 0

    def arm(self, *points: str) -> dict[str, str]:
        self._armings += 1
        once = self._directory / str(self._armings)
        once.mkdir(parents=True)
        return {VARIABLE: ",".join(points), ONCE: str(once)}

    @property
    def reached(self) -> set[str]:
        return {file.name for file in self._directory.glob("*/*")}

    @property
    def just_reached(self) -> list[str]:
        """Since they were armed the last time."""
        return os.listdir(self._directory / str(self._armings))


def died_at(daemon: Daemon, point: str, points: Points) -> list[ev.Event]:
    """Wait for the supervisor's end, which has to be a SIGKILL by itself at this point. The events of that life."""
    assert daemon.process is not None
    name = point.partition(":")[0]
    pids = children_of(daemon)
    assert daemon.process.wait(DIES_S) == -signal.SIGKILL, f"{point}: {daemon.log()[-2000:]}"
    assert points.just_reached == [name]
    assert f"failpoint {name} reached by pid {daemon.process.pid}" in daemon.log()
    assert not dead_within(pids, 10.0), "children outlived a killed supervisor"
    events = journal_of(daemon) if daemon.journal.exists() else []
    begun = max((i for i, e in enumerate(events) if isinstance(e, ev.DaemonStarted)), default=0)
    this_life = events[begun:] if events and getattr(events[begun], "pid", 0) == daemon.process.pid else []
    say(
        f"{point}: {len(this_life)} events in its life, the last "
        f"{this_life[-1].kind if this_life else 'of an earlier one'}"
    )
    return this_life


def children_of(daemon: Daemon) -> list[int]:
    """Pids of the children, as far as the daemon still tells."""
    status = daemon.ask(msg.StatusRequest()) or {"engine": {"pid": 0}, "trainer": {"pid": 0}}
    return [pid for role in ("engine", "trainer") if (pid := status[role]["pid"])]


# --- the registry ------------------------------------------------------------------------------------------------


def test_every_registered_point_is_in_the_code_and_no_other():
    found = set()
    for file in Path(apollod.__file__).parent.rglob("*.py"):
        for call in (n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id == "failpoint":
                found |= {ast.unparse(call.args[0]).strip("f'\"").replace("{name}", effect) for effect in EFFECTS}
    assert found == POINTS.keys()
    assert set(EFFECTS) == {effect.__name__ for effect in fx.Effect.__subclasses__()}


@pytest.mark.parametrize("value", ["loop.decide", "loop.decided:0", "loop.decided:x", "loop.decided,trainer.step"])
def test_an_unknown_point_is_refused_at_the_start(value, tmp_path):
    daemon = Daemon(tmp_path, tmp_path / "missing").start({VARIABLE: value})
    assert daemon.process.wait(30) == 2
    assert VARIABLE in daemon.log() and "Traceback" not in daemon.log() and daemon.log().count("\n") == 1
    assert not daemon.journal.exists()


def test_a_child_is_given_its_own_points_only(monkeypatch):
    assert failpoints.environment_of("trainer") == {}
    monkeypatch.setattr(
        failpoints, "_armed", failpoints.parse("loop.decided:3,trainer.step.begun:2,engine.memory-asked")
    )
    assert failpoints.environment_of("trainer") == {VARIABLE: "trainer.step.begun:2"}
    assert failpoints.environment_of("engine") == {VARIABLE: "engine.memory-asked:1"}
    monkeypatch.setattr(failpoints, "_armed", failpoints.parse("loop.decided"))
    assert failpoints.environment_of("trainer") == {VARIABLE: ""} and failpoints.parse("") == {}


# --- points that need no engine ------------------------------------------------------------------------------------


class Intake(NamedTuple):
    """`batches`: of lines recorded in the life that ends there (None: it ends on another way)."""

    point: str
    batches: int | None = None


HALTED = [  # the third thing recorded in such a life is the first batch: the start and the refused engine come before
    Intake("quarantine.before-rename", 0),
    Intake("quarantine.kept", 0),
    Intake("inbox.batch-read", 0),
    Intake("loop.input-taken"),
    Intake("loop.input-taken:3"),
    Intake("loop.decided"),
    Intake("loop.decided:6"),
    Intake("loop.before-append"),
    Intake("loop.before-append:3", 0),
    Intake("journal.before-commit:3", 0),
    Intake("journal.after-commit:3", 1),
    Intake("loop.appended:3", 1),
    Intake("loop.folded:3", 1),
    Intake("loop.folded"),
    Intake("effect.SpawnEngine.before"),
    Intake("effect.SpawnEngine.after"),
]
STOPPING = [Intake(f"effect.Exit.{when}") for when in ("before", "after")]
ALL = os.environ.get("APOLLOD_CRASH_POINTS") == "all"
IN_EVERY_RUN = [
    *(one for one in HALTED if one.batches is not None and not one.point.startswith("loop.")), STOPPING[1]
]  # fmt: skip
"""Each costs two starts: `make test` leaves out those of which random lives in tests/property have the like, and those
at which the journal has what it has at the next point or the one before."""


def test_every_point_of_a_supervisor_without_an_engine(tmp_path):
    """The model is missing, so nothing is served, but lines are taken; it is not the journal's either, so training
    is halted."""
    daemon = Daemon(tmp_path, tmp_path / "missing").start()
    points, load = Points(tmp_path / "points"), Load(daemon.inbox, seed=1)
    another = {"APOLLOD_MODEL__PATH": str(tmp_path / "another")}
    try:
        daemon.wait(lambda s: s["error"], "the model to be refused", 180)
        daemon.kill()
        for number, (point, batches) in enumerate([*HALTED, *STOPPING] if ALL else IN_EVERY_RUN):
            load.drop(f"p{number:03d}.jsonl", [*load.mixed(6), b"not json at point %d" % number])
            daemon.start({**another, **points.arm(point)})
            if Intake(point) in STOPPING:
                daemon.wait(lambda s: taken(s) >= load.total, "lines", 180)
                daemon.process.terminate()
            events = died_at(daemon, point, points)
            if batches is not None:
                assert sum(isinstance(e, ev.SourceConsumed) for e in events) == batches, point
            daemon.start(another)
            daemon.wait(lambda s: taken(s) >= load.total, f"the lines after {point}", 180)
            daemon.kill()
        daemon.start(another)
        daemon.wait(lambda s: taken(s) >= load.total, "all lines", 180)
        daemon.stop()
    finally:
        daemon.kill()
    check_intake(check_stopped(daemon), load)
    assert not list((tmp_path / "state" / "quarantine").glob(".*")), "half a quarantined line was left behind"
    for path in (daemon.journal, tmp_path / "state" / "apollod.lock"):
        assert path.stat().st_mode & 0o077 == 0, f"{path} of a killed daemon is not private"


def test_a_death_before_or_after_an_alarm_is_told(tmp_path):
    """Of an alarm that an earlier life raised and settled; the model is missing, so nothing else happens."""
    told = tmp_path / "told"
    command = json.dumps(["sh", "-c", f"echo $APOLLOD_ALARM_INCIDENT $APOLLOD_ALARM_EVENT >> {told}"])
    daemon, points = Daemon(tmp_path, tmp_path / "missing"), Points(tmp_path / "points")
    wanted = {"APOLLOD_QUALITY__ON_ALARM": command}
    config = load_config(str(daemon.config), environ=wanted)
    drops = {"facts.passed": ev.Drop(0.5, 0.25, 0.75)}
    before = [
        ev.DaemonStarted(1, "test", config.settings(), str(config.state_dir)),
        ev.QualityAlarmed(1, 6, 6, ("facts.passed",), drops), ev.QualitySettled(1, "resumed by p", "p"),
    ]  # fmt: skip

    async def record() -> None:
        journal = await Journal.open(config.journal_path)
        await journal.append(before, time.time_ns())
        await journal.close()

    config.state_dir.mkdir()
    anyio.run(record)
    try:
        for point in TELLING:
            daemon.start({**wanted, **points.arm(point)})
            events = died_at(daemon, point, points)
            assert not [e for e in events if isinstance(e, ev.QualityTold)]
        daemon.start(wanted)
        daemon.wait(
            lambda s: len([e for e in journal_of(daemon) if isinstance(e, ev.QualityTold)]) == 2, "to tell", 180
        )
        daemon.stop()
    finally:
        daemon.kill()
    results = [(e.about, e.ok) for e in check_stopped(daemon) if isinstance(e, ev.QualityTold)]
    assert results == [("alarmed", True), ("settled", True)]
    lines = told.read_text().splitlines()
    assert lines in (["1 alarmed", "1 settled"], ["1 alarmed", "1 alarmed", "1 settled"])


# --- points of engine and trainer, and of a supervisor that has both ------------------------------------------------

# Stages of one file each, so of one window of learning rates each, in a calm life and in one full of kills.

STEPS = {  # stage 0: deaths at different steps, since an example that kills three trainers is put aside
    "trainer.step.begun:1": 1,
    "trainer.step.updated:2": 2,
    "trainer.restore.half-way": 2,
    "trainer.restore.written": 2,
    "trainer.step.unreported:5": 5,
}
CHECKPOINTS = [  # the last one is committed
    "trainer.checkpoint.copied",
    "trainer.checkpoint.weights-written",
    "trainer.checkpoint.before-rename",
    "trainer.checkpoint.renamed",
    "trainer.checkpoint.committed",
]
ENGINE = ["engine.memory-asked", "engine.weights-loaded"]
TRAINED = STEPS if ALL else {point: step for point, step in STEPS.items() if ".step." in point}
WRITTEN = CHECKPOINTS if ALL else CHECKPOINTS[1::3]
"""Those of a run: each costs a start of a trainer. `make test` leaves out those at which test_rollbacks.py dies, and
those at which the same files are there."""

ATTACHED = [  # a list for each stage: one life for each point, then one that learns the stage
    [
        "effect.AttachTrainer.before",
        "effect.AttachTrainer.after",
        "effect.Restore.before",
        "effect.Restore.after",
        "effect.EncodeExamples.before",
        "effect.EncodeExamples.after",
        "effect.RunStep.before",
        "effect.RunStep.after",
        "effect.RefreshEngine.before",
        "effect.RefreshEngine.after",
        *(
            f"effect.{name}.{when}"
            for name in ("ProbeTrainer", "ScoreProbe", "DropScore", "CompareWeights", "PauseEngine", "ResumeEngine")
            for when in ("before", "after")
        ),
        "effect.RescoreExamples.before",
        "effect.RescoreExamples.after",
    ],
    [
        "effect.WriteCheckpoint.before",
        "effect.WriteCheckpoint.after",
        "effect.ObserveCheckpoint.before",
        "effect.ObserveCheckpoint.after",
        "effect.PlanRollback.before",
        "effect.PlanRollback.after",
        "effect.RemoveCheckpoint.before",
    ],
    ["effect.RunHook.before", "effect.RunHook.after"],
    ["effect.AskJudge.before", "effect.AskJudge.after"],
    ["effect.RemoveCheckpoint.after"],
]
"""Supervisor points that need engine and trainer: each costs a start of both, so `make crash` has all of them and
`make test` two: one in a step, one in a checkpoint."""
NEEDS = {
    "PauseEngine": {"APOLLOD_TRAINER__PUBLISH": "fenced"},
    "ResumeEngine": {"APOLLOD_TRAINER__PUBLISH": "fenced"},
    "CompareWeights": {"APOLLOD_TRAINER__ALIGN_MAX": "1e-9", ENGINE_MODULE: VLLM},
    "RescoreExamples": {"APOLLOD_TRAINER__RESCORE": "64"},
    "RunHook": {"APOLLOD_CHECKPOINT__HOOK": '["true"]'},
    "AskJudge": {"APOLLOD_JUDGE__MODE": "flagged"},  # about planted cases: nothing here is flagged
}  # settings that change no weights; log-probabilities to compare come from vLLM alone
SPAWNING = ["effect.SpawnTrainer.before", "effect.SpawnTrainer.after"]
KEEPING = ["effect.KeepBase.before", "effect.KeepBase.after"]
FIRST = [*SPAWNING, *KEEPING] if ALL else SPAWNING[1:]
"""Reached while nothing is learned."""
ENDING = ["effect.StopChild.before", "effect.StopChild.after"]
"""Reached by a stop, once there is a child."""

STOPPED = ENDING if ALL else ENDING[:1]

LIVES = ATTACHED if ALL else [["effect.RunStep.after", "effect.RemoveCheckpoint.before"]]

ARCHIVING = ["archive.copied", "archive.begun"]
"""No daemon passes them: tests/integration/test_archive.py dies there."""

BLOBS = ["blob.before-rename", "blob.kept"]
"""Nothing is dreamt in these lives: tests/unit/adapters/test_blobs.py dies there."""

SCORING = ["effect.ScoreExample.before", "effect.ScoreExample.after"]
"""Nothing is stripped from what these lives learn: tests/property/test_open_intents.py dies there."""

FOLLOWING = ["effect.ScoreFollowUp.before", "effect.ScoreFollowUp.after"]
"""No words of a person follow an answer in these lives: tests/property/test_open_intents.py dies there."""

FORGETTING = ["effect.PlanForget.before", "effect.PlanForget.after"]
"""Nothing is taken back in these lives: tests/integration/test_no_means_no.py dies there."""

MEASURING = ["effect.MeasureQuality.before", "effect.MeasureQuality.after"]
"""Nobody asks the probes in these lives: tests/property/test_open_intents.py dies there."""

TELLING = ["effect.TellAlarm.before", "effect.TellAlarm.after"]
"""No alarm is raised in these lives: `test_a_death_before_or_after_an_alarm_is_told`."""
SEARCHING = [
    f"effect.{name}.{when}" for name in ("ReplayWindow", "RankExamples", "EndSearch") for when in ("before", "after")
]
"""Nothing gets worse in these lives, and nobody searches who did it: tests/property/test_open_intents.py dies there."""

DREAMING = [
    f"effect.{name}.{when}"
    for name in ("ImagineScenario", "AnswerScenario", "JudgeDream", "TestScenario", "CancelDream")
    for when in ("before", "after")
]
"""Nothing is dreamt in these lives: tests/crash/test_dreams.py dies there."""

TEACHING = [
    f"effect.{name}.{when}" for name in ("WordLesson", "AskLesson", "PrepareLesson") for when in ("before", "after")
]
"""Nothing is taught in these lives: tests/crash/test_lessons.py dies there."""

REWARDING = ["effect.SampleGroup.before", "effect.SampleGroup.after"]
"""Nothing is scored in these lives: tests/unit/core/test_environments.py dies at each instant of one."""

UPDATING = [
    "trainer.update.half-way",
    *(f"effect.{name}.{when}" for name in ("RemoveUpdateFiles", "DropUpdateFiles") for when in ("before", "after")),
]
"""No outside trainer writes the weights in these lives: tests/crash/test_update_deaths.py dies there, and random lives
of tests/property/test_core_properties.py."""

HOLDING = [f"effect.{name}.{when}" for name in ("FreezeAnchor", "EncodeAnchors") for when in ("before", "after")]
"""The stub cannot say what it thinks, so nothing is frozen: tests/unit/core/test_holding.py dies there."""

SIZES = [6, 60, *(6 for _ in LIVES), 6] if ALL else [6, 16, *(2 for _ in LIVES), 2]
"""Examples of each stage: the first one has as many as trainers die at, and stage 1 is long enough to kill an engine
while it runs."""
STAGES = [
    [chat_line(f"question {stage} {i}?", f"answer number {i}.") for i in range(size)]
    for stage, size in enumerate(SIZES)
]


def test_no_point_is_left_out():
    ours = [point for point, _ in [*HALTED, *STOPPING]] + [
        *SPAWNING,
        *KEEPING,
        *ENDING,
        *STEPS,
        *CHECKPOINTS,
        *ENGINE,
        *chain(*ATTACHED),
        *ARCHIVING,
        *BLOBS,
        *SCORING,
        *FOLLOWING,
        *FORGETTING,
        *DREAMING,
        *TEACHING,
        *REWARDING,
        *UPDATING,
        *HOLDING,
        *MEASURING,
        *TELLING,
        *SEARCHING,
    ]
    assert {point.partition(":")[0] for point in ours} == POINTS.keys()


@pytest.mark.timeout(2400)
def test_the_weights_after_a_death_at_every_point_are_those_of_a_calm_life(tiny_model, tmp_path):
    shared_memory = unheld()
    expected = calm_life(tmp_path / "calm", tiny_model)
    if CRASH_ENGINE == VLLM:  # nothing else makes such files, and others may meanwhile
        assert not unheld() - shared_memory

    daemon = Daemon(tmp_path / "killed", tiny_model, engine=CRASH_ENGINE)
    points = Points(tmp_path / "points")
    try:
        for point in FIRST:
            daemon.start(points.arm(point) | KEEP_ONE)
            died_at(daemon, point, points)
        for point in STOPPED:
            daemon.start(points.arm(point) | KEEP_ONE)
            daemon.wait(lambda s: s["engine"]["pid"], "an engine", 180)
            daemon.process.terminate()
            died_at(daemon, point, points)
        daemon.start(points.arm(*TRAINED, *WRITTEN, *ENGINE) | KEEP_ONE)
        assert fingerprint(die_in_children(daemon, points)) == expected[0]
        die_in_checkpoints(daemon, points)
        assert fingerprint(kill_engine(daemon)) == expected[1]

        for stage, lives in enumerate(LIVES, 2):
            checkpoint(daemon, stage - 1)
            kill_supervisor(daemon)
            for point in lives:
                daemon.start(points.arm(point) | KEEP_ONE | NEEDS.get(point.split(".")[1], {}))
                die_in_supervisor(daemon, stage, point, points)
            daemon.start(KEEP_ONE)
            assert fingerprint(learned(daemon, stage)) == expected[stage], lives

        assert fingerprint(learn(daemon, len(STAGES) - 1)) == expected[-1]
        pids = children_of(daemon)
        assert daemon.stop() < STOP_S
        assert not dead_within(pids, 1.0), "a process outlived a clean shutdown"
        assert not daemon.socket.exists()
        if CRASH_ENGINE == VLLM:
            assert not unheld() - shared_memory
    finally:
        daemon.kill()
    events = check_stopped(daemon)
    assert not [e for e in events if isinstance(e, ev.StepFailed | ev.TrainingHalted)]
    armed = [*FIRST, *STOPPED, *TRAINED, *WRITTEN, *ENGINE, *chain(*LIVES)]
    assert points.reached == {point.partition(":")[0] for point in armed}
    assert check_replay(daemon) == sum(SIZES)


KEEP_ONE = {"APOLLOD_CHECKPOINT__KEEP": "1", **SOON}


def unheld() -> set[str]:
    """Files in shared memory that no process has mapped: left behind by somebody."""
    names = {path.name for path in Path("/dev/shm").iterdir() if path.is_file()}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text(errors="replace")
        except OSError:
            continue  # it ended, or is not ours to look at
        names = {name for name in names if f"/dev/shm/{name}" not in text}
    return names


def calm_life(root: Path, model: Path) -> list[str]:
    """The fingerprint after each stage in a life without a crash."""
    daemon = Daemon(root, model, engine=CRASH_ENGINE).start()
    try:
        daemon.wait_ready()
        prints = [fingerprint(learn(daemon, stage)) for stage in range(len(STAGES))]
        pids = children_of(daemon)
        assert daemon.stop() < STOP_S
        assert not dead_within(pids, 1.0) and not daemon.socket.exists(), "something outlived a clean shutdown"
    finally:
        daemon.kill()
    return prints


def teach(daemon: Daemon, stage: int) -> None:
    daemon.drop(name_of(stage), *STAGES[stage])


def name_of(stage: int) -> str:
    return f"stage{stage:02d}.jsonl"


def learned(daemon: Daemon, stage: int) -> dict:
    return wait_up(
        daemon,
        lambda s: s["queue"]["trained"] == sum(SIZES[: stage + 1]) and s["state"] == "serving",
        f"stage {stage} learned",
    )


def learn(daemon: Daemon, stage: int) -> dict:
    teach(daemon, stage)
    return learned(daemon, stage)


def fingerprint(status: dict) -> str:
    return status["weights"]["fingerprint"]


def die_in_children(daemon: Daemon, points: Points) -> dict:
    """Stage 0, with an engine that dies twice while it starts and a trainer that dies at each of its points; nobody
    helps but a person who says `resume`."""
    status = learn(daemon, 0)
    assert points.reached >= {point.partition(":")[0] for point in [*TRAINED, *ENGINE]}
    events = journal_of(daemon)
    assert len({pid_at(daemon, "engine", point) for point in ENGINE}) == len(ENGINE)  # of the process with the loader
    assert [e.expected for e in events if isinstance(e, ev.EngineExited)] == [False] * len(ENGINE)
    for point, step in TRAINED.items():
        pid = pid_at(daemon, "trainer", point)
        at = next(i for i, e in enumerate(events) if isinstance(e, ev.TrainerExited) and e.pid == pid)
        assert events[at].code == -signal.SIGKILL
        assert [e.step for e in events[:at] if isinstance(e, ev.StepStarted)][-1] == step, point
        say(f"{point}: step {step} was open")
    return status


def pid_at(daemon: Daemon, role: str, point: str) -> int:
    """The process that died at a point, from what it said on standard error."""
    said = f"failpoint {point.partition(':')[0]} reached by pid "
    lines = [
        line
        for line in (daemon.root / "state" / "log" / f"{role}.log").read_text().splitlines()
        if line.startswith(said)
    ]
    assert len(lines) == 1, lines
    return int(lines[0].removeprefix(said))


def die_in_checkpoints(daemon: Daemon, points: Points) -> None:
    """Attempts that end with the trainer: all but the last leave nothing, the last one is found committed."""
    for _ in WRITTEN:
        wait_up(daemon, lambda s: s["state"] == "serving", "a trainer")
        assert daemon.ask(msg.CheckpointRequest()) is None or points.reached >= set(WRITTEN)
    assert points.reached >= set(WRITTEN)
    wait_up(daemon, lambda s: s["state"] == "serving", "a trainer")
    checkpoint(daemon, 0)
    assert os.listdir(daemon.root / "state" / "checkpoints") == [f"step-{SIZES[0]:08d}"]
    events = journal_of(daemon)
    assert sum(isinstance(e, ev.CheckpointFailed) for e in events) == len(WRITTEN) - 1
    assert sum(isinstance(e, ev.CheckpointCommitted) for e in events) == 1


def checkpoint(daemon: Daemon, stage: int) -> None:
    """Written now, after all of a stage."""
    answer = daemon.ask(msg.CheckpointRequest())
    assert answer is not None and answer["step"] == sum(SIZES[: stage + 1])


def kill_engine(daemon: Daemon) -> dict:
    """Its API process, from outside, in the middle of stage 1."""
    teach(daemon, 1)
    before = wait_up(daemon, lambda s: s["step"] > SIZES[0], "a step of stage 1")
    os.kill(before["engine"]["pid"], signal.SIGKILL)
    assert not dead_within([before["engine"]["pid"]], 10.0), "the engine's processes outlived it"
    again = wait_up(daemon, lambda s: s["engine"]["restarts"] > before["engine"]["restarts"], "another engine")
    assert again["step"] < sum(SIZES[:2]), "the kill came too late to interrupt anything"
    assert again["checkpoint"]["step"] == SIZES[0] and again["engine"]["path"] == str(daemon.model)
    return learned(daemon, 1)


def kill_supervisor(daemon: Daemon) -> None:
    """From outside, at rest."""
    pids = children_of(daemon)
    daemon.kill()
    assert not dead_within(pids, 10.0), "children outlived a killed supervisor"


def die_in_supervisor(daemon: Daemon, stage: int, point: str, points: Points) -> None:
    """Drive the daemon over its point. What another point has left open is met right at the start."""
    if not (daemon.inbox / name_of(stage)).exists():
        teach(daemon, stage)
    if "WriteCheckpoint" in point:
        learned(daemon, stage)
        assert daemon.ask(msg.CheckpointRequest()) is None
    if "PlanRollback.before" in point:  # to what is served: refused, after the journal was read for it
        assert daemon.ask(msg.RollbackRequest(learned(daemon, stage)["step"])) is None
    if "DropScore" in point:  # each attach is followed by a comparison, which gives way to lines and to any rollback
        with suppress(ApolloError):  # it died, where is looked at below
            step = learned(daemon, stage)["step"]
            while daemon.alive():
                old = daemon.status()["trainer"]["pid"]
                os.kill(old, signal.SIGKILL)
                daemon.wait(lambda s, old=old: s["trainer"]["ready"] and s["trainer"]["pid"] != old, "another trainer")
                daemon.ask(msg.RollbackRequest(step))
                time.sleep(0.5)  # it may be dying
    died_at(daemon, point, points)
