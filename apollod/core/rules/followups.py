"""Follow-ups: the served model scores whether a user's next message rejects an answer, where no phrase decides it.
Decisions, folds and status.

Law: follow-ups are asked about, and answers become evidence, only while the model passes calibration on labelled
cases. One question at a time, the newest follow-up first; no other activity waits for it.
"""

from collections.abc import Iterator

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.facts.followups import CASES, FollowUpsState, counts_of, measured, shortfall, threshold_of
from apollod.core.facts.intake.events import BY_SCORE, BY_SCORE_STRENGTH
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.rules.intake.by_evidence import decided_since
from apollod.core.schedules import NO_FAILURE, RETRY_MAX_S, backoff_s
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------

WAITING_MAX = 200
"""Waiting follow-ups to keep; beyond that the oldest are dropped."""
DONE_MAX = 10_000
ATTEMPTS_MAX = 2
"""Attempts per question: one left open by a crash is asked once more."""


def _daemon_started(own: FollowUpsState, state: State, e: ev.DaemonStarted, at_ns: int) -> None:
    asked_by = e.settings.model_path, e.follow_up_question
    if asked_by != (own.model, own.question):
        (own.model, own.question), own.measured = asked_by, None
    own.retry = NO_FAILURE
    own.given_up, own.error = None, ""
    if own.open is not None and own.attempts.get(own.open, 0) >= ATTEMPTS_MAX:
        if own.open == CASES:
            own.given_up, own.error = state.training.version, "the daemon ended twice before the answer"
        _asked(own, own.open)
    own.open = None
    if e.settings.signals.score == "off":
        own.waiting, own.attempts = {}, {}


def _fold_noted(own: FollowUpsState, state: State, e: ev.FollowUpNoted, at_ns: int) -> None:
    own.waiting.pop(e.example, None)
    own.waiting[e.example] = e.signal
    if len(own.waiting) > WAITING_MAX:
        oldest = next(iter(own.waiting))
        del own.waiting[oldest]
        own.attempts.pop(oldest, None)


def _out(
    own: FollowUpsState, state: State, e: ev.ExampleHeld | ev.ExampleDeclined | ev.ExampleEdited, at_ns: int
) -> None:
    """Drop the follow-up of an example that was decided, or that is held for a person's or judge's decision."""
    if isinstance(e, ev.ExampleHeld) and e.waits_for == "evidence":
        return
    own.waiting.pop(e.example, None)


def _rejected(own: FollowUpsState, state: State, e: ev.ExampleRejected, at_ns: int) -> None:
    own.waiting.pop(e.example, None)


def _all_out(own: FollowUpsState, state: State, e: ev.ExampleExpired | ev.ExampleWithdrawn, at_ns: int) -> None:
    for example in e.examples if own.waiting else ():
        own.waiting.pop(example, None)


def _requested(own: FollowUpsState, state: State, e: ev.FollowUpRequested, at_ns: int) -> None:
    own.open, own.attempts[e.example] = e.example, e.attempt


def _asked(own: FollowUpsState, example: str) -> None:
    own.attempts.pop(example, None)
    if (signal := own.waiting.pop(example, "")) != "":
        own.done[signal] = None
        if len(own.done) > DONE_MAX:
            del own.done[next(iter(own.done))]


def _scored(own: FollowUpsState, state: State, e: ev.FollowUpScored, at_ns: int) -> None:
    own.open, own.error, own.retry = None, "", NO_FAILURE
    _asked(own, e.example)


def _fold_failed(own: FollowUpsState, state: State, e: ev.FollowUpFailed, at_ns: int) -> None:
    own.open, own.error = None, e.reason
    if e.given_up:
        _asked(own, e.example)
    elif e.example == CASES:
        own.attempts.pop(CASES, None)
    if e.given_up and e.example == CASES:
        own.given_up = state.training.version
    if e.in_a_row:
        own.retry = own.retry.after(at_ns, backoff_s(e.in_a_row, RETRY_MAX_S), e.in_a_row)


def _calibrated(own: FollowUpsState, state: State, e: ev.FollowUpsCalibrated, at_ns: int) -> None:
    own.open, own.error, own.retry, own.given_up = None, "", NO_FAILURE, None
    own.attempts.pop(CASES, None)
    own.measured = e
    if not e.used:
        own.waiting, own.attempts = {}, {}


FOLDS: Folds = {
    ev.DaemonStarted: _daemon_started,
    ev.FollowUpNoted: _fold_noted,
    ev.ExampleHeld: _out,
    ev.ExampleDeclined: _out,
    ev.ExampleEdited: _out,
    ev.ExampleRejected: _rejected,
    ev.ExampleExpired: _all_out,
    ev.ExampleWithdrawn: _all_out,
    ev.FollowUpRequested: _requested,
    ev.FollowUpScored: _scored,
    ev.FollowUpFailed: _fold_failed,
    ev.FollowUpsCalibrated: _calibrated,
}


# --- decisions -------------------------------------------------------------------------------------------------------

RECALIBRATE_STEPS = 500
"""Steps after which the served model counts as changed and is calibrated again."""
CASES_FAILURES_MAX = 5
"""Failures in a row after which calibration is given up."""


def _is_stale(state: State, step: int) -> bool:
    return abs(state.training.version - step) >= RECALIBRATE_STEPS


def _is_on(state: State) -> bool:
    return state.daemon.settings is not None and state.daemon.settings.signals.score == "auto"


def _to_measure(state: State) -> bool:
    """True if the model has to be calibrated before any follow-up is asked about."""
    own = state.followups
    return own.measured is None or _is_stale(state, own.measured.step)


