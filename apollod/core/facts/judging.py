"""Examples that a model judges before they are learned: their choice, its verdicts, and trust in the judge."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import msgspec

from apollod.core.facts.intake.inputs import Line
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.rates import Z_95_ONE_SIDED, wilson
from apollod.core.schedules import NO_FAILURE, Retry

JUDGE = "judge"
"""value of `by` for verdicts of a model"""
Verdict = Literal["good", "bad", "unsure"]


class Vote(msgspec.Struct, frozen=True):
    """One answer of the judge, checked: `quote` occurs in the judged text."""

    verdict: Verdict
    quote: str = ""
    reason: str = ""
    better: str | None = None
    """a better answer, if it wrote one"""


def agreed(votes: Sequence[Vote]) -> Verdict:
    """The common verdict of all votes; unsure if they differ."""
    said = {vote.verdict for vote in votes}
    return said.pop() if len(said) == 1 else "unsure"


def spokesman(votes: Sequence[Vote]) -> Vote:
    """The vote whose quote, reason and better answer are recorded: the first vote for the agreed verdict with a better
    answer, else the first one for that verdict, else the first one."""
    verdict = agreed(votes)
    saying = [vote for vote in votes if vote.verdict == verdict]
    return next((vote for vote in saying if vote.better is not None), (saying or list(votes))[0])


# Detect that a judge has become worse: a sequential test, valid after every known case. H0: at most a tolerated share
# p0 of the cases of one sort are judged wrong. A wrong answer multiplies the evidence by p1 / p0, a right one by (1 -
# p1) / (1 - p0), where p1 is the share of a judge that became worse. Under H0 the mean of that factor is at most 1,
# since it grows with the share that is wrong. The evidence is summed over all moments at which the judge may have
# become worse, as in an e-detector of Shiryaev and Roberts (Shin, Ramdas and Rinaldo 2023, "E-detectors",
# arXiv:2203.03532; `core/facts/quality/sequential.py` has the one of the quality guard): M <- (M + 1) * factor,
# e-value: mean of M over two p1. So the mean number of cases to a false alarm is at least ALARM. A judge that always
# says yes is found by four bad cases.
ALARM = 100.0
"""e-value that ends trust: also the least mean number of cases between two false alarms"""
SUSPECTED = 3.0
"""e-value from which only planted cases are asked, until they clear it or end trust"""
SURE = 1.5
"""e-value up to which earlier verdicts are trusted"""
WORSE = (0.375, 0.875)
"""p1, as shares of the way from the tolerated share to 1"""
E_MAX, TOLERATED_MIN = 1e15, 0.02


class Suspicion(msgspec.Struct, frozen=True):
    """Evidence that the judge gets more cases of one label wrong than is tolerated."""

    detectors: tuple[float, ...] = (0.0,) * len(WORSE)

    @property
    def e_value(self) -> float:
        return sum(self.detectors) / len(self.detectors)


def seen(before: Suspicion, right: bool, trust_min: float) -> Suspicion:
    """The suspicion after one more known case of its sort."""
    p0 = max(TOLERATED_MIN, 1.0 - trust_min)
    detectors = []
    for kept, worse in zip(before.detectors, WORSE, strict=True):
        p1 = p0 + worse * (1.0 - p0)
        factor = (1.0 - p1) / (1.0 - p0) if right else p1 / p0
        detectors.append(min(E_MAX, (kept + 1.0) * factor))
    return Suspicion(tuple(detectors))


def suspected(suspicions: Mapping[str, Suspicion]) -> str:
    """The sort of cases, good or bad, that the judge may have begun to get wrong, the more probable one; empty:
    none."""
    sort = max(suspicions, key=lambda one: suspicions[one].e_value, default="")
    return sort if sort and suspicions[sort].e_value >= SUSPECTED else ""


def alarming(suspicions: Mapping[str, Suspicion]) -> str:
    """Reason to end trust now; empty: none."""
    sort = suspected(suspicions)
    if not sort or suspicions[sort].e_value < ALARM:
        return ""
    return f"it gets what is {sort} wrong more often than before (e-value {suspicions[sort].e_value:.0f})"


Failing = Literal["endpoint", "nonsense", "refused", "restart"]
"""Why there is no verdict. endpoint: no answer in time, or access denied; nonsense: the answer is not a verdict;
refused: the question was rejected, for example as too long; restart: the daemon ended before the answer."""


class Planted(msgspec.Struct, frozen=True):
    """A case whose right verdict is known. `id`: digest of its content, 16 hex digits."""

    id: str
    expected: Literal["good", "bad"]


class JudgeConfigured(Event, frozen=True):
    """Identity of the judge in this life of the daemon. Trust belongs to `model`, `prompt_hash`, `endpoint` and
    `sampling` together: a judge that differs in one of them begins without trust.
    `served`: it is the model that this daemon serves and trains; `endpoint`: its base URL; `sampling`: votes and
    temperature."""

    kind: ClassVar[str] = "judge.configured"
    model: str
    prompt_hash: str
    endpoint: str
    served: bool
    cases: tuple[Planted, ...]
    sampling: str = ""


class JudgeDistrusted(Event, frozen=True):
    """The judge is trusted no longer, until it has passed the planted cases again.
    `recalled`: examples approved since it last passed its checks and not learned yet; a person decides about them.
    `learned`: examples approved since then and learned; they are not taken back automatically."""

    kind: ClassVar[str] = "judge.distrusted"
    model: str
    reason: str
    recalled: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()


class VerdictRequested(Event, frozen=True):
    """Intent: the judge is asked about an example, or about a planted `case`."""

    kind: ClassVar[str] = "verdict.requested"
    attempt: int
    model: str
    prompt_hash: str
    votes: int
    example: str = ""
    case: str = ""

    def key(self) -> str:
        return self.example or self.case


class VerdictGiven(Event, frozen=True):
    """Result: a judge's verdict on an example, a planted `case` (whose right verdict is `expected`), or the answer to a
    `dream`.
    `votes`: the single verdicts; `verdict`: that of all votes, unsure if they differ. `quote`: words of the judged
    text; `better`: a better answer; `into`: the example made of it. `weights_version`: of our engine as the judge;
    None: another endpoint. `*_tokens`: of all votes together."""

    kind: ClassVar[str] = "verdict.given"
    verdict: Verdict
    example: str = ""
    case: str = ""
    expected: str = ""
    dream: str = ""
    votes: tuple[Verdict, ...] = ()
    quote: str = ""
    reason: str = ""
    better: str | None = None
    into: str = ""
    attempt: int = 1
    model: str = ""
    prompt_hash: str = ""
    weights_version: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    by: str = "judge"

    def key(self) -> str:
        return self.dream or self.example or self.case


class VerdictFailed(Event, frozen=True):
    """The judge gave no verdict. The question is repeated after `retry_s` at the earliest, unless this `gives_up`."""

    kind: ClassVar[str] = "verdict.failed"
    attempt: int
    cause: Failing
    reason: str
    gives_up: bool
    retry_s: float = 0.0
    example: str = ""
    case: str = ""

    def key(self) -> str:
        return self.example or self.case


class AskJudge(Effect, frozen=True):
    """Ask about an example, or (`planted`) about a case; answered by `JudgeAnswered` or `JudgeFailed`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("subject", "attempt")
    subject: str
    attempt: int
    planted: bool
    votes: int
    temperature: float
    rubric: str = ""
    """text for the judge besides the stripped instruction"""


