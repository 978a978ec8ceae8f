"""The exclusion table: for each activity, the obstacles that it waits for.

Law: a policy that begins something asks `blocked` first, and nothing else decides about it. A pause, the guard, a
schedule or a lease adds an obstacle here, with the reason that `status` shows; the policies stay as they are.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from apollod.core.facts.quality.looking import due
from apollod.core.facts.review import BY_EVIDENCE
from apollod.core.shared.missing_anchors import lacking
from apollod.core.shared.repeating import next_repeat
from apollod.core.state import State


class Activity(StrEnum):
    """An activity of the daemon that uses the weights."""

    STEP = "step"
    WINDOW_END = "window end"
    """end of the window when no example is left; waits for less than steps do, else a stop would leave the window
    open"""
    CHECKPOINT = "checkpoint"
    """an automatic one that is due; like a requested one, it may be written behind a running step"""
    REQUESTED_CHECKPOINT = "requested checkpoint"
    """one that a person or the shutdown asked for"""
    REMOVAL = "removal"
    """of old checkpoints"""
    ALIGNMENT = "alignment"
    ROLLBACK = "rollback"
    RECOVERY = "recovery"
    """a trainer is started, and brings weights and optimizer to the last step"""
    LEASE = "lease"
    """an outside trainer updates the weights"""
    UPDATE = "update"
    """the step that writes what it sent"""
    MEASUREMENT = "measurement"
    """probes of quality on unchanging weights"""
    DREAMING = "dreaming"
    ROLLOUTS = "rollouts"
    """answers to an environment's prompts are sampled"""
    TEACHING = "teaching"
    """the next call for a lesson; its steps wait for what every step waits for"""
    SCORING = "scoring"
    """the engine is asked how probable an answer is; nothing waits for that"""
    SECOND_SCORING = "second scoring"
    """scoring again after learning, by weights that learned it; the weights of a restarted engine have not, until a
    trainer has brought them to the last step"""
    RESCORING = "rescoring"
    """the trainer scores learned examples again; nothing waits for that"""
    RANKING = "ranking"
    """the trainer ranks examples by how far each would move the failed probes"""
    FREEZING = "freezing"
    """the engine is asked for the model's present answers, which later steps hold"""
    FOLLOW_UPS = "follow-ups"
    """the engine is asked whether a person's next message rejects an answer; nothing waits for that"""
    FORGETTING = "forgetting"
    """learned examples are removed from the weights"""
    JUDGING = "judging"
    """the judge is asked about an example or a planted case"""


class Obstacle(NamedTuple):
    """A condition that activities wait for. `reason` returns why, in plain words; empty: no obstacle."""

    name: str
    reason: Callable[[State], str]


def _stopping(state: State) -> str:
    return "the daemon is stopping" if state.daemon.stopping else ""


def _halted(state: State) -> str:
    return state.daemon.halted


def _paused(state: State) -> str:
    return f"paused by {state.daemon.paused_by or 'a person'}" if state.daemon.paused else ""


def _no_engine(state: State) -> str:
    return "the engine is not ready" if state.children.engine.phase != "ready" else ""


def _no_engine_process(state: State) -> str:
    return "the engine is not running" if state.children.engine.phase == "absent" else ""


def _no_trainer(state: State) -> str:
    return {
        "absent": "the trainer is not running", "spawned": "the trainer is not at the last step yet", "ready": ""
    }[state.children.trainer.phase]  # fmt: skip


def _day(state: State) -> str:
    """Bulk examples wait for the night; direct ones and innocent examples that an alarm took back do not."""
    settings = state.daemon.settings
    at_once = state.intake.at_once > 0 or next_repeat(state) is not None
    if settings is None or not settings.schedule.nightly or state.schedule.open or at_once:
        return ""
    if not state.intake.bulk.waiting:
        return ""
    return f"what came from files and logs is learned at night ({_night_hours(state)})"


def _leased(state: State) -> str:
    one = state.updates.session
    return f"{one.opened.by} updates the weights (update {one.number})" if one else ""


def _fence(state: State) -> str:
    return "requests wait for a fenced write" if state.publishing.engine_paused else ""


def _step(state: State) -> str:
    """Ignore a step whose trainer died: its intent is resumed or given up."""
    running = state.training.running
    return f"step {running.step} is running" if running and state.children.trainer.phase == "ready" else ""


def _checkpoint(state: State) -> str:
    open_ = state.checkpoints.open
    return f"the checkpoint of step {open_.step} is being written" if open_ else ""


