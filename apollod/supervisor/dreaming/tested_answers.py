"""Tests answers by check or judge: of dreams, tests of patterns, the guard's probes, and logs for a bootstrap."""

import json
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from apollod.adapters.checks import check as by_check
from apollod.adapters.checks import check_answers, problem
from apollod.adapters.seed_places import place_problem
from apollod.core.facts.dreams.events import WRONG, Mode
from apollod.core.facts.dreams.patterns import pattern_problem
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.judging.events import JUDGE, Verdict, agreed, spokesman
from apollod.core.inputs import Batch, Line
from apollod.core.settings import Check, PatternSettings
from apollod.core.surroundings import NOTHING, Surrounding
from apollod.curation.probes.figures import garbled
from apollod.curation.redaction import redact_text
from apollod.curation.surrounding_texts import conversation_in
from apollod.errors import ApolloError, ConfigError
from apollod.supervisor.config import Config
from apollod.supervisor.judge import Judge
from apollod.wire.records import record_of

NOT_SHOWN = "the check of its pattern does not pass it"
AT_ONCE = 32
"""records between two tests that this is still wanted: a command may take seconds for each"""

Answer = tuple[tuple[Turn, ...], str]


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


def answers_of(record: bytes) -> list[Answer]:
    """Target answers of a conversation, each with all messages of user and assistant before it."""
    said: list[Turn] = []
    found: list[Answer] = []
    for message in json.loads(record).get("messages", ()):
        if message["role"] not in ("user", "assistant"):
            continue
        text = message.get("content") or ""
        if message["role"] == "assistant" and message.get("weight") != 0:
            found.append((tuple(said), text))
        said.append(Turn(message["role"], text))
    return found


async def passing(check: Check, records: list[bytes]) -> list[bool]:
    """For each record, true if all its target answers pass the check, which is made by code. Raises DreamCheckFailed if
    the check cannot be run."""
    answers = [answers_of(record) for record in records]
    told = iter(await check_answers(check, [one for each in answers for one in each]))
    return [bool(each) and all([next(told)[0] for _ in each]) for each in answers]


async def checked(batch: Batch, check: Check, wanted: Callable[[], bool] = lambda: True) -> Batch | None:
    """The batch without the examples that fail; their evidence about answers stays. None: no longer `wanted`. Raises
    DreamCheckFailed."""
    records = [line.record for line in batch.lines if line.example]
    passed: list[bool] = []
    for at in range(0, len(records), AT_ONCE):
        if not wanted():
            return None
        passed += await passing(check, records[at : at + AT_ONCE])
    verdicts = iter(passed)
    lines = [line if not line.example or next(verdicts) else _without(line) for line in batch.lines]
    failed = passed.count(False)
    if not failed:
        return batch
    what = f"dropped: {NOT_SHOWN}"
    return msgspec.structs.replace(
        batch, lines=tuple(line for line in lines if line.example or line.reason or line.evidence or line.unscored),
        counts={**batch.counts, what: batch.counts.get(what, 0) + failed}, unlearned=batch.unlearned + failed,
    )  # fmt: skip


def _without(line: Line) -> Line:
    """The line's evidence about answers, without its example."""
    return Line(number=line.number, evidence=line.evidence, unscored=line.unscored)


def patterns_refused(config: Config) -> ApolloError | None:
    """Error of the first configured pattern that cannot be learned; None: none."""
    for pattern in config.dream.pattern:
        if why := pattern_refused(pattern):
            return ConfigError(f"[[dream.pattern]] {pattern.name}: {why}", "`apollod config check` looks at it again")
    return None


def pattern_refused(pattern: PatternSettings) -> str:
    """Reason why it cannot be learned; empty: it can. Seeds may appear later."""
    places = (place_problem(place) for place in pattern.seeds)
    return pattern_problem(pattern) or problem(pattern.check) or next(filter(None, places), "")