class Judged(msgspec.Struct, frozen=True):
    """An answer: at least one vote, with tokens and time used."""

    votes: tuple[Vote, ...]
    weights_version: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


class JudgeAnswered(Input, frozen=True):
    """The judge's answer to the question of this `attempt` about `subject`, an example or a planted case.
    `line`: the record with the better answer, if one was written; `known`: the journal holds it already."""

    subject: str
    attempt: int
    judged: Judged
    line: Line | None = None
    known: bool = False


class JudgeFailed(Input, frozen=True):
    """The judge gave no answer. `retry_after_s`: wait that the endpoint requests."""

    subject: str
    attempt: int
    cause: Failing
    reason: str
    retry_after_s: float = 0.0


SAME, CHANGED = "same:", "changed:"
"""Id prefixes of cases made from an approved example: unchanged (good), and damaged (bad)."""
MADE_MAX = 20


class Asked(msgspec.Struct, gc=False):
    """A question without an answer."""

    attempt: int
    planted: bool


class Judge(msgspec.Struct, frozen=True):
    """Identity of the judge; trust belongs to the combination of all fields."""

    model: str = ""
    prompt_hash: str = ""
    endpoint: str = ""
    sampling: str = ""


class JudgingState(msgspec.Struct):
    """Subjects are examples and planted cases, by their ids."""

    ready: bool = False
    """`judge.configured` was recorded in this life"""
    judge: Judge = Judge()
    served: bool = False
    """the judge is the model that this daemon serves"""
    waiting: dict[str, None] = {}
    """examples that wait for its verdict, the oldest first"""
    better: dict[str, str] = {}
    """by declined example, the better answer that was made an example of its own"""
    written: dict[str, None] = {}
    """of these, examples that the judge wrote itself"""
    open: dict[str, Asked] = {}
    attempts: dict[str, int] = {}
    """that failed, of what is to be asked again"""
    retry: Retry = NO_FAILURE
    """of the endpoint"""
    error: str = ""
    """why the last question had no answer; empty after an answer"""
    cases: dict[str, Literal["good", "bad"]] = {}
    due: dict[str, None] = {}
    """cases that this judge was never asked"""
    reviewed: dict[str, None] = {}
    """examples that people approved, the newest last, at most `MADE_MAX`: cases are made of them"""
    turns: dict[str, int] = {}
    """number of repeated cases of each sort, from which the next one follows"""
    since: dict[str, int] = {}
    """verdicts since the last planted case that could show them wrong: good verdicts since a bad case (`bad`), bad
    verdicts since a good case (`good`)"""
    suspicions: dict[str, Suspicion] = {}
    """by sort of cases"""
    approved: dict[str, None] = {}
    """examples approved since the judge last passed its checks on bad cases"""
    said: dict[str, Verdict] = {}
    """its verdicts on examples about which a person can still decide otherwise"""
    good: list[bool] = []
    """for good examples and cases, true if judged good; the newest last, at most `WINDOW`"""
    bad: list[bool] = []
    """for bad ones, true if judged bad"""
    verdicts: int = 0
    """number of verdicts on examples, over the life of the journal"""

    def next_case(self, sort: str) -> str:
        """The planted case of this sort to be repeated next; empty: none. Cases made of approved examples take turns
        with the others."""
        made = [(SAME if sort == "good" else CHANGED) + example for example in self.reviewed]
        cases = [*made, *(case for case, expected in self.cases.items() if expected == sort)]
        return cases[self.turns.get(sort, 0) % len(cases)] if cases else ""

    def knows(self, case: str) -> bool:
        """True if the case takes part in the rotation."""
        return case in self.cases or case.partition(":")[2] in self.reviewed

    def expected(self, case: str) -> str:
        """The right verdict on a planted case; empty: not a planted case."""
        if case.startswith((SAME, CHANGED)):
            return "good" if case.startswith(SAME) else "bad"
        return self.cases.get(case, "")


