"""`apollod ctl judge test`: asks the configured judge about all planted cases."""

import json
import sys
import time
from typing import Any, NamedTuple

import anyio

from apollod.cli import render
from apollod.core.facts.judging.agreement import Agreement, figure_text, shortfall
from apollod.core.facts.judging.inputs import Judged
from apollod.core.facts.judging.votes import agreed, spokesman
from apollod.curation import redaction
from apollod.curation.judge_cases import Case
from apollod.curation.judge_question import PROMPT_HASH
from apollod.errors import LlmError, VerdictNonsense
from apollod.supervisor.config import Config
from apollod.supervisor.judge import Judge

FAILURES_MAX = 3
"""Failures of the endpoint in a row, after which nothing more is asked."""


class _Tried(NamedTuple):
    """A case and its verdict; `error`: reason for none."""

    case: Case
    judged: Judged | None
    error: str = ""

    @property
    def said(self) -> str:
        return agreed(self.judged.votes) if self.judged else "nonsense"

    @property
    def right(self) -> bool:
        return self.said == self.case.planted.expected


def run(config: Config, as_json: bool) -> int:
    """Ask and print; exit code 0 if the judge would be trusted."""
    redaction.use(config.redaction.personal)
    judge, began = Judge(config), time.monotonic()
    tried = anyio.run(_ask_all, judge, config, as_json)
    found = _agreement(tried)
    passed = not shortfall(found, config.judge.trust_min)
    if as_json:
        seconds = round(time.monotonic() - began, 3)
        print(json.dumps(_object(judge, config, tried, found, passed) | {"seconds": seconds}))
    else:
        print(render.plain(_text(tried, found, passed, config.judge.trust_min)))
    return 0 if passed else 1


async def _ask_all(judge: Judge, config: Config, quiet: bool) -> list[_Tried]:
    """Ask `concurrency` cases at a time; returns them in their order. Raises an LlmError if the endpoint fails."""
    cases = list(judge.cases.values())
    found: dict[str, _Tried] = {}
    failures: list[LlmError] = []
    broken: list[LlmError] = []

    async def work(waiting: list[Case]) -> None:
        while waiting and not broken:
            case = waiting.pop(0)
            try:
                judged = await judge.ask(case.canonical, config.judge.votes, config.judge.temperature)
                found[case.planted.id] = _Tried(case, judged)
                failures.clear()
            except VerdictNonsense as error:
                found[case.planted.id] = _Tried(case, None, str(error))
                failures.clear()
            except LlmError as error:
                waiting.append(case)
                failures.append(error)
                broken.extend([error] if len(failures) >= FAILURES_MAX else [])
            if not quiet and sys.stderr.isatty():
                print(f"\r{len(found)} of {len(cases)}", end="", file=sys.stderr, flush=True)

    try:
        async with anyio.create_task_group() as tasks:
            waiting = list(cases)
            for _ in range(config.judge.concurrency):
                tasks.start_soon(work, waiting)
    finally:
        await judge.close()
        if not quiet and sys.stderr.isatty():
            print("\r", end="", file=sys.stderr)
    if broken:
        raise broken[0]
    return [found[case.planted.id] for case in cases]


def _agreement(tried: list[_Tried]) -> Agreement:
    good = [one.right for one in tried if one.case.planted.expected == "good"]
    bad = [one.right for one in tried if one.case.planted.expected == "bad"]
    return Agreement(sum(good), len(good), sum(bad), len(bad))


def _object(judge: Judge, config: Config, tried: list[_Tried], found: Agreement, passed: bool) -> dict[str, Any]:
    low, high = found.interval
    return {
        "schema_version": 1, "model": judge.model, "prompt_hash": PROMPT_HASH,
        "endpoint": judge.configured().endpoint, "passed": passed, "trust_min": config.judge.trust_min,
        "agreement": None if found.figure is None else round(found.figure, 4), "low": round(low, 4),
        "high": round(high, 4), "cases": [_case(one) for one in tried],
    }  # fmt: skip


def _case(one: _Tried) -> dict[str, Any]:
    told = spokesman(one.judged.votes) if one.judged else None
    return {
        "case": one.case.planted.id, "about": one.case.about, "place": one.case.place,
        "expected": one.case.planted.expected, "said": one.said, "right": one.right,
        "votes": [vote.verdict for vote in one.judged.votes] if one.judged else [],
        "quote": told.quote if told else "", "reason": told.reason if told else one.error,
        "better": told.better if told else None,
        "prompt_tokens": one.judged.prompt_tokens if one.judged else 0,
        "completion_tokens": one.judged.completion_tokens if one.judged else 0,
        "seconds": one.judged.seconds if one.judged else 0.0,
    }  # fmt: skip


def _text(tried: list[_Tried], found: Agreement, passed: bool, trust_min: float) -> str:
    columns: tuple[render.Column, ...] = (
        ("case", lambda c: c["case"][:8]), "about", "expected", "said", ("", lambda c: "" if c["right"] else "wrong"),
        "reason",
    )  # fmt: skip
    table = render.listed(columns, [_case(one) for one in tried])
    verdict = "it would be trusted" if passed else "its verdicts would wait for a person"
    return f"{table}\n\n{figure_text(found)}; trust_min {trust_min:g}: {verdict}"
