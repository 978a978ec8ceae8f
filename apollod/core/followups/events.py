"""Events: follow-ups to answers, and the served model's probability that a follow-up rejects the answer."""

from typing import ClassVar

import msgspec

from apollod.core.kernel.event import Event


class FollowUpNoted(Event, frozen=True):
    """A log shows what the person wrote after the answer of an example, and no cue speaks of it. `signal`: id that the
    evidence has if the model finds that the answer is rejected; the other fields as of `SignalFlagged`."""

    kind: ClassVar[str] = "followup.noted"
    example: str
    signal: str
    answer: str
    text: str
    """what the person wrote, as far as it is kept"""
    source: str
    line: int
    session: str = ""
    records: tuple[str, ...] = ()
    quote: str = ""
    also: tuple[str, ...] = ()

    def key(self) -> str:
        return self.example


class FollowUpRequested(Event, frozen=True):
    """Intent: the served model is asked about an example's follow-up, or (empty) about all cases whose answer is known;
    the `attempt`-th time."""

    kind: ClassVar[str] = "followup.requested"
    example: str
    attempt: int = 1

    def key(self) -> str:
        return self.example


class FollowUpScored(Event, frozen=True):
    """`odds`: log-probability of yes minus that of no to the question whether the answer is rejected. `rejected`: they
    are at least `threshold`, and `signal.flagged` follows."""

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
    """The follow-up, or (empty) the cases could not be scored. `given_up`: it is not asked again, about cases not
    before the model is another one or the daemon is started again. `in_a_row`: so many times the engine gave no
    answer."""

    kind: ClassVar[str] = "followup.failed"
    example: str
    reason: str
    given_up: bool
    in_a_row: int = 0

    def key(self) -> str:
        return self.example


class Known(msgspec.Struct, frozen=True, gc=False):
    """A case whose answer is known, and what the model says of it."""

    odds: float
    rejects: bool


class FollowUpsCalibrated(Event, frozen=True):
    """Accuracy of the served model on cases, after `step`. The counts are of cases that had no part in the choice of
    the threshold by which they were told. `threshold`: by which follow-ups are told."""

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
    """of these, rightly"""
    used: bool
    """are follow-ups asked about?"""
    told: tuple[Known, ...]
    weights_version: int
    seconds: float = 0.0
