"""Follow-ups: the served model scores whether a user's next message rejects an answer, where no phrase decides it.
Events, inputs, effects and state.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

import msgspec

from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event, ExampleEvent
from apollod.core.kernel.input import Input
from apollod.core.rates import Z_95_ONE_SIDED, wilson
from apollod.core.schedules import NO_FAILURE, Retry

# --- events ----------------------------------------------------------------------------------------------------------


class FollowUpNoted(ExampleEvent, frozen=True):
    """A log holds the user's message after an example's answer, and no cue decides it. `signal`: id of the evidence if
    the model finds that the answer is rejected; the other fields as of `SignalFlagged`."""

    kind: ClassVar[str] = "followup.noted"
    signal: str
    answer: str
    text: str
    """the user's message, as far as it is kept"""
    source: str
    line: int
    session: str = ""
    records: tuple[str, ...] = ()
    quote: str = ""
    also: tuple[str, ...] = ()


class FollowUpRequested(ExampleEvent, frozen=True):
    """Intent: the served model is asked about an example's follow-up, or (empty) about all labelled cases; `attempt`
    counts from 1."""

    kind: ClassVar[str] = "followup.requested"
    attempt: int = 1


class FollowUpScored(ExampleEvent, frozen=True):
    """`odds`: log-probability of yes minus that of no to the question whether the answer is rejected. `rejected`:
    `odds` are at least `threshold`, and `signal.flagged` follows."""

    kind: ClassVar[str] = "followup.scored"
    signal: str
    odds: float
    threshold: float
    rejected: bool
    weights_version: int
    seconds: float = 0.0


class FollowUpFailed(ExampleEvent, frozen=True):
    """The follow-up, or (empty) the cases could not be scored. `given_up`: not asked again; cases not before the model
    changes or the daemon restarts. `in_a_row`: consecutive failures of the engine to answer."""

    kind: ClassVar[str] = "followup.failed"
    reason: str
    given_up: bool
    in_a_row: int = 0


class Known(msgspec.Struct, frozen=True, gc=False):
    """A labelled case, and the model's answer to it."""

    odds: float
    rejects: bool


class FollowUpsCalibrated(Event, frozen=True):
    """Accuracy of the served model on cases, after `step`. Each counted case was classified by a threshold chosen
    without it. `threshold`: the one for real follow-ups."""

    kind: ClassVar[str] = "followup.calibrated"
    question: str
    """digest of question and cases"""
    step: int
    threshold: float
    cases: int
    rejecting: int
    flagged: int
    """called rejecting"""
    hits: int
    """of these, correctly"""
    used: bool
    """follow-ups are asked about"""
    told: tuple[Known, ...]
    weights_version: int
    seconds: float = 0.0


# --- calibration -----------------------------------------------------------------------------------------------------
# Calibration of the follow-up classifier on labelled cases: threshold, precision and recall.
#
# Two-fold cross-validation: the cases of each label are split in halves, and the threshold chosen on one half
# classifies the other, so that no case is counted that influenced the choice. Real follow-ups use the threshold chosen
# on all cases.

PRECISION_MIN = 0.8
"""the least precision that the one-sided 95 % lower bound has to reach"""
RECALL_MIN = 0.5
FALSE_ALARM = 2
"""Cost of a false positive when a threshold is chosen, in true positives."""


class Counts(NamedTuple):
    """Counts of cases: all, rejecting (positives), called rejecting, and correctly called so (true positives)."""

    cases: int
    rejecting: int
    flagged: int
    hits: int

    @property
    def right(self) -> int:
        return self.cases - self.rejecting - self.flagged + 2 * self.hits


def threshold_of(told: Sequence[Known]) -> float:
    """Choose the threshold that maximises true positives minus weighted false positives: a midpoint between two
    neighbouring scores, or one above all; the highest on a tie. Raises ValueError without answers."""
    odds = sorted({one.odds for one in told}, reverse=True)
    places = [odds[0] + 1.0, *((above + below) / 2 for above, below in pairwise(odds))]
    return max(places, key=lambda place: _worth(told, place))