# A judge's agreement with known cases, its confidence interval, and whether its verdicts decide.
# A verdict is right if it agrees with a planted case or with a person's decision. The figure is the balanced accuracy,
# the mean of the rates on good and on bad, so that a judge with a constant answer has 0.5 for any mix of cases. Trust
# needs the lower end of the figure to reach `trust_min`.
WINDOW = 100
"""newest cases of each sort that count"""
LEAST = 10
"""least number of cases of each sort for a meaningful figure"""


class Agreement(NamedTuple):
    """Counts of good and bad cases, and of those judged rightly."""

    good: int
    of_good: int
    bad: int
    of_bad: int

    @property
    def figure(self) -> float | None:
        """Balanced accuracy, 0 to 1; None while one sort has no cases."""
        if not self.of_good or not self.of_bad:
            return None
        return (self.good / self.of_good + self.bad / self.of_bad) / 2

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval: the mean of the two rates' intervals, at least as wide as the interval of the mean."""
        good, bad = wilson(self.good, self.of_good), wilson(self.bad, self.of_bad)
        return (good[0] + bad[0]) / 2, (good[1] + bad[1]) / 2

    @property
    def lower(self) -> float:
        """One-sided 95 % lower bound of the figure: the mean of those of the two rates."""
        good, bad = wilson(self.good, self.of_good, Z_95_ONE_SIDED), wilson(self.bad, self.of_bad, Z_95_ONE_SIDED)
        return (good[0] + bad[0]) / 2


def agreement(own: JudgingState) -> Agreement:
    """Agreement over the last WINDOW cases of each sort."""
    return Agreement(sum(own.good), len(own.good), sum(own.bad), len(own.bad))


def figure_text(found: Agreement) -> str:
    """Text such as `agreement 0.92, at least 0.80 (95 %), over 12 good and 12 bad`."""
    if found.figure is None:
        return "agreement is not known yet"
    return (
        f"agreement {found.figure:.2f}, at least {found.lower:.2f} (95 %), "
        f"over {found.of_good} good and {found.of_bad} bad"
    )


def distrust(own: JudgingState, trust_min: float) -> str:
    """Reason why its verdicts do not decide; empty: they do."""
    if own.due:
        asked = len(own.cases) - len(own.due)
        return f"{asked} of {len(own.cases)} planted cases were asked"
    return shortfall(agreement(own), trust_min) or alarming(own.suspicions)


def shortfall(found: Agreement, trust_min: float) -> str:
    """Reason why this agreement is not enough; empty: it is."""
    if found.figure is None or min(found.of_good, found.of_bad) < LEAST:
        return f"{LEAST} known cases of each sort are needed, there are {found.of_good} good and {found.of_bad} bad"
    return f"{figure_text(found)}: below trust_min {trust_min:g}" if found.lower < trust_min else ""


def is_promising(found: Agreement, trust_min: float) -> bool:
    """True if more cases could establish trust: agreement is high enough, but the sample is too small to be sure."""
    known = min(found.of_good, found.of_bad)
    return LEAST <= known < WINDOW and found.figure is not None and found.lower < trust_min <= found.figure
