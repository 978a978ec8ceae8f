"""`apollod ctl judge show|test`: trust in the judge, its wrong verdicts, and a trial on planted cases."""

import argparse
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from apollod.adapters.ipc.light_client import ask_status
from apollod.cli import commands, render
from apollod.cli.control import ctl, rows
from apollod.core.facts.judging.events import agreed, spokesman
from apollod.core.facts.judging.state import Agreement, figure_text, shortfall
from apollod.errors import ApolloError, LlmError, VerdictNonsense

if TYPE_CHECKING:
    from apollod.core.facts.judging.events import Judged
    from apollod.curation.judge_question import Case
    from apollod.supervisor.config import Config
    from apollod.supervisor.judge import Judge

SHOWN = 20
"""Newest decisions of people against the judge that are listed."""

_WRONG = """
    WITH judge AS (
        SELECT body ->> '$.model' AS model, body ->> '$.prompt_hash' AS prompt_hash
        FROM events WHERE kind = 'judge.configured' ORDER BY seq DESC LIMIT 1
    )
    SELECT "case", expected, verdict, reason, quote, better, at FROM verdicts JOIN judge USING (model, prompt_hash)
    WHERE NOT agreed AND seq IN (SELECT max(seq) FROM verdicts WHERE "case" IS NOT NULL GROUP BY "case") ORDER BY seq
"""
_OTHERWISE = f"""
    SELECT v.example, v.verdict, v.reason, r.decision, r."by", r.reason AS because, r.at
    FROM verdicts AS v JOIN reviews AS r ON r.example = v.example AND r.seq > v.seq AND r."by" <> 'judge'
    WHERE (v.verdict = 'good' AND r.decision IN ('declined', 'edited'))
        OR (v.verdict = 'bad' AND r.decision = 'approved')
    ORDER BY v.seq DESC LIMIT {SHOWN}
"""
_ENDED = """
    SELECT strftime('%Y-%m-%dT%H:%M:%SZ', at_ns / 1000000000, 'unixepoch') AS at, body ->> '$.reason' AS reason,
        body -> '$.recalled' AS recalled, body -> '$.learned' AS learned
    FROM events WHERE kind = 'judge.distrusted' ORDER BY seq DESC
"""
_SAID = "SELECT verdict, count(*) AS times FROM verdicts WHERE example IS NOT NULL GROUP BY verdict ORDER BY verdict"


_WRONG_COLUMNS: tuple[render.Column, ...] = (
    ("case", lambda w: w["case"][:8]), "about", "expected", ("said", "verdict"), "reason", "quote",
)  # fmt: skip
_OTHERWISE_COLUMNS: tuple[render.Column, ...] = (
    ("example", lambda o: o["example"][:12]), ("judge", "verdict"), "decision", "by", ("the judge's reason", "reason"),
)  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "the model that judges examples before they are learned"
    ctl.actions(
        parser,
        ("show", "how far its verdicts are trusted, the cases it got wrong, and where people decided otherwise", _show,
         ctl.of_a_copy),
        ("test", "ask it about every planted case now; needs the configuration and no daemon, changes nothing", _test),
    )  # fmt: skip


def _show(args: argparse.Namespace) -> int:
    """Print the agreement of the running daemon's judge, or of a journal's (--file), and the cases behind it."""
    if args.file:
        from apollod.cli.control.journal import status_at

        status = status_at(args.file)[2]
    else:
        status = ask_status(ctl.socket_path(args))
    judge, path = status.get("judge", {"mode": "off"}), status["journal"]["path"]
    about = _about(args)
    wrong = [{**row, **about.get(str(row["case"]), {})} for row in rows.objects(path, _WRONG)]
    otherwise, said = rows.objects(path, _OTHERWISE), dict(rows.tuples(path, _SAID))
    ended = [
        {**row, "recalled": json.loads(str(row["recalled"])), "learned": json.loads(str(row["learned"]))}
        for row in rows.objects(path, _ENDED)
    ]
    told = {**judge, "said": said, "wrong": wrong, "otherwise": otherwise, "distrusted": ended}
    return render.show(args, told, lambda: _lines(told))


