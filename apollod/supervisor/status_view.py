"""Builds `status` from a state. Pure, so that it also works on the fold of a journal (`apollod ctl replay`)."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from apollod.core.activities import Activity, blocked
from apollod.core.bootstrap.outlook import left_s, to_come, typical_tokens
from apollod.core.checkpoints.due import due_ns
from apollod.core.children.state import Child, ChildrenState
from apollod.core.dreams import prospect
from apollod.core.followups.calibration import counts_of
from apollod.core.followups.policy import unused
from apollod.core.holding.choice import drift_of
from apollod.core.holding.missing import missing
from apollod.core.judging.agreement import agreement, distrust
from apollod.core.quality.day import stops
from apollod.core.quality.resuming import may_repeat
from apollod.core.schedules import DAY_NS, SECOND_NS
from apollod.core.state import State
from apollod.core.training.pace import expected_s
from apollod.supervisor.bootstrapping import ReadSoFar
from apollod.supervisor.lessons.learned_view import learned_status
from apollod.supervisor.lessons.lesson_view import lessons_status
from apollod.supervisor.quality.quality_view import quality_status
from apollod.wire import status as st
from apollod.wire.status_sections.journal_status import Growth, Journal
from apollod.wire.status_sections.judging_status import FollowUps, Judge
from apollod.wire.status_sections.learning_status import Blocked, Bootstrap, Optimizer, Queue, Running, Schedule
from apollod.wire.status_sections.process_status import Engine, Process, Start
from apollod.wire.status_sections.teaching_status import Dreams, Holding
from apollod.wire.status_sections.weights_status import Alignment, Base, Checkpoint, Rollback, Undo, Weights


class Progress(NamedTuple):
    """Progress of a start, as known to the supervisor: the engine has loaded the weights, and the step that the trainer
    was told to replay (0: none); and progress of reading a bootstrap's source."""

    loaded: bool = False
    replaying: int = 0
    read: ReadSoFar | None = None


NO_PROGRESS = Progress()


def status_view(
    state: State,
    now_ns: int,
    journal: Journal,
    journal_error: str = "",
    pid: int = 0,
    paths: Mapping[str, str] | None = None,
    served: int | UnsetType | None = UNSET,
    activities: Mapping[str, str] | None = None,
    progress: Progress = NO_PROGRESS,
    growth: Growth | None = None,
    undo: Undo | None = None,
) -> st.Status:
    """The status at a given time. Facts that are not in the state are passed: the journal's file and its error, the
    supervisor's pid and paths, the version that the engine serves, `activities` (why each cannot begin now, empty: it
    can), progress of a start, growth of the state directory, and the steps that the trainer can undo."""
    return st.Status(
        state=_phase(state, journal_error),
        error=journal_error or state.daemon.halted or _child_error(state.children),
        pid=pid,
        step=state.training.version,
        engine=_engine(state),
        trainer=_process(state.children.trainer),
        weights=_weights(state, served),
        queue=_queue(state),
        blocked=_blocked(state),
        optimizer=_optimizer(state),
        checkpoint=_checkpoint(state, now_ns),
        running=_running(state, now_ns),
        start=_start(state, now_ns, progress),
        rollback=_rollback(state),
        undo=undo or Undo(),
        base=_base(state),
        judge=_judge(state),
        follow_ups=_follow_ups(state),
        holding=_holding(state),
        journal=journal,
        growth=growth,
        quality=quality_status(state),
        paths=dict(paths or {}),
        schedule=_schedule(state),
        bootstrap=_bootstrap(state, progress.read),
        dreams=_dreams(state, now_ns),
        lessons=lessons_status(state, now_ns),
        learned=learned_status(state),
        uptime_s=_since_s(state.daemon.started_at_ns, now_ns),
        activities=dict(activities or {}),
    )


def not_begun(state: State) -> State:
    """The state to show before this life's first event: without children and halts of the last life."""
    replace = msgspec.structs.replace
    children = replace(state.children, engine=Child(), trainer=Child(), engine_facts=None, bound=None)
    daemon = replace(state.daemon, stopping=False, stopped=False, halted="")
    return replace(state, children=children, daemon=daemon, training=replace(state.training, running=None))