def unused(state: State) -> str:
    """Reason not to ask the served model about follow-ups; empty: none, or calibration is next."""
    own = state.followups
    if not _is_on(state):
        return '[signals] score = "off"'
    if _to_measure(state):
        return own.error if own.given_up is not None and not _is_stale(state, own.given_up) else ""
    assert own.measured is not None
    return "" if own.measured.used else shortfall_of(own.measured)


def shortfall_of(found: ev.FollowUpsCalibrated) -> str:
    """Reason why calibration failed, with the figures."""
    return shortfall(counts_of(found))


def advance(state: State, now_ns: int) -> Outcome:
    """The next question, if one may be asked."""
    own = state.followups
    if not own.waiting or own.open is not None or unused(state) or blocked(Activity.FOLLOW_UPS, state):
        return nothing()
    if not own.retry.is_due(now_ns):
        return nothing()
    example = CASES if _to_measure(state) else next(reversed(own.waiting))
    asked = ev.FollowUpRequested(example=example, attempt=own.attempts.get(example, 0) + 1)
    return Outcome([asked], [fx.ScoreFollowUp(example)])


def _on_lines(state: State, input_: inp.LinesRead, now_ns: int) -> Outcome:
    if input_.batch.learn == "all" or unused(state):
        return nothing()
    return Outcome(list(_noted(state, input_)), [])


def _noted(state: State, input_: inp.LinesRead) -> Iterator[ev.Event]:
    """Record the follow-ups of this batch that belong to an accepted example and were not asked about yet."""
    own, batch = state.followups, input_.batch
    keys = ((key, line.example) for line in batch.lines for one in line.responses for key in one.keys)
    learned = {**dict(reversed(list(keys))), **input_.responses}
    known = {*input_.flagged, *own.done, *own.waiting.values()}
    for line in batch.lines:
        for one in line.unscored:
            example = learned.get(one.answer, "")
            decided = example in state.review.approved or example in state.review.dismissed
            if not example or decided or one.id in known:
                continue
            known.add(one.id)
            parts = (learned.get(inp.part_key(one.answer, part), "") for part in range(1, inp.PARTS_MAX))
            also = tuple(dict.fromkeys(part for part in parts if part and part != example))
            yield composed(
                ev.FollowUpNoted, one, example=example, signal=one.id, text=one.followed or one.quote,
                source=batch.source, line=line.number, also=also,
            )  # fmt: skip


def _on_cases(state: State, input_: inp.CasesDone, now_ns: int) -> Outcome:
    own = state.followups
    if own.open != CASES:
        return nothing()
    if input_.error:
        in_a_row = own.retry.failures + 1 if input_.retryable else 0
        given_up = not input_.retryable or in_a_row >= CASES_FAILURES_MAX
        return _failed(CASES, input_.error, given_up, in_a_row)
    found = measured(input_.told)
    return Outcome([
        composed(
            ev.FollowUpsCalibrated, input_, **found._asdict(), question=own.question, step=state.training.version,
            threshold=threshold_of(input_.told), used=not shortfall(found),
        )
    ], [])  # fmt: skip


def _failed(example: str, reason: str, given_up: bool, in_a_row: int) -> Outcome:
    return Outcome([ev.FollowUpFailed(example, one_line(reason), given_up, in_a_row)], [])


def _on_done(state: State, input_: inp.FollowUpDone, now_ns: int) -> Outcome:
    """Ignore an answer to a question that was asked before the daemon restarted."""
    own, example, noted = state.followups, input_.example, input_.noted
    if own.open != example or own.measured is None:
        return nothing()
    if noted is None:
        given_up = not input_.retryable or own.attempts.get(example, 0) >= ATTEMPTS_MAX
        return _failed(example, input_.error, given_up, own.retry.failures + 1 if input_.retryable else 0)
    threshold = own.measured.threshold
    rejected = input_.odds >= threshold
    scored = composed(ev.FollowUpScored, noted, input_, threshold=threshold, rejected=rejected)
    if not scored.rejected:
        return Outcome([scored], [])
    flagged = composed(
        ev.SignalFlagged, noted, cue=BY_SCORE, polarity="correction", strength=BY_SCORE_STRENGTH, example=example,
        followed=noted.text if noted.text != noted.quote else "",
    )  # fmt: skip
    return Outcome([scored, flagged, *decided_since(state, [flagged])], [])


HANDLERS: Handlers = {inp.LinesRead: _on_lines, inp.CasesDone: _on_cases, inp.FollowUpDone: _on_done}


# --- status ----------------------------------------------------------------------------------------------------------


class FollowUps(msgspec.Struct, frozen=True, kw_only=True):
    """Scoring of follow-ups by the served model, where no cue decides."""

    score: str = "off"
    """as in [signals]"""
    used: bool = False
    """the model passed calibration on labelled cases"""
    reason: str = ""
    """why it is not used, or not asked now; empty: all is well"""
    right: int = 0
    """right answers among `cases`, in the last calibration"""
    cases: int = 0
    waiting: int = 0
    """follow-ups that it was not asked about yet"""


def status(state: State) -> FollowUps:
    """The last calibration, and the number of waiting follow-ups."""
    own, settings = state.followups, state.daemon.settings
    if settings is None or settings.signals.score == "off":
        return FollowUps()
    found = own.measured
    return FollowUps(
        score=settings.signals.score, used=found is not None and found.used, waiting=len(own.waiting),
        reason=unused(state) or own.error or (blocked(Activity.FOLLOW_UPS, state) if own.waiting else ""),
        right=counts_of(found).right if found is not None else 0, cases=found.cases if found is not None else 0,
    )  # fmt: skip
