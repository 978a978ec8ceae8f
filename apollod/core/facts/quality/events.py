"""Events of the quality guard: measurements of the model, and incidents."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.dreams.held_out_rounds import ContrastCase
from apollod.core.facts.quality.sequential import Metric
from apollod.core.kernel.event import Event

Why = Literal["baseline", "steps", "window", "checkpoint", "settled", "doubt", "asked", "restored"]
"""Reason for a measurement. baseline: reference for later ones; steps: enough steps were learned; window: nothing waits
any more; checkpoint: one is due; settled: a practised behaviour is now shown; doubt: a look at a part of the probes
raised doubt; asked: requested by a user; restored: an alarm took weights back, and the present ones are measured before
anything else."""

VerdictKind = Literal["named", "elsewhere", "not_repeated", "spread", "rate", "unfinished", "ranked", "not_searched"]
"""Verdicts of a search, see `culprits.Kind`; ranked: replays could not be run, and the first examples of a ranking are
held, which is not a proof; not_searched: without a search, the cause is not known."""

News = Literal["alarmed", "rate", "settled"]
"""News of an incident: its beginning; the finding that a person has to lower the learning rate; or its end."""


NO_JUDGE = "[judge] mode is off"
NO_VERDICT = "no verdict: "
NO_ROOM = "no room: "


class Drop(msgspec.Struct, frozen=True):
    """Drop of a metric below its baseline, in its unit, and the interval of that measurement (95 %)."""

    drop: float
    low: float
    high: float


class QualityWished(Event, frozen=True):
    """Request for a look, or (`baseline`) to take the present model as the new baseline; or (`checkpoint`) a due
    checkpoint waits for a look."""

    kind: ClassVar[str] = "quality.wished"
    by: str
    baseline: bool = False
    checkpoint: bool = False


class QualityRequested(Event, frozen=True):
    """Intent: the probes are asked, with the weights of `step`. `share`: share of each group."""

    kind: ClassVar[str] = "quality.requested"
    number: int
    why: Why
    step: int
    share: float = 1.0
    lessons: tuple[str, ...] = ()
    """known lessons asked besides the probes"""
    without: tuple[str, ...] = ()
    """groups of probes that are left out: too few of them passed at the baseline to show a drop"""

    def key(self) -> str:
        return str(self.number)


class QualityMeasured(Event, frozen=True):
    """Result. `probes`: digest of the set; `figures`: by metric, of each item, None if it could not be measured;
    `after`: evidence about each metric including this look, recorded since logarithms may differ between machines;
    `references`: for a baseline, digest of the file with the distribution at every token."""

    kind: ClassVar[str] = "quality.measured"
    number: int
    why: Why
    step: int
    probes: str
    figures: dict[str, dict[str, float | None]]
    after: dict[str, Metric] = {}
    tokens: int = 0
    seconds: float = 0.0
    share: float = 1.0
    references: str = ""
    left_out: dict[str, str] = {}
    """probes that cannot be used, by id, with the reason: the example that holds the probe, and its source; NO_JUDGE;
    NO_VERDICT and why its check could not be run; or NO_ROOM and the engine's limit of tokens"""
    contrasts: tuple[ContrastCase, ...] = ()
    """for a baseline, the cases of patterns, which are asked unchanged until the next baseline"""
    answers: dict[str, str] = {}
    """by probe, the beginning of an answer: for a baseline of those that pass, for a look of those that passed at the
    baseline and fail now"""

    def key(self) -> str:
        return str(self.number)


class QualityReferencesLost(Event, frozen=True):
    """The file `digest`, with the baseline's distribution at every token, is gone or damaged: until it is back, or
    there is a new baseline, looks leave out the metrics that need it."""

    kind: ClassVar[str] = "quality.references_lost"
    digest: str
    reason: str

    def key(self) -> str:
        return self.digest


class QualityFailed(Event, frozen=True):
    """The probes could not be asked: nothing is learned before they are. With `gives_up` the engine cannot answer them:
    steps go on, and nothing is measured before the next start of the daemon, unless a user requests it."""

    kind: ClassVar[str] = "quality.failed"
    number: int
    reason: str
    retry_s: float = 0.0
    gives_up: bool = False

    def key(self) -> str:
        return str(self.number)


class QualityAlarmed(Event, frozen=True):
    """The weights of `step` are worse than the baseline: `metrics`, the most certain first, with their drops. The
    weights go back to step `to`, the last good one. `fell`: items by which the search measures damage."""

    kind: ClassVar[str] = "quality.alarmed"
    incident: int
    step: int
    to: int
    metrics: tuple[str, ...]
    drops: dict[str, Drop]
    fell: dict[str, tuple[str, ...]] = {}

    def key(self) -> str:
        return str(self.incident)