def _child_error(children: ChildrenState) -> str:
    return children.engine.error or (children.trainer.error if children.trainer.phase != "ready" else "")


def _since_s(then_ns: int, now_ns: int) -> float:
    """Seconds since a time; 0 if it has not come yet or is 0."""
    return round(max(0, now_ns - then_ns) / SECOND_NS, 3) if then_ns else 0.0


def _phase(state: State, journal_error: str) -> str:
    """One of `wire.status.STATES`."""
    if state.daemon.stopping or state.daemon.stopped:
        return "stopping"
    if journal_error or state.daemon.halted or state.children.engine.given_up or state.children.trainer.given_up:
        return "degraded"
    if state.children.engine.phase != "ready":
        return "degraded" if state.children.engine.error else "starting"
    if state.daemon.paused:
        return "training" if _step_runs(state) else "paused"
    if state.children.trainer.phase != "ready":
        return "degraded" if state.children.trainer.error else "starting"
    if state.quality.incident is not None:
        return "paused" if _person_resumes(state) else "degraded"
    return "training" if state.training.running or state.intake.pending else "serving"


def _person_resumes(state: State) -> bool:
    """True if training waits for a person once the last good weights are back."""
    settings, incident = state.daemon.settings, state.quality.incident
    if incident is not None and incident.phase == "named" and not may_repeat(state.quality, incident):
        return True
    return settings is not None and (settings.quality.resume == "manual" or stops(state.quality.alarms_ns))


def _step_runs(state: State) -> bool:
    """True if a trainer works on the open step. A trainer that died leaves the intent open."""
    return state.training.running is not None and state.children.trainer.phase == "ready"


def _running(state: State, now_ns: int) -> Running | None:
    running = state.training.running
    if running is None or not _step_runs(state):
        return None
    tokens = sum(one.tokens for one in state.intake.taken)
    expected = expected_s(state.training.recent, tokens)
    return Running(
        step=running.step, example=running.examples[0], examples=len(running.examples), tokens=tokens,
        elapsed_s=_since_s(running.started_ns, now_ns), expected_s=None if expected is None else round(expected, 3),
    )  # fmt: skip


def _start(state: State, now_ns: int, progress: Progress) -> Start | None:
    """The phase of the start or comparison that steps wait for, if any."""
    engine, trainer, alignment = state.children.engine, state.children.trainer, state.alignment
    if engine.phase == "spawned":
        phase, since_ns = "compiling" if progress.loaded else "loading", engine.spawned_ns
    elif trainer.phase == "spawned" and state.children.bound is None:
        phase, since_ns = "attaching", trainer.spawned_ns
    elif trainer.phase == "spawned":
        back = state.rollback.under_way is not None
        phase, since_ns = "restoring", state.rollback.started_ns if back else trainer.spawned_ns
    elif alignment.waited_for:
        phase, since_ns = "aligning", alignment.opened_ns
    else:
        return None
    elapsed_s, steps = _since_s(since_ns, now_ns), [done.step for done in state.recovery.since]
    if phase == "restoring" and progress.replaying in steps:
        done = steps.index(progress.replaying)
        return Start(phase="replaying", elapsed_s=elapsed_s, done=done, of=len(steps))
    return Start(phase=phase, elapsed_s=elapsed_s)


def _process(child: Child) -> Process:
    return Process(
        pid=child.pid or None,
        ready=child.phase == "ready",
        restarts=max(0, child.spawns - 1),
        given_up=child.given_up,
        error=child.error,
    )


def _engine(state: State) -> Engine:
    facts = state.children.engine_facts
    process = msgspec.structs.asdict(_process(state.children.engine))
    return Engine(
        **process, url=facts.url if facts else "", model=facts.model if facts else "", path=state.children.engine_dir
    )


def _weights(state: State, served: int | UnsetType | None) -> Weights:
    facts, bound, settings = state.children.engine_facts, state.children.bound, state.daemon.settings
    return Weights(
        bridge=facts.bridge if facts else "",
        parameters=facts.parameters if facts else 0,
        live=facts.live if facts else 0,
        cast=facts.cast if facts else 0,
        rederive=facts.rederive if facts else 0,
        frozen=facts.frozen if facts else 0,
        trained=bound.parameters if bound else 0,
        bytes=facts.bytes if facts else 0,
        elements=bound.elements if bound else 0,
        fingerprint=state.training.fingerprint,
        base_fingerprint=state.recovery.base_fingerprint,
        version=state.training.version,
        publish=settings.trainer.publish if settings else "",
        cache=settings.trainer.cache if settings else "",
        paused=state.publishing.engine_paused,
        alignment=_alignment(state),
        served=served,
    )


