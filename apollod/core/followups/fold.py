"""Fold events into the queue of follow-ups and the calibration of the model's answers."""

from apollod.core.daemon.events import DaemonStarted
from apollod.core.followups.events import (
    FollowUpFailed,
    FollowUpNoted,
    FollowUpRequested,
    FollowUpsCalibrated,
    FollowUpScored,
)
from apollod.core.followups.state import CASES, FollowUpsState
from apollod.core.intake.events import ExampleRejected, ExampleWithdrawn
from apollod.core.kernel.folding import Folds
from apollod.core.review.events import ExampleDeclined, ExampleEdited, ExampleExpired, ExampleHeld
from apollod.core.schedules import NO_FAILURE, RETRY_MAX_S, backoff_s
from apollod.core.state import State

WAITING_MAX = 200
"""Waiting follow-ups to keep; beyond that the oldest are dropped."""
DONE_MAX = 10_000
ATTEMPTS_MAX = 2
"""Attempts per question: one left open by a crash is asked once more."""


def _daemon_started(own: FollowUpsState, state: State, e: DaemonStarted, at_ns: int) -> None:
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


def _noted(own: FollowUpsState, state: State, e: FollowUpNoted, at_ns: int) -> None:
    own.waiting.pop(e.example, None)
    own.waiting[e.example] = e.signal
    if len(own.waiting) > WAITING_MAX:
        oldest = next(iter(own.waiting))
        del own.waiting[oldest]
        own.attempts.pop(oldest, None)


def _out(own: FollowUpsState, state: State, e: ExampleHeld | ExampleDeclined | ExampleEdited, at_ns: int) -> None:
    """Drop the follow-up of an example that was decided, or that is held for a person's or judge's decision."""
    if isinstance(e, ExampleHeld) and e.waits_for == "evidence":
        return
    own.waiting.pop(e.example, None)


def _rejected(own: FollowUpsState, state: State, e: ExampleRejected, at_ns: int) -> None:
    own.waiting.pop(e.example, None)


def _all_out(own: FollowUpsState, state: State, e: ExampleExpired | ExampleWithdrawn, at_ns: int) -> None:
    for example in e.examples if own.waiting else ():
        own.waiting.pop(example, None)


def _requested(own: FollowUpsState, state: State, e: FollowUpRequested, at_ns: int) -> None:
    own.open, own.attempts[e.example] = e.example, e.attempt


def _asked(own: FollowUpsState, example: str) -> None:
    own.attempts.pop(example, None)
    if (signal := own.waiting.pop(example, "")) != "":
        own.done[signal] = None
        if len(own.done) > DONE_MAX:
            del own.done[next(iter(own.done))]


def _scored(own: FollowUpsState, state: State, e: FollowUpScored, at_ns: int) -> None:
    own.open, own.error, own.retry = None, "", NO_FAILURE
    _asked(own, e.example)


def _failed(own: FollowUpsState, state: State, e: FollowUpFailed, at_ns: int) -> None:
    own.open, own.error = None, e.reason
    if e.given_up:
        _asked(own, e.example)
    elif e.example == CASES:
        own.attempts.pop(CASES, None)
    if e.given_up and e.example == CASES:
        own.given_up = state.training.version
    if e.in_a_row:
        own.retry = own.retry.after(at_ns, backoff_s(e.in_a_row, RETRY_MAX_S), e.in_a_row)


def _calibrated(own: FollowUpsState, state: State, e: FollowUpsCalibrated, at_ns: int) -> None:
    own.open, own.error, own.retry, own.given_up = None, "", NO_FAILURE, None
    own.attempts.pop(CASES, None)
    own.measured = e
    if not e.used:
        own.waiting, own.attempts = {}, {}


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    FollowUpNoted: _noted,
    ExampleHeld: _out,
    ExampleDeclined: _out,
    ExampleEdited: _out,
    ExampleRejected: _rejected,
    ExampleExpired: _all_out,
    ExampleWithdrawn: _all_out,
    FollowUpRequested: _requested,
    FollowUpScored: _scored,
    FollowUpFailed: _failed,
    FollowUpsCalibrated: _calibrated,
}