def _about(args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Subject and place of the planted cases: those that come with apollod, and those of the configuration that can
    still be read."""
    from apollod.supervisor.config import load_config
    from apollod.supervisor.judge import planted_cases

    try:
        cases = planted_cases(load_config(args.config).judge.cases if args.config else ())
    except ApolloError:
        cases = planted_cases(())
    return {case.planted.id: {"about": case.about, "place": case.place} for case in cases}


def _lines(j: dict[str, Any]) -> list[str]:
    if j.get("mode", "off") == "off":
        head = [("judge", "off; [judge] mode in the configuration turns it on")]
    else:
        known = j["agreement"]
        figure = "not known yet" if known is None else f"{known:.2f} ({j['low']:.2f} to {j['high']:.2f}, 95 %)"
        head = [
            ("judge", f"{j['model'] or '-'} on {j['mode']}: {'trusted' if j['trusted'] else 'not trusted'}"),
            ("because", j["reason"]),
            ("agreement", f"{figure}, over {j['good']} good and {j['bad']} bad"),
            ("waiting", f"{j['waiting']} examples, {j['asked']} questions under way"),
        ]
    said = ", ".join(f"{times} {verdict}" for verdict, times in j["said"].items())
    lines = render.fields(*head, ("verdicts", said or "none yet"))
    if j["wrong"]:
        lines += [
            "",
            "planted cases that it got wrong when it was asked last:",
            render.listed(_WRONG_COLUMNS, j["wrong"]),
        ]
    if j["otherwise"]:
        lines += ["", "where a person decided otherwise, the newest first:"]
        lines.append(render.listed(_OTHERWISE_COLUMNS, j["otherwise"]))
    for one in j["distrusted"]:
        lines += ["", f"trust ended {one['at']}: {one['reason']}"]
        if one["recalled"]:
            lines.append(f"  {len(one['recalled'])} examples that it had approved since it was last sure wait for you")
        if one["learned"]:
            lines.append(f"  learned meanwhile: {' '.join(one['learned'])}")
    return lines


# --- test: all planted cases --------------------------------------------------------------------------------------

FAILURES_MAX = 3
"""Failures of the endpoint in a row, after which nothing more is asked."""


class _Tried(NamedTuple):
    """A case and its verdict; `error`: reason for none."""

    case: "Case"
    judged: "Judged | None"
    error: str = ""

    @property
    def said(self) -> str:
        return agreed(self.judged.votes) if self.judged else "nonsense"

    @property
    def right(self) -> bool:
        return self.said == self.case.planted.expected


def _test(args: argparse.Namespace) -> int:
    """Ask about all planted cases and print; exit code 0 if the judge would be trusted."""
    config = commands.configuration(args, "the judge stands in the configuration")
    import anyio  # here for start-up time, as all that follows

    from apollod.curation import redaction
    from apollod.supervisor.judge import Judge

    redaction.use(config.redaction.personal)
    judge, began = Judge(config), time.monotonic()
    tried = anyio.run(_ask_all, judge, config, args.json)
    found = _agreement(tried)
    passed = not shortfall(found, config.judge.trust_min)
    told = _object(judge, config, tried, found, passed) | {"seconds": round(time.monotonic() - began, 3)}
    render.show(args, told, lambda: _text(tried, found, passed, config.judge.trust_min))
    return 0 if passed else 1


async def _ask_all(judge: "Judge", config: "Config", quiet: bool) -> list[_Tried]:
    """Ask `concurrency` cases at a time; returns them in their order. Raises an LlmError if the endpoint fails."""
    import anyio

    cases = list(judge.cases.values())
    found: dict[str, _Tried] = {}
    failures: list[LlmError] = []
    broken: list[LlmError] = []

    async def work(waiting: "list[Case]") -> None:
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
            if not quiet:
                render.progress(f"{len(found)} of {len(cases)}")

    try:
        async with anyio.create_task_group() as tasks:
            waiting = list(cases)
            for _ in range(config.judge.concurrency):
                tasks.start_soon(work, waiting)
    finally:
        await judge.close()
        if not quiet:
            render.progress("")
    if broken:
        raise broken[0]
    return [found[case.planted.id] for case in cases]


def _agreement(tried: list[_Tried]) -> Agreement:
    good = [one.right for one in tried if one.case.planted.expected == "good"]
    bad = [one.right for one in tried if one.case.planted.expected == "bad"]
    return Agreement(sum(good), len(good), sum(bad), len(bad))


def _object(
    judge: "Judge", config: "Config", tried: list[_Tried], found: Agreement, passed: bool
) -> dict[str, Any]:  # fmt: skip
    from apollod.curation.judge_question import PROMPT_HASH

    low, high = found.interval
    return {
        "model": judge.model, "prompt_hash": PROMPT_HASH,
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