def _alignment(state: State) -> Alignment | None:
    a = state.alignment.measured
    if a is None:
        return None
    return Alignment(
        step=a.step,
        aligned=a.aligned,
        mean_abs_diff=a.mean_abs_diff,
        max_abs_diff=a.max_abs_diff,
        tokens=a.tokens,
        bound=a.bound,
        seconds=a.seconds,
        usual=a.usual,
        same_at=state.alignment.same,
    )


def _queue(state: State) -> Queue:
    steps, lines, decided = state.training.counts, state.intake.counts, state.review.counts
    forgetting, now = state.forgetting, state.forgetting.under_way
    return Queue(
        pending=state.queued, held=len(state.review.held) + steps.held, trained=steps.trained, skipped=steps.skipped,
        undone=len(state.intake.undone), withdrawn=len(state.intake.withdrawn), declined=decided.declined,
        edited=decided.edited, expired=decided.expired, rejected=lines.rejected, duplicates=lines.duplicates,
        accepted=lines.accepted, forgetting=len(forgetting.wanted) + (len(now.wishes) if now else 0),
        unforgotten=len(forgetting.refused),
    )  # fmt: skip


def _blocked(state: State) -> dict[str, Blocked]:
    return {
        path: Blocked(reason=one.reason, hint=one.hint, mode=one.mode, since=one.since_ns / SECOND_NS)
        for path, one in state.intake.blocked.items()
    }


def _schedule(state: State) -> Schedule:
    own, settings = state.schedule, state.daemon.settings
    if settings is None or not settings.schedule.nightly:
        return Schedule()
    opens, closes = (own.planned.opens_ns, own.until_ns or own.planned.closes_ns) if own.planned else (None, None)
    return Schedule(
        nightly=settings.schedule.nightly, zone=settings.schedule.zone, open=own.open, steps=own.steps,
        late=bool(own.until_ns), dream=settings.schedule.dream,
        opens_at=None if opens is None else opens / SECOND_NS, closes_at=None if closes is None else closes / SECOND_NS,
    )  # fmt: skip


def _bootstrap(state: State, read: ReadSoFar | None) -> Bootstrap | None:
    current, recent = state.bootstrap.current, state.training.recent
    if current is None:
        return None
    if current.phase == "reading":
        share = read.bytes / read.of_bytes if read is not None and read.of_bytes else None
        files, bytes_ = (read.of_files, read.of_bytes) if read is not None else (None, None)
    else:
        share, files, bytes_ = 1.0, current.files, current.bytes
        read = ReadSoFar(files, files, bytes_, bytes_)
    tokens, waiting = typical_tokens(recent, state.intake.bulk.waiting), len(current.waiting)
    seconds = left_s(recent, tokens, waiting, current.counts.accepted, share) if current.under_way else None
    come = to_come(current.counts.accepted, share) if current.phase != "stopped" else None
    course = state.dreams.courses.get(current.request.pattern)
    tested = course is not None and bool(course.bootstraps) and not course.due
    return Bootstrap(
        path=current.request.path, state=current.phase, reason=current.reason, strip=current.request.strip,
        files=files, files_read=read.files if read else 0, bytes=bytes_,
        bytes_read=read.bytes if read else 0, unread=current.unread, waiting=waiting,
        **msgspec.structs.asdict(current.counts),
        left=None if come is None else waiting + come, pattern=current.request.pattern,
        pattern_state=course.phase if course is not None else "",
        pattern_tests={mode: [*rate] for mode, rate in course.final.items()} if course is not None and tested else None,
        left_s=None if seconds is None else round(seconds, 3),
    )  # fmt: skip