def _orphaned_checkpoint(state: State) -> str:
    return "a checkpoint whose writer is gone has to be settled" if orphaned_checkpoint(state) else ""


def orphaned_checkpoint(state: State) -> bool:
    """True if a checkpoint is open whose writer is gone."""
    return state.checkpoints.open is not None and state.children.trainer.phase == "absent"


_COMPARED = "engine and trainer are being compared"


def _alignment(state: State) -> str:
    """Ignore a comparison that gives way or was overtaken: no step waits for it."""
    return _COMPARED if state.alignment.waited_for else ""


def _comparison(state: State) -> str:
    return _COMPARED if state.alignment.open else ""


def _difference(state: State) -> str:
    return "engine and trainer differ, and it is looked for where" if state.alignment.differs else ""


def _rollback_wanted(state: State) -> str:
    wanted = state.rollback.wanted
    return f"a rollback to step {wanted.to} is wanted" if wanted else ""


def _rollback(state: State) -> str:
    under_way = state.rollback.under_way
    return f"a rollback to step {under_way.to} is under way" if under_way else ""


def _recovery(state: State) -> str:
    return "a trainer is on its way to the last step" if state.children.trainer.phase == "spawned" else ""


def _no_judge(state: State) -> str:
    settings = state.daemon.settings
    if settings is None or (settings.judge.mode == "off" and not state.dreams.judged):
        return "there is no judge"
    return "" if state.judging.ready else "the judge was not read yet"


def _judge_waits_for_engine(state: State) -> str:
    """Wait for the engine only if the served model is the judge; another endpoint can judge at any time."""
    return _no_engine(state) if state.judging.served else ""


def _learning(state: State) -> str:
    """Ignore examples that wait during a pause or the day: no step begins then."""
    if state.training.running is not None:
        return f"step {state.training.running.step} is running"
    return "examples wait to be learned" if state.intake.pending and not _paused(state) and not _day(state) else ""


def _alarm(state: State) -> str:
    """Examples wait during an alarm; innocent ones are learned again."""
    incident = state.quality.incident
    if incident is None or next_repeat(state) is not None:
        return ""
    what = f"the quality guard raised alarm {incident.number} at step {incident.step} ({', '.join(incident.metrics)})"
    now = {
        "alarmed": f"the weights of step {incident.to} are wanted back",
        "restored": "the probes are asked of the weights that are back"
        if state.quality.unmeasured
        else "`apollod ctl quality incident show` tells of it, `apollod ctl resume` goes on",
        "searching": "no replay can be run, and the examples are ranked by how far each would move the probes"
        if incident.gave_up
        else f"replay {len(incident.replays)} of at most {incident.replays_max} looks for what did it",
        "named": incident.reason
        if incident.verdict == "rate"
        else f"`apollod ctl quality incident show {incident.number}` names them, `apollod ctl resume` goes on",
        "stuck": f"they cannot be had ({incident.reason}); `apollod ctl resume` goes on with what is there",
    }[incident.phase]
    return f"{what}: {now}"


def _incident(state: State) -> str:
    incident = state.quality.incident
    return f"alarm {incident.number} of the quality guard is not settled" if incident else ""


def _forgetting(state: State) -> str:
    one = state.forgetting.under_way
    return f"{len(one.wishes)} examples are being forgotten" if one else ""


def _hours(state: State) -> str:
    """Reason to wait for the nightly window before forgetting; empty: none. A person's request never waits."""
    settings, wanted = state.daemon.settings, state.forgetting.wanted
    if settings is None or not settings.schedule.nightly or state.schedule.open:
        return ""
    if any(wish.by != BY_EVIDENCE for wish in wanted.values()):
        return ""
    return f"what logs take back is forgotten at night ({_night_hours(state)})"


def _look_due(state: State) -> str:
    """Nothing is learned before a look that is due: weights stand still while they are looked at. A forgetting is
    looked at once it is over."""
    settings, own = state.daemon.settings, state.quality
    if (
        settings is None
        or own.incident is not None
        or state.forgetting.under_way is not None
        or not (own.open or due(own, settings.quality))
    ):
        return ""
    return f"the probes of quality are asked first{f' ({own.error})' if own.error else ''}"


