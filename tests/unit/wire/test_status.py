"""The contract of the status object: its fields are only ever added, and daemons of other versions can be read."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apollod.cli.control import status_verb
from apollod.cli.control.status_verb import _page
from apollod.cli.render import FLOAT32_PRODUCTS
from apollod.core import events as ev
from apollod.core.activities import reasons
from apollod.core.facts.alignment import AlignmentState
from apollod.core.facts.bootstrap import Bootstrapping, BootstrapState
from apollod.core.facts.checkpoints import CheckpointRef, CheckpointsState
from apollod.core.facts.children import Child, ChildrenState
from apollod.core.facts.daemon import DaemonState
from apollod.core.facts.dreams.state import Course, Dream, DreamsState
from apollod.core.facts.environments import Environment, EnvironmentsState, Figures
from apollod.core.facts.holding import Anchor
from apollod.core.facts.intake.events import Given
from apollod.core.facts.intake.state import Blocked, IntakeCounts, IntakeState, Waiting
from apollod.core.facts.judging.state import Judge, JudgingState
from apollod.core.facts.lessons.stages import Course as OpenCourse
from apollod.core.facts.lessons.stages import Stage
from apollod.core.facts.lessons.state import Lesson, LessonsState
from apollod.core.facts.preferences import PreferencesState
from apollod.core.facts.quality.sequential import Baseline
from apollod.core.facts.quality.state import Incident, Measuring, QualityState, Telling
from apollod.core.facts.recovery import RecordedStep, RecoveryState
from apollod.core.facts.rescoring import Gain, Lately
from apollod.core.facts.review import ReviewCounts, ReviewState
from apollod.core.facts.rollback import RollbackState
from apollod.core.facts.schedule import ScheduleState
from apollod.core.facts.training import Pace, Running, StepStarted, TrainingCounts, TrainingState, expected_s
from apollod.core.facts.updates import Session, UpdatesState
from apollod.core.rules.bootstrap import ReadSoFar
from apollod.core.rules.children import Start
from apollod.core.rules.daemon import STATES
from apollod.core.rules.dreams.status import Dreams
from apollod.core.rules.lessons.policy import Lessons
from apollod.core.rules.preferences import Preferences
from apollod.core.rules.quality.status import Quality
from apollod.core.rules.rescoring import Learned
from apollod.core.rules.rollback import Undo
from apollod.core.rules.updates import Updates
from apollod.core.schedules import SECOND_NS
from apollod.core.settings import JudgeSettings, PatternSettings, QualitySettings, ScheduleSettings
from apollod.core.state import State
from apollod.errors import ApolloError
from apollod.supervisor.status_view import Seen, status_view
from apollod.wire import messages as msg
from apollod.wire import status as st
from apollod.wire.status import Growth, Journal

GOLDEN = Path(__file__).parents[2] / "golden" / "v0.1.0.json"

PATHS = """\
activities: {str: str}
base.how: str | null
base.kept: bool
base.path: str | null
base.reason: str
blocked: {str: object}
bootstrap: object | null
bootstrap.accepted: int
bootstrap.bytes: int | null
bootstrap.bytes_read: int
bootstrap.dropped: int
bootstrap.duplicates: int
bootstrap.files: int | null
bootstrap.files_read: int
bootstrap.held: int
bootstrap.learned: int
bootstrap.left: int | null
bootstrap.left_s: float | null
bootstrap.path: str
bootstrap.pattern: str
bootstrap.pattern_state: str
bootstrap.pattern_tests: {str: [int]} | null
bootstrap.reason: str
bootstrap.rejected: int
bootstrap.state: str
bootstrap.strip: str
bootstrap.unread: int
bootstrap.waiting: int
capture.answers: int
capture.mode: str
capture.rated: int
checkpoint.at: float | null
checkpoint.bytes: int
checkpoint.due_in_s: float | null
checkpoint.fingerprint: str | null
checkpoint.kept: int
checkpoint.path: str | null
checkpoint.step: int | null
checkpoint.steps_since: int
dreams.active: int
dreams.dream: str
dreams.error: str
dreams.mode: str
dreams.next: str
dreams.pattern: str
dreams.reason: str
dreams.retired: int
dreams.settled: int
dreams.share: float | null
dreams.stage: str
dreams.today: int
dreams.total: int
engine.error: str
engine.given_up: bool
engine.model: str
engine.path: str
engine.pid: int | null
engine.ready: bool
engine.restarts: int
engine.url: str
environments: [object]
error: str
follow_ups.cases: int
follow_ups.reason: str
follow_ups.right: int
follow_ups.score: str
follow_ups.used: bool
follow_ups.waiting: int
growth: object | null
growth.days_left: float | null
growth.history_bytes_per_day: int
growth.journal_bytes_per_day: int
holding.anchors: int
holding.approved: int
holding.hold: float
holding.missing: int
holding.moved: float | null
holding.reason: str
journal.bytes: int
journal.free_bytes: int | absent
journal.head_hash: str
journal.path: str
journal.seq: int
journal.verified: int | absent
judge.agreement: float | null
judge.asked: int
judge.bad: int
judge.failures: int
judge.good: int
judge.high: float | null
judge.low: float | null
judge.mode: str
judge.model: str
judge.reason: str
judge.trusted: bool
judge.verdicts: int
judge.waiting: int
learned.after: float | null
learned.before: float | null
learned.scored: int
learned.waiting: int
learned.weak: int
lessons.due_at: float | null
lessons.error: str
lessons.fading: int
lessons.given_up: int
lessons.known: int
lessons.lesson: str
lessons.practising: int
lessons.reason: str
lessons.replaced: int
lessons.stage: str
lessons.waiting: int
optimizer.lr: float
optimizer.lr_direct: float
optimizer.name: str
optimizer.products: str
optimizer.rank: int
optimizer.state_bytes: int
paths: {str: str}
pid: int
preferences.gained: float | null
preferences.gathered: int
preferences.margin: float | null
preferences.pairs: int
preferences.ratings: int
preferences.ratings_per_step: int
preferences.right: float | null
preferences.z0: float
processor: str
quality.asked: str
quality.baseline: int | null
quality.due: str
quality.enabled: bool
quality.error: str
quality.failed: int
quality.incident: object | null
quality.incident.again: int
quality.incident.culprits: [str]
quality.incident.metrics: [str]
quality.incident.number: int
quality.incident.phase: str
quality.incident.reason: str
quality.incident.replays: int
quality.incident.replays_max: int
quality.incident.step: int
quality.incident.to: int
quality.incident.verdict: str
quality.incidents: int
quality.look_s: float | null
quality.looks: int
quality.metrics: [object]
quality.reason: str
quality.references_lost: str
quality.replays: int
quality.running: bool
quality.step: int | null
quality.taken_back: int
quality.untold: str
queue.accepted: int
queue.declined: int
queue.duplicates: int
queue.edited: int
queue.expired: int
queue.forgetting: int
queue.held: int
queue.pending: int
queue.rejected: int
queue.skipped: int
queue.trained: int
queue.undone: int
queue.unforgotten: int
queue.withdrawn: int
rollback: object | null
rollback.from: int
rollback.state: str
rollback.to: int
running: object | null
running.elapsed_s: float
running.example: str
running.examples: int
running.expected_s: float | null
running.step: int
running.tokens: int
schedule.closes_at: float | null
schedule.dream: str
schedule.late: bool
schedule.nightly: str
schedule.open: bool
schedule.opens_at: float | null
schedule.steps: int
schedule.zone: str
schema_version: int
start: object | null
start.done: int
start.elapsed_s: float
start.of: int
start.phase: str
state: str
step: int
trainer.error: str
trainer.given_up: bool
trainer.pid: int | null
trainer.ready: bool
trainer.restarts: int
undo.bytes: int | null
undo.reason: str
undo.steps: int | null | absent
updates.committed: int
updates.label: str
updates.lease: object | null
updates.lease.by: str
updates.lease.bytes: int
updates.lease.dialect: str
updates.lease.silent_s: float
updates.lease.since_s: float
updates.lease.state: str
updates.lease.tensors: int
updates.lease.update: int
updates.undone: int
uptime_s: float
weights.alignment: object | null
weights.alignment.aligned: bool
weights.alignment.bound: float
weights.alignment.max_abs_diff: float
weights.alignment.mean_abs_diff: float
weights.alignment.same_at: int | null
weights.alignment.seconds: float
weights.alignment.step: int
weights.alignment.tokens: int
weights.alignment.usual: float
weights.base_fingerprint: str
weights.bridge: str
weights.bytes: int
weights.cache: str
weights.cast: int
weights.elements: int
weights.fingerprint: str
weights.frozen: int
weights.live: int
weights.parameters: int
weights.paused: bool
weights.publish: str
weights.receivers: [object]
weights.rederive: int
weights.served: int | null | absent
weights.trained: int
weights.version: int
"""

NAMES: dict[type, str] = {
    msgspec.inspect.BoolType: "bool", msgspec.inspect.IntType: "int", msgspec.inspect.FloatType: "float",
    msgspec.inspect.StrType: "str", msgspec.inspect.NoneType: "null", msgspec.inspect.AnyType: "any",
    msgspec.inspect.StructType: "object",
}  # fmt: skip


def declared(type_: Any, path: str = "") -> dict[str, str]:
    """Path -> type, as `wire.status` declares them."""
    found: dict[str, str] = {}
    options = type_.types if isinstance(type_, msgspec.inspect.UnionType) else (type_,)
    for struct in (option for option in options if isinstance(option, msgspec.inspect.StructType)):
        for field in struct.fields:
            nothing = (field.default, field.default_factory) == (msgspec.NODEFAULT, msgspec.NODEFAULT)
            absent = not field.required and nothing  # so msgspec tells a default of UNSET
            name = f"{path}.{field.encode_name}".lstrip(".")
            found |= declared(field.type, name)
            said = type_name(field.type)
            if said != "object":  # of one that is always there its fields say enough
                found[name] = said + (" | absent" if absent else "")
    return found


def type_name(type_: Any) -> str:
    if isinstance(type_, msgspec.inspect.UnionType):
        names = [type_name(option) for option in type_.types if not isinstance(option, msgspec.inspect.NoneType)]
        return " | ".join([*names, *(["null"] if type_.includes_none else [])])
    if isinstance(type_, msgspec.inspect.DictType):
        return f"{{{type_name(type_.key_type)}: {type_name(type_.value_type)}}}"
    if isinstance(type_, msgspec.inspect.ListType):
        return f"[{type_name(type_.item_type)}]"
    return NAMES[type(type_)]


def shown(value: Any, path: str = "") -> dict[str, Any]:
    """Path -> value of a JSON object; what is keyed by names that are data stays whole."""
    if not isinstance(value, dict) or path in ("activities", "blocked", "paths", "bootstrap.pattern_tests"):
        return {path: value}
    return {
        name: leaf for key, below in value.items() for name, leaf in shown(below, f"{path}.{key}".lstrip(".")).items()
    }


BOUND = ev.TrainerBound(pid=12, fingerprint="f", parameters=1, elements=1)


BOOTSTRAP = Bootstrapping(
    ev.BootstrapRequested("/old", "p", ("*",), pattern="ask"), 0, counts=ev.BootstrapCounts(4, 3, learned=2, held=1),
    waiting={"w": None},
)  # fmt: skip


LESSONS = LessonsState(
    {id_: Lesson(id_, Given("It is so."), "p", 0, state=state)  # type: ignore[arg-type]
     for id_, state in {"L1": "known", "L2": "practising", "L3": "waiting", "L4": "given up"}.items()},
    4, OpenCourse("L2", Stage.TESTING, "given", 0, 2), {"L3": None}, due=[(60_000_000_000, 1)],
)  # fmt: skip
NIGHTLY = ScheduleSettings("02:00-05:00", "UTC")


def full_state() -> State:
    """Everything that can be null is there."""
    measured = ev.AlignmentMeasured(
        step=2, tokens=9, mean_abs_diff=0.5, max_abs_diff=1.0, mean_diff=0.25, worst=3, nonfinite=0, bound=2.0,
        aligned=True,
        seconds=0.5, probe="p",
    )  # fmt: skip
    return State(
        daemon=DaemonState(
            ev.Settings("/m", schedule=ScheduleSettings("02:00-05:00", "UTC"), judge=JudgeSettings(mode="all")),
            started_at_ns=1_000_000_000,
        ),
        schedule=ScheduleState(ev.NightPlanned(7_200_000_000_000, 18_000_000_000_000, "02:00-05:00", "UTC")),
        children=ChildrenState(engine=Child("ready", 11, 1), trainer=Child("ready", 12, 3), state_bytes=2048),
        intake=IntakeState(
            undone={"u": None},
            counts=IntakeCounts(accepted=9, rejected=2, duplicates=4),
            blocked={"/logs/a": Blocked("tail", "/logs", "it may not be read", "change its mode", 61_000_000_000)},
        ),
        training=TrainingState(version=3, fingerprint="f" * 16, counts=TrainingCounts(trained=3, skipped=1, held=1)),
        recovery=RecoveryState(base=ev.BaseKept(path="/s/base/m", how="link", bytes=1, seconds=0.5)),
        review=ReviewState(counts=ReviewCounts(declined=5, expired=6)),
        checkpoints=CheckpointsState([CheckpointRef(2, "/c/2", "e" * 16, 1_700_000_000_500_000_000, bytes=64)]),
        rollback=RollbackState(wanted=ev.RollbackRequested(to=1, by="t")),
        alignment=AlignmentState(measured=measured, same=3),
        bootstrap=BootstrapState(BOOTSTRAP),
        dreams=DreamsState(
            {"ask": Course(PatternSettings("ask", "Ask first."), "p", 0, bootstraps=1, final={"bare": (9, 10)})},
            Dream("d7", "ask", "practice", "bare", "", ""),
            7,
            of_day=2,
            turn="ask",
            learned=[True, False],
        ),
        lessons=LESSONS,
        environments=EnvironmentsState({"sums": Environment(learned=1, recent=[STEP])}),
        preferences=PreferencesState(2, 1, (0.5,), (1.0,), (0.25,)),
        updates=UpdatesState(2, Session(ev.UpdateOpened(2, "vllm", "trl", 7, "f"), SECOND_NS, SECOND_NS), 1),
        judging=JudgingState(judge=Judge("m", "h"), good=[True] * 50, bad=[True] * 40 + [False] * 10),
        quality=QualityState(
            number=4, baseline={"facts.passed": Baseline({"a": 1.0}, 0.0)}, at=0, looked=3, last_s=2.5,
            last={"facts.passed": {"a": 0.0}},
            incident=Incident(2, 3, 1, ("facts.passed",), "restored"), telling=Telling(error="gone"),
        ),
    )  # fmt: skip


STEP = Figures(2, 0.5, 0.5, 9, 1, 1, 0, 0, 1)


def full_status() -> st.Status:
    journal = Journal(seq=40, bytes=4096, head_hash="a" * 64, path="/s/journal.db", verified=30, free_bytes=1 << 30)
    reasons = {"step": "paused by ctl", "checkpoint": "", "alignment": "the engine is away", "dreaming": "no idle"}
    paths = {"state": "/s", "inbox": "/s/inbox", "socket": "/s/run/apollod.sock"}
    state = full_state()
    state.training.running, state.training.recent = running_step(), [Pace(100, 2.0), Pace(50, 4.0), Pace(200, 4.0)]
    state.intake.taken = (Waiting("abc" * 9, "d", tokens=150), Waiting("b", "d", tokens=150))
    state.holding.anchors["a"] = Anchor("a", "general", "shipped:1", tokens=9, digest="d", moved=0.25)
    gains = {"a": Gain(Lately(1, 2.0, "d"), 1.9, 3), "b": Gain(Lately(2, 2.5, "d"), 1.1, 3)}
    state.rescoring.gains, state.rescoring.waiting = gains, {"c": Lately(3, 1.0, "d")}
    state.alignment.open, state.alignment.opened_ns = ev.AlignmentStarted(step=3), 60_000_000_000
    growth = Growth(journal_bytes_per_day=2048, history_bytes_per_day=1 << 30, days_left=12.5)
    seen = Seen(read=ReadSoFar(1, 4, 3 << 20, 4 << 20), served=2)
    return msgspec.structs.replace(
        status_view(state, 61_000_000_000, journal, seen=seen),
        pid=7,
        paths=paths,
        activities=reasons,
        growth=growth,
        undo=Undo(steps=3, bytes=1 << 30),
    )


def running_step() -> Running:
    return Running(StepStarted(4, 3, "abc" * 9, "d", 1e-5, 1, ("abc" * 9, "b"), ("d", "d")), 51_000_000_000)


def test_the_fields_and_their_types_are_those_that_were_promised():
    """Add a line for a new field. Never change or remove one: programs read these."""
    told = declared(msgspec.inspect.type_info(st.Status))
    assert [f"{path}: {type_}" for path, type_ in sorted(told.items())] == PATHS.splitlines()


def test_a_full_status_shows_every_field():
    found = shown(json.loads(json.dumps(st.plain(full_status()))))
    assert set(found) == {line.partition(":")[0] for line in PATHS.splitlines() if not line.endswith("object | null")}
    assert None not in found.values()


def test_what_nobody_knows_is_left_out_and_not_null():
    empty = st.plain(status_view(State(), 0, Journal(seq=0, bytes=0, head_hash="")))
    assert not {"verified", "free_bytes"} & empty["journal"].keys() and "served" not in empty["weights"]
    assert "steps" not in empty["undo"]
    assert empty["weights"]["alignment"] is None and empty["rollback"] is None and empty["checkpoint"]["step"] is None
    journal = Journal(seq=0, bytes=0, head_hash="", verified=0)
    told = st.plain(status_view(State(), 0, journal, seen=Seen(served=None)))
    assert (told["journal"]["verified"], told["weights"]["served"]) == (0, None)


def test_it_crosses_the_socket():
    sent = full_status()
    reply = msgspec.msgpack.decode(msg.encode(msg.Reply(sent)), type=msg.FromSupervisor)
    assert isinstance(reply, msg.Reply)
    assert st.read(reply.body) == sent and reply.body == st.plain(sent)


def page(status: st.Status) -> str:
    return status_verb.page(st.plain(status))


def test_sources_that_cannot_be_read_are_told_with_what_to_do():
    status = full_status()
    assert st.plain(status)["blocked"] == {
        "/logs/a": {"reason": "it may not be read", "hint": "change its mode", "mode": "tail", "since": 61.0}
    }
    (line,) = [line for line in page(status).splitlines() if line.startswith("sources")]
    assert line == "sources     /logs/a cannot be read: it may not be read; change its mode"
    more = {f"/logs/{name}": status.blocked["/logs/a"] for name in "abc"}
    (line,) = [
        line for line in page(msgspec.structs.replace(status, blocked=more)).splitlines() if line.startswith("sources")
    ]
    assert line.endswith("; 2 more: `apollod ctl source list`")
    assert "sources" not in page(msgspec.structs.replace(status, blocked={}))


def test_a_bootstrap_that_is_under_way_is_one_line():
    status = full_status()
    (line,) = [line for line in page(status).splitlines() if line.startswith("bootstrap")]
    assert line == (
        "bootstrap   /old: 1 of 4 files read (75% of 4.0 MiB), 2 of 4 examples learned, 1 left and about 1 to be read, "
        "3 duplicates, about 5 s left"
    )
    assert status.bootstrap is not None and status.bootstrap.left == 2
    assert (status.bootstrap.pattern_state, status.bootstrap.pattern_tests) == ("active", {"bare": [9, 10]})
    assert status.bootstrap is not None and status.bootstrap.left_s == pytest.approx((1 + 4 / 3) * 117 * 0.02, abs=1e-3)
    for phase, told in (("learning", 1), ("completed", 0), ("stopped", 0)):
        other = msgspec.structs.replace(status.bootstrap, state=phase)
        assert page(msgspec.structs.replace(status, bootstrap=other)).count("bootstrap  ") == told


def test_float32_products_are_told_with_what_they_cost():
    state = State(daemon=DaemonState(settings=ev.Settings(model_path="/m")), children=ChildrenState(bound=BOUND))
    for products, told in (("bf16", False), ("float32", True)):
        state.children.bound = msgspec.structs.replace(BOUND, products=products)
        shown = status_view(state, 0, Journal(seq=0, bytes=0, head_hash=""))
        assert shown.optimizer.products == products and (f"; products {FLOAT32_PRODUCTS}" in page(shown)) is told
    state.children.bound = None
    assert not status_view(state, 0, Journal(seq=0, bytes=0, head_hash="")).optimizer.products


def test_the_page_says_which_kind_of_cpu_this_is():
    shown = msgspec.structs.replace(full_status(), processor="avx2")
    assert page(shown).splitlines()[-1].endswith(" s on a CPU of kind avx2")


def test_the_page_of_a_status():
    lines = page(full_status()).splitlines()
    assert len(lines) <= 24
    learned = "3 lines; of 2 scored again, loss 2.25 -> 1.50 nats a token on average; 1 hardly moved"
    rewarded = "sums gone, 1 groups learned, reward 0.50; 2 pairs learned, margin 0.50, 1 ratings learned"
    rewarded += "; trl updates the weights (receiving, since 60 s)"
    assert f"learned     {learned}; {rewarded}" in lines
    lessons = "1 known, 1 practising, 2 waiting, 1 given up; L2 is under way (testing)"
    assert f"lessons     {lessons}; waits: alarm 2 of the quality guard is not settled" in lines
    alarm = "alarm 2 at step 3 (facts.passed), restored: `apollod ctl quality incident show 2`"
    assert f"quality     {alarm}; nobody could be told: gone" in lines
    assert "judge       m on all, trusted, agreement 0.90 (0.80 to 0.94), 0 wait (the judge was not read yet)" in lines
    assert "growth      journal 2.0 KiB a day, history 1.0 GiB a day; the disk is full in 12.5 days" in lines
    assert lines[1] == "waits       step (paused by ctl); alignment (the engine is away)"
    assert (
        "dreams      1 active; ask: practice d7, imagining (waits: a rollback to step 1 is wanted); 2 today, 7 in all, "
        "50% of what was learned lately" in lines
    )
    assert any(line.endswith("tensors the same at step 3") for line in lines)
    assert lines[8] == "queue       2 pending, 3 trained, 4 duplicates, 2 rejected, 1 held, 5 declined, 6 expired"
    assert lines[11].endswith("; 3 steps can be undone in memory")
    none = Undo(steps=0, reason="one step alone takes 9 bytes")
    said = page(msgspec.structs.replace(full_status(), undo=none)).splitlines()[11]
    assert said.endswith("no step can be undone in memory: one step alone takes 9 bytes")
    assert lines[3] == "running     step 4 on abcabcabcabc and 1 more (300 tokens), 10 s of about 6 s"
    assert lines[4] == "start       aligning, 1 s"
    assert (
        lines[12] == "checkpoint  step 2, 0 steps since, next one is due, 1 kept in 64 B; going back from step 3 to 1"
    )
    free = msgspec.structs.replace(
        full_status(),
        activities={"step": "", "checkpoint": ""},
        blocked={},
        bootstrap=None,
        lessons=Lessons(),
        environments=[],
        preferences=Preferences(),
        updates=Updates(),
        learned=Learned(),
        growth=None,
        dreams=Dreams(),
        quality=Quality(),
        running=None,
        start=Start(phase="x", elapsed_s=1.0),
    )
    assert "waits" not in page(free) and "running" not in page(free) and len(page(free).splitlines()) == 15


@pytest.mark.parametrize(
    ("children", "since", "seen", "told"),
    [
        ({"engine": Child("spawned", spawned_ns=6)}, 0, Seen(), Start(phase="loading", elapsed_s=4.0)),
        ({"engine": Child("spawned", spawned_ns=6)}, 0, Seen(True), Start(phase="compiling", elapsed_s=4.0)),
        ({"trainer": Child("spawned", spawned_ns=7)}, 9, Seen(), Start(phase="attaching", elapsed_s=3.0)),
        ({"trainer": Child("spawned", spawned_ns=7), "bound": BOUND}, 9, Seen(),
         Start(phase="restoring", elapsed_s=3.0)),
        ({"trainer": Child("spawned", spawned_ns=7), "bound": BOUND}, 9, Seen(replaying=3),
         Start(phase="replaying", elapsed_s=3.0, done=2, of=9)),
        ({"trainer": Child("absent"), "bound": None}, 0, Seen(), None),
        ({}, 0, Seen(), None),
    ],
)  # fmt: skip
def test_the_phase_of_a_start(children, since, seen, told):
    state = full_state()
    state.children = msgspec.structs.replace(state.children, **in_nanoseconds(children))
    state.recovery.since = [RecordedStep(n, ("a",), ("d",), 1e-5, True, 0, "f") for n in range(1, since + 1)]
    shown = status_view(state, 10_000_000_000, Journal(seq=0, bytes=0, head_hash=""), seen=seen)
    assert shown.start == told
    if told and told.of:
        assert "start       replaying step 3 of 9, 3 s" in page(shown)


def in_nanoseconds(children: dict[str, Any]) -> dict[str, Any]:
    for child in children.values():
        if isinstance(child, Child) and child.spawned_ns < 1000:
            child.spawned_ns *= 1_000_000_000
    return children


def test_a_pause_is_shown_when_the_step_has_ended():
    state = full_state()
    state.daemon.paused, state.training.running = True, running_step()
    told = status_view(state, 0, Journal(seq=0, bytes=0, head_hash=""))
    told = msgspec.structs.replace(told, activities=reasons(state))
    assert told.state == "training" and told.running.step == 4
    assert "waits       step (paused by a person)" in page(told)
    state.children.trainer = Child("absent")
    told = status_view(state, 0, Journal(seq=0, bytes=0, head_hash=""))
    assert told.state == "paused" and told.running is None


def test_a_step_takes_as_long_as_those_before_it_let_expect():
    paces = [Pace(100, 2.0), Pace(50, 4.0), Pace(200, 4.0)]
    assert (expected_s(paces, 300), expected_s(paces, 10), expected_s([], 10), expected_s(paces, 0)) == (
        6,
        2,
        None,
        None,
    )


def test_the_status_of_a_newer_daemon_can_be_read():
    newer = st.plain(full_status())
    newer |= {"state": "dreaming", "schema_version": 2, "leases": {"open": 3}}
    newer["engine"]["gpu"], newer["queue"]["proposed"] = "H200", 5
    told = st.read(newer)
    assert "dreaming" in page(told) and told.queue == full_status().queue


@pytest.mark.parametrize("seq", json.loads(GOLDEN.read_text())["states"])
def test_the_status_of_the_first_daemon_can_be_read(seq):
    older = json.loads(GOLDEN.read_text())["states"][seq]
    told = st.read(older)
    assert page(told).startswith(f"state       {older['state']}") and told.activities == {}
    assert status_verb.page(older) == page(told), "what is missing is shown as `wire.status` fills it in"
    assert shown(older).items() <= shown(st.plain(told)).items()


@pytest.mark.parametrize("body", [{}, [], None, {"state": "serving"}, st.plain(full_status()) | {"step": "three"}])
def test_what_is_no_status_is_refused(body):
    with pytest.raises(ApolloError, match="not the status") as caught:
        st.read(body)
    assert "one version" in caught.value.hint


@pytest.mark.parametrize("body", [{}, {"state": "serving"}, st.plain(full_status()) | {"weights": 3}])
def test_what_is_no_status_has_no_page(body):
    with pytest.raises(ApolloError, match="not the status") as caught:
        _page(body)
    assert "one version" in caught.value.hint


@pytest.mark.parametrize(
    ("field", "value", "state"),
    [
        ("children.engine", Child(), "starting"), ("children.trainer", Child("spawned", 12, 1), "starting"),
        ("daemon.paused", False, "serving"), ("daemon.paused", True, "paused"),
        ("training.running", Running(StepStarted(4, 3, "a", "d", 1e-5, 1)), "training"),
        ("daemon.halted", "why", "degraded"), ("daemon.stopping", True, "stopping"),
    ],
)  # fmt: skip
def test_every_state(field, value, state):
    slice_, _, name = field.partition(".")
    changed = full_state()
    changed.quality.incident = None
    setattr(getattr(changed, slice_), name, value)
    told = status_view(changed, 0, Journal(seq=0, bytes=0, head_hash=""))
    assert told.state == state and state in STATES


@pytest.mark.parametrize(
    ("resume", "alarms", "state"), [("auto", 1, "degraded"), ("auto", 3, "paused"), ("manual", 1, "paused")]
)
def test_an_alarm_that_is_not_settled_is_a_state(resume, alarms, state):
    changed = full_state()
    settings = msgspec.structs.replace(changed.daemon.settings, quality=QualitySettings(resume=resume))
    changed.daemon.settings, changed.quality.alarms_ns = settings, (1,) * alarms
    assert status_view(changed, 0, Journal(seq=0, bytes=0, head_hash="")).state == state


def test_a_rate_that_somebody_has_to_lower_is_a_pause_that_says_so_until_he_resumes():
    changed, use = full_state(), "use [trainer] lr = 1e-05 and `apollod ctl resume`"
    incident = changed.quality.incident
    incident.phase, incident.verdict, incident.reason, incident.culprits = "named", "rate", use, ()
    told = status_view(changed, 0, Journal(seq=0, bytes=0, head_hash=""))
    assert told.state == "paused" and told.quality.incident.verdict == "rate" and f"{use}: `apollod" in page(told)
    incident.resumed = True
    assert status_view(changed, 0, Journal(seq=0, bytes=0, head_hash="")).state == "degraded"


@pytest.mark.parametrize(
    ("quality", "line"),
    [
        (QualityState(), None),
        (QualityState(asked="run"), None),
        (QualityState(number=1, asked="run"), "never measured; due (baseline), waits: a rollback to step 1 is wanted"),
        (
            QualityState(number=2, at=3, open=Measuring(2, "asked", 3)),
            "2 measurements, the last at step 3; measured now",
        ),
        (QualityState(number=3, at=3, error="gone"), "3 measurements, the last at step 3; the last one failed: gone"),
        (
            QualityState(number=3, at=3, telling=Telling(error="gone")),
            "3 measurements, the last at step 3; nobody could be told: gone",
        ),
    ],
)
def test_the_line_of_quality_is_there_once_it_was_measured(quality, line):
    state = full_state()
    off = msgspec.structs.replace(state.daemon.settings, quality=QualitySettings(every_steps=0))
    state.daemon.settings, state.quality = off, quality
    lines = page(status_view(state, 0, Journal(seq=0, bytes=0, head_hash=""))).splitlines()
    assert [one for one in lines if one.startswith("quality")] == ([f"quality     {line}"] if line else [])


def test_metrics_are_those_of_the_last_look_against_the_baseline():
    (metric,) = full_status().quality.metrics
    told = (metric.name, metric.value, metric.baseline, metric.drop, metric.margin, metric.alarmed)
    assert told == ("facts.passed", 0.0, 1.0, 1.0, 0.05, True)
    assert metric.low is not None and metric.high is not None and metric.low < 1.0 <= metric.high
    state = full_state()
    state.quality.last = {}
    (bare,) = status_view(state, 0, Journal(seq=0, bytes=0, head_hash="")).quality.metrics
    assert (bare.value, bare.drop, bare.low, bare.high, bare.baseline) == (None, None, None, None, 1.0)