def _dreams(state: State, now_ns: int) -> Dreams:
    own, settings = state.dreams, state.daemon.settings
    phases = Counter(course.phase for course in own.courses.values())
    return Dreams(
        mode=settings.dream.mode if settings is not None else "", reason=prospect.reason(state, now_ns),
        active=phases["active"], settled=phases["settled"], retired=phases["retired"], pattern=own.turn,
        dream=own.open.id if own.open is not None else "", stage=own.open.stage if own.open is not None else "",
        next=prospect.upcoming(state), today=own.of_day if own.day == now_ns // DAY_NS else 0, total=own.number,
        share=_rounded(sum(own.learned) / len(own.learned)) if own.learned else None, error=own.error,
    )  # fmt: skip


def _optimizer(state: State) -> Optimizer:
    settings, bound = state.daemon.settings, state.children.bound
    if settings is None:
        return Optimizer(name="", rank=0, state_bytes=state.children.state_bytes)
    trainer = settings.trainer
    return Optimizer(
        name=trainer.name, rank=trainer.rank, lr=trainer.lr, lr_direct=trainer.direct_rate,
        state_bytes=state.children.state_bytes, products=bound.products if bound else "",
    )  # fmt: skip


def _checkpoint(state: State, now_ns: int) -> Checkpoint:
    newest, due = state.checkpoints.newest, due_ns(state, now_ns)
    return Checkpoint(
        step=newest.step if newest else None,
        at=newest.at_ns / SECOND_NS if newest else None,
        fingerprint=newest.fingerprint if newest else None,
        path=newest.path if newest else None,
        steps_since=len(state.recovery.since),
        kept=len(state.checkpoints.committed),
        bytes=sum(c.bytes for c in state.checkpoints.committed),
        due_in_s=None if due is None else round(max(0, due - now_ns) / SECOND_NS, 3),
    )


def _rollback(state: State) -> Rollback | None:
    wanted, back = state.rollback.wanted, state.rollback.under_way
    if back is not None:
        return Rollback(to=back.to, from_=back.from_step, state="started")
    return Rollback(to=wanted.to, from_=state.training.version, state="requested") if wanted is not None else None


def _base(state: State) -> Base:
    base = state.recovery.base
    if base is not None:
        return Base(kept=True, path=base.path, how=base.how)
    off = state.daemon.settings is not None and state.daemon.settings.checkpoint.keep_base == "off"
    return Base(reason=state.recovery.base_lost or ('[checkpoint] keep_base = "off"' if off else "not kept yet"))


def _judge(state: State) -> Judge:
    own, settings = state.judging, state.daemon.settings
    if settings is None or settings.judge.mode == "off":
        return Judge(waiting=len(own.waiting), verdicts=own.verdicts)
    doubt, found = distrust(own, settings.judge.trust_min), agreement(own)
    low, high = found.interval if found.figure is not None else (None, None)
    return Judge(
        mode=settings.judge.mode, model=own.judge.model, trusted=not doubt,
        reason=own.error or doubt or blocked(Activity.JUDGING, state),
        agreement=_rounded(found.figure), low=_rounded(low), high=_rounded(high), good=found.of_good, bad=found.of_bad,
        waiting=len(own.waiting), asked=len(own.open), verdicts=own.verdicts, failures=own.retry.failures,
    )  # fmt: skip


def _holding(state: State) -> Holding:
    own, settings = state.holding, state.daemon.settings
    if settings is None or not settings.lessons.hold:
        return Holding()
    usable = [one for one in own.anchors.values() if one.digest]
    measured = any(one.moved is not None for one in own.anchors.values())
    return Holding(
        hold=settings.lessons.hold, anchors=len(usable), approved=sum(one.sort == "approved" for one in usable),
        missing=sum(1 for _ in missing(state)), moved=round(drift_of(own), 6) if measured else None, reason=own.error,
    )  # fmt: skip


def _follow_ups(state: State) -> FollowUps:
    own, settings = state.followups, state.daemon.settings
    if settings is None or settings.signals.score == "off":
        return FollowUps()
    found = own.measured
    return FollowUps(
        score=settings.signals.score, used=found is not None and found.used, waiting=len(own.waiting),
        reason=unused(state) or own.error or (blocked(Activity.FOLLOW_UPS, state) if own.waiting else ""),
        right=counts_of(found).right if found is not None else 0, cases=found.cases if found is not None else 0,
    )  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