def _no_dreams(state: State) -> str:
    """Allow dreams that a user requested in any mode."""
    own, settings = state.dreams, state.daemon.settings
    if not own.patterns_active:
        return "there is no pattern to dream of"
    if own.stopped:
        return f"{own.stopped} (`apollod ctl dream start` goes on)"
    off = settings is not None and settings.dream.mode == "off" and own.wanted is None
    return 'dreams are off ([dream] mode = "off")' if off else ""


def _dreams_by_night(state: State) -> str:
    """Let a dream under way finish. A night that is being caught up does not count."""
    settings, own = state.daemon.settings, state.dreams
    if settings is None or settings.schedule.dream != "night" or own.wanted is not None or own.open is not None:
        return ""
    night = state.schedule.open and not state.schedule.until_ns
    return "" if night else f"dreams begin at night ({_night_hours(state)})"


def _night_hours(state: State) -> str:
    settings, planned = state.daemon.settings, state.schedule.planned
    assert settings is not None
    hours = planned.hours if planned is not None else settings.schedule.nightly
    return f"{hours} {settings.schedule.zone or 'local time'}"


def _users(state: State) -> str:
    own, settings = state.dreams, state.daemon.settings
    if settings is None or settings.dream.mode != "idle" or own.wanted is not None or not own.users:
        return ""
    return own.users_reason or f"the engine was not idle for {settings.dream.idle_s:g} s"


STOPPING = Obstacle("stopping", _stopping)
HALTED = Obstacle("halted", _halted)
PAUSED = Obstacle("paused", _paused)
NO_ENGINE = Obstacle("no engine", _no_engine)
NO_ENGINE_PROCESS = Obstacle("no engine process", _no_engine_process)
NO_TRAINER = Obstacle("no trainer", _no_trainer)
FENCE = Obstacle("fence", _fence)
STEP = Obstacle("step", _step)
CHECKPOINT = Obstacle("checkpoint", _checkpoint)
ORPHANED_CHECKPOINT = Obstacle("orphaned checkpoint", _orphaned_checkpoint)
ALIGNMENT = Obstacle("alignment", _alignment)
COMPARISON = Obstacle("comparison", _comparison)
DIFFERENCE = Obstacle("difference", _difference)
DAY = Obstacle("day", _day)
ROLLBACK_WANTED = Obstacle("rollback wanted", _rollback_wanted)
ROLLBACK = Obstacle("rollback", _rollback)
RECOVERY = Obstacle("recovery", _recovery)
NO_JUDGE = Obstacle("no judge", _no_judge)
JUDGE_WAITS_FOR_ENGINE = Obstacle("judge waits for engine", _judge_waits_for_engine)
ALARM = Obstacle("alarm", _alarm)
LOOK_DUE = Obstacle("look due", _look_due)
ANCHORS = Obstacle("anchors", lacking)
INCIDENT = Obstacle("incident", _incident)
FORGETTING = Obstacle("forgetting", _forgetting)
HOURS = Obstacle("hours", _hours)
NO_DREAMS = Obstacle("no dreams", _no_dreams)
LEARNING = Obstacle("learning", _learning)
DREAMS_BY_NIGHT = Obstacle("dreams by night", _dreams_by_night)
USERS = Obstacle("users", _users)
LEASED = Obstacle("leased", _leased)

