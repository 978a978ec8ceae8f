"""Questions to the judge, its answers, and verdicts made of them: events, the effect and inputs."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.intake.inputs import Line
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input

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