class QualityNotGood(Event, frozen=True):
    """The weights of `step`, to which an alarm went back, are also worse than the baseline, by `metrics`. The weights
    go back to step `to` instead, which an earlier look found good."""

    kind: ClassVar[str] = "quality.not_good"
    incident: int
    step: int
    to: int
    metrics: tuple[str, ...]

    def key(self) -> str:
        return str(self.incident)


class QualitySearchBegun(Event, frozen=True):
    """Search among the examples of `window`, learned since the last good look, in this order, by at most `replays_max`
    replays without some of them."""

    kind: ClassVar[str] = "quality.search_begun"
    incident: int
    window: tuple[str, ...]
    replays_max: int
    culprits_max: int = 8
    """most culprits to find; later changes of the configuration do not matter"""

    def key(self) -> str:
        return str(self.incident)


class QualityReplayBegun(Event, frozen=True):
    """Intent: replay `number` of a search learns the window without the examples `left_out`, each step at this share
    of its learning rate (`lr_scale`)."""

    kind: ClassVar[str] = "quality.replay_begun"
    incident: int
    number: int
    left_out: tuple[str, ...]
    lr_scale: float = 1.0

    def key(self) -> str:
        return f"{self.incident}.{self.number}"


class QualityReplayed(Event, frozen=True):
    """Result. `drops`: by metric, drop of the failed items below the baseline: for a loss in nats a token, else the
    lost probability (geometric mean over tokens) of the baseline's answers. `fingerprint`: of the resulting weights."""

    kind: ClassVar[str] = "quality.replayed"
    incident: int
    number: int
    drops: dict[str, float]
    steps: int
    seconds: float
    fingerprint: str = ""

    def key(self) -> str:
        return f"{self.incident}.{self.number}"


class QualityReplayFailed(Event, frozen=True):
    """Result: the replay could not be run; it is tried again after `retry_s`, or, with `gives_up`, never."""

    kind: ClassVar[str] = "quality.replay_failed"
    incident: int
    number: int
    reason: str
    retry_s: float = 0.0
    gives_up: bool = False

    def key(self) -> str:
        return f"{self.incident}.{self.number}"


class QualityRankBegun(Event, frozen=True):
    """Intent: replays cannot be run, so the trainer estimates, to first order, how far a step by each of `suspects`
    would move the failed probes. If trainer or daemon ends meanwhile, there is no result."""

    kind: ClassVar[str] = "quality.rank_begun"
    incident: int
    number: int
    suspects: tuple[str, ...]

    def key(self) -> str:
        return f"{self.incident}.{self.number}"


class QualityRanked(Event, frozen=True):
    """Result. `scores`: by example, how far its steps would move the failed items, to first order; above 0 is worse.
    For a metric it is the mean over its items, in margins: of a loss in nats a token, else of the log odds (natural) of
    the baseline's answers. So it compares examples, and does not predict a drop. `unscored`: why an example has no
    score."""

    kind: ClassVar[str] = "quality.ranked"
    incident: int
    number: int
    scores: dict[str, float]
    unscored: dict[str, str] = {}
    seconds: float = 0.0

    def key(self) -> str:
        return f"{self.incident}.{self.number}"


class QualityRankFailed(Event, frozen=True):
    """Result: the examples cannot be ranked, and all that may have done it are held."""

    kind: ClassVar[str] = "quality.rank_failed"
    incident: int
    number: int
    reason: str

    def key(self) -> str:
        return f"{self.incident}.{self.number}"


class QualityNamed(Event, frozen=True):
    """Result: the verdict of a search. `suspects`: neither found nor shown to be innocent, and also held; for `ranked`
    only the first ones. All others are learned again, each step at this share of its learning rate (`lr_scale`)."""

    kind: ClassVar[str] = "quality.named"
    incident: int
    verdict: VerdictKind
    culprits: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    replays: int = 0
    reason: str = ""
    lr_scale: float = 1.0

    def key(self) -> str:
        return str(self.incident)


class QualityResumed(Event, frozen=True):
    """A person has seen the verdict: innocent examples may be learned again."""

    kind: ClassVar[str] = "quality.resumed"
    incident: int
    by: str

    def key(self) -> str:
        return str(self.incident)


class QualitySettled(Event, frozen=True):
    """The incident is over, and steps go on. `taken_back`: number of steps taken back."""

    kind: ClassVar[str] = "quality.settled"
    incident: int
    how: str
    by: str
    taken_back: int = 0

    def key(self) -> str:
        return str(self.incident)


class QualityTold(Event, frozen=True):
    """Result: the news (`about`, in the journal `event`) of an incident was delivered to `[quality] on_alarm`, or why
    not. `gives_up`: not retried; else retried after `retry_s`."""

    kind: ClassVar[str] = "quality.told"
    incident: int
    about: News = msgspec.field(name="event")  # the log's lines use `event` for something else
    ok: bool
    reason: str = ""
    attempt: int = 1
    gives_up: bool = False
    retry_s: float = 0.0

    def key(self) -> str:
        return str(self.incident)
