"""Inputs: a judge answers, or fails to."""

import msgspec

from apollod.core.facts.intake.inputs import Line
from apollod.core.facts.judging.events import Failing
from apollod.core.facts.judging.votes import Vote
from apollod.core.kernel.input import Input


class Judged(msgspec.Struct, frozen=True):
    """An answer: at least one vote, with tokens and time used."""

    votes: tuple[Vote, ...]
    weights_version: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


class JudgeAnswered(Input, frozen=True):
    """The judge's answer to the question of this `attempt` about `subject`, an example or a planted case.

    `line`: the record with the better answer, if one was written; `known`: the journal holds it already.
    """

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
