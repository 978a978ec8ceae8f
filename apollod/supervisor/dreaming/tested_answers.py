"""Tests answers by check or judge: for dreams, tests of patterns, and the guard's probes."""

from typing import NamedTuple

from apollod.adapters.checks import check as by_check
from apollod.core.dreams.events import WRONG, Mode
from apollod.core.dreams.scenario import Turn
from apollod.core.judging.votes import JUDGE, Verdict, agreed, spokesman
from apollod.core.settings import Check
from apollod.core.surroundings import NOTHING, Surrounding
from apollod.curation.probes.figures import garbled
from apollod.curation.redaction import redact_text
from apollod.curation.surrounding_texts import conversation_in
from apollod.supervisor.config import Config
from apollod.supervisor.judge import Judge
from apollod.wire.records import record_of


class Found(NamedTuple):
    """The verdict of check or judge on an answer."""

    verdict: Verdict
    by: str
    reason: str = ""
    quote: str = ""
    better: str | None = None
    votes: tuple[Verdict, ...] = ()
    tokens: int = 0


NO_ANSWER = Found("bad", "no answer", "the answer is empty")


class Tester(NamedTuple):
    """Tests answers for a behaviour. `judge`: None if only checks by code are used."""

    config: Config
    judge: Judge | None

    async def tested(
        self, check: Check, mode: Mode, expected: str, scenario: tuple[Turn, ...], answer: str,
        around: Surrounding = NOTHING, cut: bool = False,
    ) -> Found:  # fmt: skip
        """Like `found`, but an empty answer fails, and so does one that was `cut` off and would never have ended."""
        if not answer.strip():
            return NO_ANSWER
        if cut and (why := garbled(answer)):
            return Found("bad", "no answer", f"the answer does not end, and {why}")
        return await self.found(check, mode, expected, scenario, answer, around)

    async def found(
        self, check: Check, mode: Mode, expected: str, scenario: tuple[Turn, ...], answer: str,
        around: Surrounding = NOTHING,
    ) -> Found:  # fmt: skip
        """Test by the pattern's check, which in contrast must fail while the answer is still a proper text; or by the
        judge, which is not told the mode, and gets the rubric for bare answers only. Raises DreamCheckFailed, and the
        errors of `Judge.ask`."""
        if check.by_code:
            passed, why = await by_check(check, scenario, answer)
            by = next(name for name in ("regex", "schema", "command") if getattr(check, name))
            if mode in WRONG:
                wrong = "the behaviour shows where it would be wrong" if passed else garbled(answer)
                return Found("bad", by, wrong) if wrong else Found("good", by)
            return Found("good", by) if passed else Found("bad", by, why)
        # the model was not told the rubric: a told answer is judged by the instruction alone
        rubric = f"\n\n{check.rubric}" if check.rubric and mode == "bare" else ""
        return await self.judged(expected + rubric, scenario, answer, around)

    async def judged(
        self, expected: str, scenario: tuple[Turn, ...], answer: str, around: Surrounding = NOTHING
    ) -> Found:
        """Ask the judge, whatever the check, with everything that stood before the answer."""
        section = self.config.judge
        said = conversation_in(around, expected, scenario, answer)
        record = record_of({"messages": said, "tools": list(around.tools)})
        assert self.judge is not None
        judged = await self.judge.ask(record.canonical, section.votes, section.temperature, dreamt=True)
        told = spokesman(judged.votes)
        votes = tuple(vote.verdict for vote in judged.votes)
        tokens = judged.prompt_tokens + judged.completion_tokens
        better = None if told.better is None else redact_text(told.better)
        reason, quote = redact_text(told.reason), redact_text(told.quote)
        return Found(agreed(judged.votes), JUDGE, reason, quote, better, votes, tokens)
