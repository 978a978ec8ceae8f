"""The quality guard: has the model got worse?"""

import msgspec


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """An incident of the quality guard that is not settled."""

    number: int
    step: int
    """whose weights were worse"""
    to: int
    """the last step that was good"""
    metrics: list[str]
    """that were worse, the surest first"""
    phase: str
    """`alarmed`: the weights of `to` are wanted back; `restored`: they are served; `searching`: replays, or a ranking,
    look for the examples that did it; `named`: that is over; `stuck`: there is no way to the weights of `to`"""
    reason: str = ""
    """why there is none, or why it is not known who did it; of verdict `rate`, the learning rate to use"""
    replays: int = 0
    """begun so far"""
    replays_max: int = 0
    verdict: str = ""
    """of the search, see `quality.named`; empty before it"""
    culprits: list[str] = []
    """examples that did it, which are held"""
    again: int = 0
    """steps of the others that are still to be learned again"""


class QualityMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the baseline, in its unit: the share of answers that pass, or the loss of texts in nats a token."""

    name: str
    value: float | None
    """of the last look; null: none measured it since the baseline. So are `drop` and its interval"""
    baseline: float
    drop: float | None
    """how much worse it is; below 0: better"""
    low: float | None
    high: float | None
    """95 % interval of the drop, by that look alone"""
    margin: float
    """the drop that is allowed"""
    alarmed: bool
    """is it one of those of the alarm that is open?"""


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """State of the quality guard: has the model got worse?"""

    enabled: bool = False
    """is it measured every so many steps?"""
    looks: int = 0
    """measurements over the life of the journal, those of baselines and those that failed included"""
    baseline: int | None = None
    """step that the others are compared with; null: there is none yet"""
    step: int | None = None
    """of the last measurement; null: there was none"""
    due: str = ""
    """why one is made next: `baseline`, `steps`, `window`, `checkpoint`, `asked`; empty: none is due"""
    asked: str = ""
    """`run`, `baseline` or `checkpoint`: somebody waits for it, or a checkpoint; empty: nobody does"""
    running: bool = False
    """are probes asked now?"""
    reason: str = ""
    """why what is due cannot begin now"""
    incident: Alarm | None = None
    error: str = ""
    """why the last measurement failed; empty after one that did not"""
    untold: str = ""
    """why whoever `[quality] on_alarm` names could not be told of an alarm or its end; empty after he was"""
    references_lost: str = ""
    """why, when the daemon started, looks could not be compared with what the baseline's model thought of every token,
    and what to do; empty: they can, or there is a new baseline"""
    metrics: list[QualityMetric] = []
    """by name; empty without a baseline"""
    failed: int = 0
    """of `looks`, those that failed"""
    look_s: float | None = None
    """that the last measurement took; null: there was none"""
    incidents: int = 0
    """alarms over the life of the journal; so the next two"""
    taken_back: int = 0
    """steps that alarms took back"""
    replays: int = 0
    """of searches for the examples that did it"""