def _worth(told: Sequence[Known], threshold: float) -> int:
    found = counted(told, threshold)
    return found.hits - FALSE_ALARM * (found.flagged - found.hits)


def counted(told: Sequence[Known], threshold: float) -> Counts:
    """Count the cases that this threshold calls rejecting, and how many of them correctly."""
    flagged = [one.rejects for one in told if one.odds >= threshold]
    return Counts(len(told), sum(one.rejects for one in told), len(flagged), sum(flagged))


def measured(told: Sequence[Known]) -> Counts:
    """Counts over both halves, each classified by the threshold of the other. With two cases of each label neither
    half is empty."""
    sorts = [one for one in told if one.rejects], [one for one in told if not one.rejects]
    one, other = ([*sorts[0][n::2], *sorts[1][n::2]] for n in (0, 1))
    if not one or not other:
        return Counts(len(told), len(sorts[0]), 0, 0)
    both = counted(other, threshold_of(one)), counted(one, threshold_of(other))
    return Counts(*map(sum, zip(*both, strict=True)))


def shortfall(found: Counts) -> str:
    """Reason not to ask the model about follow-ups; empty: none."""
    lower = wilson(found.hits, found.flagged, Z_95_ONE_SIDED)[0]
    if found.flagged and lower >= PRECISION_MIN and found.hits >= RECALL_MIN * found.rejecting:
        return ""
    return (
        f"right in {found.right} of {found.cases} cases: found {found.hits} of {found.rejecting} that reject and "
        f"{found.flagged - found.hits} others (precision at least {lower if found.flagged else 0.0:.2f}, "
        f"{PRECISION_MIN:g} is needed)"
    )


def counts_of(event: FollowUpsCalibrated) -> Counts:
    """Counts that the event recorded."""
    return Counts(event.cases, event.rejecting, event.flagged, event.hits)


# --- inputs ----------------------------------------------------------------------------------------------------------


class FollowUpDone(Input, frozen=True):
    """Answer about one follow-up. `noted`: the follow-up; None: no answer, because of `error`; `retryable`: a later
    attempt may succeed."""

    example: str
    noted: FollowUpNoted | None = None
    odds: float = 0.0
    weights_version: int = -1
    seconds: float = 0.0
    error: str = ""
    retryable: bool = False


class CasesDone(Input, frozen=True):
    """Answers about all labelled cases, or the error that prevented them."""

    told: tuple[Known, ...] = ()
    weights_version: int = -1
    seconds: float = 0.0
    error: str = ""
    retryable: bool = False


# --- effects ---------------------------------------------------------------------------------------------------------


class ScoreFollowUp(Effect, frozen=True):
    """Ask whether the user's next message rejects an example's answer; `example` empty: about all labelled cases."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("example",)
    example: str


# --- state -----------------------------------------------------------------------------------------------------------

CASES = ""
"""Example id that stands for all labelled cases."""


class FollowUpsState(msgspec.Struct):
    """Waiting follow-ups, by example id."""

    waiting: dict[str, str] = {}
    """id of the evidence that each may become; the newest last"""
    done: dict[str, None] = {}
    """ids of evidence about which the model was asked, the newest last"""
    open: str | None = None
    """example id of the question that awaits its answer"""
    attempts: dict[str, int] = {}
    """attempts so far at each unanswered question"""
    model: str = ""
    """path of the model that is asked; a change of it, or of the question, requires a new calibration"""
    question: str = ""
    """digest of the question's wording and of the cases"""
    measured: FollowUpsCalibrated | None = None
    """newest calibration"""
    given_up: int | None = None
    """the step at which calibration was given up because the engine did not answer"""
    error: str = ""
    """error of the last question; empty after an answer"""
    retry: Retry = NO_FAILURE