WAITS_FOR: Mapping[Activity, tuple[Obstacle, ...]] = {
    Activity.STEP: (
        STOPPING, HALTED, PAUSED, ALARM, LEASED, DAY, ROLLBACK_WANTED, ROLLBACK, NO_TRAINER, FENCE, ALIGNMENT, STEP,
        LOOK_DUE, ANCHORS,
    ),
    Activity.WINDOW_END: (ALARM, ROLLBACK_WANTED, ROLLBACK, NO_TRAINER, FENCE, STEP),  # the engine is told its version
    Activity.CHECKPOINT: (
        STOPPING, HALTED, ROLLBACK_WANTED, ROLLBACK, NO_TRAINER, FENCE, COMPARISON, CHECKPOINT,
    ),
    Activity.REQUESTED_CHECKPOINT: (NO_TRAINER, CHECKPOINT),
    Activity.REMOVAL: (STOPPING, ROLLBACK_WANTED, ROLLBACK, CHECKPOINT),
    Activity.ALIGNMENT: (
        STOPPING, HALTED, ROLLBACK_WANTED, ROLLBACK, NO_ENGINE, NO_TRAINER, FENCE, STEP, CHECKPOINT, COMPARISON,
    ),
    Activity.ROLLBACK: (STOPPING, RECOVERY, STEP, DIFFERENCE),
    Activity.RECOVERY: (STOPPING, HALTED, NO_ENGINE_PROCESS, ROLLBACK_WANTED, ORPHANED_CHECKPOINT),
    Activity.LEASE: (STOPPING, HALTED, PAUSED, INCIDENT, FORGETTING, NO_ENGINE, LOOK_DUE),
    Activity.UPDATE: (
        STOPPING, HALTED, ROLLBACK_WANTED, ROLLBACK, NO_ENGINE, NO_TRAINER, FENCE, ALIGNMENT, STEP, LOOK_DUE,
    ),
    Activity.MEASUREMENT: (
        STOPPING, HALTED, FORGETTING, NO_ENGINE, NO_TRAINER, FENCE, STEP, ALIGNMENT, ROLLBACK_WANTED, ROLLBACK,
    ),  # without a trainer: one that died in a step may have left half of it in the weights
    Activity.DREAMING: (
        STOPPING, HALTED, PAUSED, NO_DREAMS, DREAMS_BY_NIGHT, NO_ENGINE, FENCE, ROLLBACK_WANTED, ROLLBACK, USERS,
    ),
    Activity.ROLLOUTS: (
        STOPPING, HALTED, PAUSED, INCIDENT, NO_ENGINE, NO_TRAINER, FENCE, ROLLBACK_WANTED, ROLLBACK, LOOK_DUE, ANCHORS,
    ),  # as steps do for longer than one of them: groups would age, and keep the engine from what steps wait for
    Activity.TEACHING: (
        STOPPING, HALTED, PAUSED, INCIDENT, FORGETTING, NO_ENGINE, NO_TRAINER, FENCE, ROLLBACK_WANTED, ROLLBACK,
    ),  # without a trainer: an engine that was started again does not have the last step
    Activity.SCORING: (STOPPING, NO_ENGINE, FENCE, ROLLBACK_WANTED, ROLLBACK),
    Activity.SECOND_SCORING: (STOPPING, NO_ENGINE, NO_TRAINER, FENCE, ROLLBACK_WANTED, ROLLBACK, LEARNING),
    Activity.RESCORING: (
        STOPPING, HALTED, INCIDENT, FORGETTING, NO_TRAINER, FENCE, COMPARISON, ROLLBACK_WANTED, ROLLBACK, LEARNING,
    ),
    Activity.RANKING: (STOPPING, HALTED, NO_TRAINER, FENCE, STEP, ROLLBACK_WANTED, ROLLBACK),
    Activity.FREEZING: (STOPPING, HALTED, NO_ENGINE, NO_TRAINER, FENCE, STEP, ROLLBACK_WANTED, ROLLBACK),
    Activity.FOLLOW_UPS: (STOPPING, NO_ENGINE, FENCE, ROLLBACK_WANTED, ROLLBACK),
    Activity.FORGETTING: (
        STOPPING, HALTED, PAUSED, INCIDENT, LEASED, HOURS, ROLLBACK_WANTED, ROLLBACK, NO_TRAINER, FENCE, ALIGNMENT,
        STEP, LOOK_DUE,
    ),
    Activity.JUDGING: (STOPPING, NO_JUDGE, JUDGE_WAITS_FOR_ENGINE),
}  # fmt: skip
"""Obstacles in the order in which reasons are shown: the longest-lasting first."""


SHOWN = (
    Activity.STEP, Activity.CHECKPOINT, Activity.ALIGNMENT, Activity.ROLLBACK, Activity.RECOVERY, Activity.DREAMING,
    Activity.TEACHING, Activity.ROLLOUTS,
)  # fmt: skip
"""Activities that `status` shows: those the daemon begins by itself. Dreaming needs a pattern, teaching a lesson,
rollouts an environment."""


def reasons(state: State) -> dict[str, str]:
    """Reason why each activity cannot begin now, for `status`; empty where it can."""
    idle = {
        Activity.DREAMING: not state.dreams.patterns_active, Activity.TEACHING: not state.lessons.lessons,
        Activity.ROLLOUTS: not state.environments.named,
    }  # fmt: skip
    return {activity.value: blocked(activity, state) for activity in SHOWN if not idle.get(activity)}


def blocked(activity: Activity, state: State) -> str:
    """The reason why `activity` cannot begin now; empty when it can."""
    return next((reason for obstacle in WAITS_FOR[activity] if (reason := obstacle.reason(state))), "")
