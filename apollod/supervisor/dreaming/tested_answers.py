"""What check or judge say of an answer to a scenario: of dreams, of tests of patterns, and of the guard's probes."""

from typing import NamedTuple

from apollod.adapters.dreams.checks import check as by_check
from apollod.core.dreams.events import Mode
from apollod.core.dreams.scenario import Turn
from apollod.core.judging.votes import JUDGE, Verdict, agreed, spokesman
from apollod.core.settings import Check
from apollod.curation.redaction import redact_text
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import conversation
from apollod.supervisor.judge import Judge
from apollod.wire.records import record_of


class Found(NamedTuple):
    """What check or judge say of an answer."""

    verdict: Verdict
    by: str
    reason: str = ""
    quote: str = ""
    better: str | None = None
    votes: tuple[Verdict, ...] = ()
    tokens: int = 0


NO_ANSWER = Found("bad", "no answer", "the answer is empty, or does not end")


class Tester(NamedTuple):
    """Who says whether answers show a behaviour. `judge`: None where only checks by code are asked for."""

    config: Config
    judge: Judge | None

    async def tested(self, check: Check, mode: Mode, expected: str, scenario: tuple[Turn, ...], answer: str) -> Found:
        """As `found`; an answer that is empty does not pass."""
        return await self.found(check, mode, expected, scenario, answer) if answer.strip() else NO_ANSWER

    async def found(self, check: Check, mode: Mode, expected: str, scenario: tuple[Turn, ...], answer: str) -> Found:
        """By the pattern's check, which in contrast must not pass; or by the judge, who does not learn in which mode
        the answer was given. Raises DreamCheckFailed, and what `Judge.ask` does."""
        if check.by_code:
            passed, why = await by_check(check, scenario, answer)
            by = next(name for name in ("regex", "schema", "command") if getattr(check, name))
            if mode == "contrast":
                return Found("bad", by, "the behaviour shows where it would be wrong") if passed else Found("good", by)
            return Found("good", by) if passed else Found("bad", by, why)
        rubric = f"\n\n{check.rubric}" if check.rubric and mode != "contrast" else ""
        return await self.judged(expected + rubric, scenario, answer)

    async def judged(self, expected: str, scenario: tuple[Turn, ...], answer: str) -> Found:
        """By the judge, whatever the check."""
        section = self.config.judge
        record = record_of({"messages": conversation(expected, scenario, answer)})
        assert self.judge is not None
        judged = await self.judge.ask(record.canonical, section.votes, section.temperature)
        told = spokesman(judged.votes)
        votes = tuple(vote.verdict for vote in judged.votes)
        tokens = judged.prompt_tokens + judged.completion_tokens
        better = None if told.better is None else redact_text(told.better)
        reason, quote = redact_text(told.reason), redact_text(told.quote)
        return Found(agreed(judged.votes), JUDGE, reason, quote, better, votes, tokens)
