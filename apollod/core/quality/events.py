"""Events of the quality guard: how good the model is, and what is done when it gets worse."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.dreams.contrast_cases import ContrastCase
from apollod.core.kernel.event import Event
from apollod.core.quality.sequential import Metric

Why = Literal["baseline", "steps", "window", "checkpoint", "settled", "doubt", "asked", "restored"]
"""Of a measurement. baseline: what later ones are compared with; steps: so many steps were learned; window: nothing
waits any more; checkpoint: one is due; settled: a behaviour was practised until it is shown; asked: somebody wants to
know; restored: an alarm took weights back, and those that are there now are measured before anything else."""

VerdictKind = Literal["named", "elsewhere", "not_repeated", "spread", "rate", "unfinished", "ranked", "not_searched"]
"""Verdicts of a search, see `culprits.Kind`; ranked: replays could not be run, and the examples that stand first by how
far a step of each moves the probes are held, which proves nothing; not_searched: there was none, and nobody knows which
examples it was."""

News = Literal["alarmed", "rate", "settled"]
"""News of an incident: its beginning; that the learning rate did it, and a person has to lower it; or its end."""


NO_JUDGE = "[judge] mode is off"
NO_VERDICT = "no verdict: "
NO_ROOM = "no room: "


class Drop(msgspec.Struct, frozen=True):
    """Drop of a metric below its baseline, in its unit, and the interval of that measurement (95 %)."""

    drop: float
    low: float
    high: float


class QualityWished(Event, frozen=True):
    """Somebody wants a look, or (`baseline`) the model as it is now to be what later looks are compared with; or
    (`checkpoint`) one is due and waits for it."""

    kind: ClassVar[str] = "quality.wished"
    by: str
    baseline: bool = False
    checkpoint: bool = False


class QualityRequested(Event, frozen=True):
    """Intent: the probes are asked, with the weights of `step`. `share`: of each group, the share that is."""

    kind: ClassVar[str] = "quality.requested"
    number: int
    why: Why
    step: int
    share: float = 1.0
    lessons: tuple[str, ...] = ()
    """known lessons that are asked beside the probes"""
    without: tuple[str, ...] = ()
    """groups of probes that are not asked: too few of them passed at the baseline for anything to show"""

    def key(self) -> str:
        return str(self.number)


class QualityMeasured(Event, frozen=True):
    """Result. `probes`: digest of the set; `figures`: by metric, of each item, None where it could not be measured;
    `after`: what is known of each metric with this look, recorded since logarithms may differ between machines;
    `references`: digest of the file with what was thought of every token, of a baseline."""

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
    """probes that say nothing, by id: the example that holds it, and where that is from; NO_JUDGE; NO_VERDICT and why
    its check could not be run; or NO_ROOM and how many tokens the engine takes"""
    contrasts: tuple[ContrastCase, ...] = ()
    """of a baseline, what was asked of patterns: the same is until the next one, whatever becomes of them"""

    def key(self) -> str:
        return str(self.number)


class QualityReferencesLost(Event, frozen=True):
    """The file `digest`, with what the model of the baseline thought of every token, is gone or damaged: until it is
    back, or there is a new baseline, looks go on without what is compared with it."""

    kind: ClassVar[str] = "quality.references_lost"
    digest: str
    reason: str

    def key(self) -> str:
        return self.digest


class QualityFailed(Event, frozen=True):
    """The probes could not be asked, which counts as not passed: nothing is learned before they were. With `gives_up`
    the engine cannot answer them: steps go on, and nothing is measured before the next start of the daemon, unless
    somebody asks."""

    kind: ClassVar[str] = "quality.failed"
    number: int
    reason: str
    retry_s: float = 0.0
    gives_up: bool = False

    def key(self) -> str:
        return str(self.number)


class QualityAlarmed(Event, frozen=True):
    """The weights of `step` are worse than the baseline: `metrics`, the surest first, with their drops. Those of step
    `to`, the last that were good, are wanted back. `fell`: the items by which it is looked for who did it."""

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
    """The weights of `step`, to which an alarm went back, are worse than the baseline, too, by `metrics`. Those of step
    `to`, which an earlier look found good, are wanted back instead."""

    kind: ClassVar[str] = "quality.not_good"
    incident: int
    step: int
    to: int
    metrics: tuple[str, ...]

    def key(self) -> str:
        return str(self.incident)


class QualitySearchBegun(Event, frozen=True):
    """The examples of `window` were learned since the last good look, in this order. Which of them did it is found by
    replays without some of them, `replays_max` at most."""

    kind: ClassVar[str] = "quality.search_begun"
    incident: int
    window: tuple[str, ...]
    replays_max: int
    culprits_max: int = 8
    """that are looked for, whatever the configuration says later"""

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
    """Result. `drops`: by metric, how much worse the items that fell are than at the baseline: of a loss in nats a
    token, else the probability (geometric mean over tokens) that the answers of the baseline lost. `fingerprint`: of
    the weights that came out."""

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
    """Result: it could not be run; tried again after `retry_s`, or, with `gives_up`, not any more."""

    kind: ClassVar[str] = "quality.replay_failed"
    incident: int
    number: int
    reason: str
    retry_s: float = 0.0
    gives_up: bool = False

    def key(self) -> str:
        return f"{self.incident}.{self.number}"


class QualityRankBegun(Event, frozen=True):
    """Intent: no replay can be run, and the trainer says of each of `suspects` how far a step by it would move the
    probes that fell, to first order. A trainer that ends meanwhile leaves it without a result, and so does a daemon."""

    kind: ClassVar[str] = "quality.rank_begun"
    incident: int
    number: int
    suspects: tuple[str, ...]

    def key(self) -> str:
        return f"{self.incident}.{self.number}"


class QualityRanked(Event, frozen=True):
    """Result. `scores`: by example, how far its steps would move the items that fell, to first order; above 0 makes
    them worse. Of a metric it is the mean over its items, in margins: of a loss in nats a token, else of the log odds
    (natural) of the baseline's answers. So it compares examples, and foretells no drop. `unscored`: why an example has
    no score."""

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
    """Result: the verdict of a search. `suspects`: neither found nor shown to be innocent, and held, too; of `ranked`
    only those that stand first. All others are learned again, each step at this share of its learning rate
    (`lr_scale`)."""

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
    """A person has seen the verdict: what is innocent may be learned again."""

    kind: ClassVar[str] = "quality.resumed"
    incident: int
    by: str

    def key(self) -> str:
        return str(self.incident)


class QualitySettled(Event, frozen=True):
    """The incident is over, and steps go on. `taken_back`: how many steps were."""

    kind: ClassVar[str] = "quality.settled"
    incident: int
    how: str
    by: str
    taken_back: int = 0

    def key(self) -> str:
        return str(self.incident)


class QualityTold(Event, frozen=True):
    """Result: whoever `[quality] on_alarm` names was told what is new (`about`, in the journal `event`) of an incident,
    or why not. `gives_up`: he is not told of it any more; else he is again after `retry_s`."""

    kind: ClassVar[str] = "quality.told"
    incident: int
    about: News = msgspec.field(name="event")  # a log's line has another `event`
    ok: bool
    reason: str = ""
    attempt: int = 1
    gives_up: bool = False
    retry_s: float = 0.0

    def key(self) -> str:
        return str(self.incident)
