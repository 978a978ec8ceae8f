"""Events: follow-ups to answers, and the served model's probability that a follow-up rejects the answer."""

from typing import ClassVar

import msgspec

from apollod.core.kernel.event import Event


class FollowUpNoted(Event, frozen=True):
    """A log holds the user's message after an example's answer, and no cue decides it. `signal`: id of the evidence if
    the model finds that the answer is rejected; the other fields as of `SignalFlagged`."""

    kind: ClassVar[str] = "followup.noted"
    example: str
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

    def key(self) -> str:
        return self.example


class FollowUpRequested(Event, frozen=True):
    """Intent: the served model is asked about an example's follow-up, or (empty) about all labelled cases; `attempt`
    counts from 1."""

    kind: ClassVar[str] = "followup.requested"
    example: str
    attempt: int = 1

    def key(self) -> str:
        return self.example


class FollowUpScored(Event, frozen=True):
    """`odds`: log-probability of yes minus that of no to the question whether the answer is rejected. `rejected`:
    `odds` are at least `threshold`, and `signal.flagged` follows."""

    kind: ClassVar[str] = "followup.scored"
    example: str
    signal: str
    odds: float
    threshold: float
    rejected: bool
    weights_version: int
    seconds: float = 0.0

    def key(self) -> str:
        return self.example


class FollowUpFailed(Event, frozen=True):
    """The follow-up, or (empty) the cases could not be scored. `given_up`: not asked again; cases not before the model
    changes or the daemon restarts. `in_a_row`: consecutive failures of the engine to answer."""

    kind: ClassVar[str] = "followup.failed"
    example: str
    reason: str
    given_up: bool
    in_a_row: int = 0

    def key(self) -> str:
        return self.example


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
