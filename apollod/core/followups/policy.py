"""Choose the next follow-up to ask the served model about, and turn its answers into evidence.

Law: follow-ups are asked about, and answers become evidence, only while the model passes calibration on labelled
cases. One question at a time, the newest follow-up first; no other activity waits for it.
"""

from collections.abc import Iterator

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.followups.calibration import counts_of, measured, shortfall, threshold_of
from apollod.core.followups.fold import ATTEMPTS_MAX
from apollod.core.followups.state import CASES
from apollod.core.intake.by_evidence import decided_since
from apollod.core.intake.evidence import BY_SCORE, BY_SCORE_STRENGTH
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.kernel.reasons import one_line
from apollod.core.state import State

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
            yield ev.FollowUpNoted(
                example=example, signal=one.id, answer=one.answer, text=one.followed or one.quote,
                source=batch.source, line=line.number, session=one.session, records=one.records, quote=one.quote,
                also=also,
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
        ev.FollowUpsCalibrated(
            question=own.question, step=state.training.version, threshold=threshold_of(input_.told),
            cases=found.cases, rejecting=found.rejecting, flagged=found.flagged, hits=found.hits,
            used=not shortfall(found), told=input_.told, weights_version=input_.weights_version,
            seconds=input_.seconds,
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
    scored = ev.FollowUpScored(
        example=example, signal=noted.signal, odds=input_.odds, threshold=threshold,
        rejected=input_.odds >= threshold, weights_version=input_.weights_version, seconds=input_.seconds,
    )  # fmt: skip
    if not scored.rejected:
        return Outcome([scored], [])
    flagged = composed(
        ev.SignalFlagged, noted, cue=BY_SCORE, polarity="correction", strength=BY_SCORE_STRENGTH, example=example,
        followed=noted.text if noted.text != noted.quote else "",
    )  # fmt: skip
    return Outcome([scored, flagged, *decided_since(state, [flagged])], [])


HANDLERS: Handlers = {inp.LinesRead: _on_lines, inp.CasesDone: _on_cases, inp.FollowUpDone: _on_done}
