"""The part of `status` about the quality guard, which detects that the model has become worse."""

import msgspec


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """An incident of the quality guard that is not settled."""

    number: int
    step: int
    """step whose weights were worse"""
    to: int
    """the last good step"""
    metrics: list[str]
    """metrics that were worse, the most certain first"""
    phase: str
    """`alarmed`: the weights go back to `to`; `restored`: they are served; `searching`: replays, or a ranking, search
    for the harmful examples; `named`: there is a verdict; `stuck`: the weights of `to` cannot be reached"""
    reason: str = ""
    """why they cannot be reached, or why the cause is not known; for verdict `rate`, the learning rate to use"""
    replays: int = 0
    """replays begun so far"""
    replays_max: int = 0
    verdict: str = ""
    """verdict of the search, see `quality.named`; empty before it"""
    culprits: list[str] = []
    """harmful examples, which are held"""
    again: int = 0
    """number of steps of the others still to be repeated"""


class QualityMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the baseline, in its unit: the share of answers that pass, or the loss of texts in nats a token."""

    name: str
    value: float | None
    """value at the last look, as are `drop` and its interval; null: not measured since the baseline"""
    baseline: float
    drop: float | None
    """drop below the baseline; below 0: better"""
    low: float | None
    high: float | None
    """95 % interval of the drop, by that look alone"""
    margin: float
    """the allowed drop"""
    alarmed: bool
    """the open alarm names it"""


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """State of the quality guard."""

    enabled: bool = False
    """the model is measured regularly"""
    looks: int = 0
    """measurements over the life of the journal, including baselines and failed ones"""
    baseline: int | None = None
    """step of the baseline; null: none yet"""
    step: int | None = None
    """step of the last measurement; null: none yet"""
    due: str = ""
    """reason for the next measurement: `baseline`, `steps`, `window`, `checkpoint`, `asked`; empty: none is due"""
    asked: str = ""
    """`run` or `baseline`: requested by a user; `checkpoint`: a checkpoint waits for it; empty: none"""
    running: bool = False
    """probes are being asked"""
    reason: str = ""
    """why a due measurement cannot begin now"""
    incident: Alarm | None = None
    error: str = ""
    """why the last measurement failed; empty after a success"""
    untold: str = ""
    """why a notification to `[quality] on_alarm` failed; empty after a delivery"""
    references_lost: str = ""
    """why, since the daemon started, looks cannot be compared with the baseline's distribution at every token, and the
    fix; empty: they can, or there is a new baseline"""
    metrics: list[QualityMetric] = []
    """by name; empty without a baseline"""
    failed: int = 0
    """failed ones among `looks`"""
    look_s: float | None = None
    """duration of the last measurement; null: none yet"""
    incidents: int = 0
    """alarms over the life of the journal; the next two likewise"""
    taken_back: int = 0
    """steps that alarms took back"""
    replays: int = 0
    """replays of searches for harmful examples"""
