"""Reads the judge's record from the journal, for `judge show`."""

import argparse
import json
from typing import Any

from apollod.adapters.ipc.status_client import ask_status
from apollod.adapters.journal import journal_reader
from apollod.cli import render
from apollod.cli.control import ctl
from apollod.cli.control.questions import rows

SCHEMA_VERSION = 1
SHOWN = 20
"""decisions of people against the judge, the newest ones"""

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


def show(args: argparse.Namespace) -> int:
    """Print the figure of the running daemon, or of the copy that --file names, and the cases behind it."""
    judge, path = _of_copy(args.file) if args.file else _of_daemon(args)
    about = _about(args)
    wrong = [{**row, **about.get(str(row["case"]), {})} for row in rows.objects(path, _WRONG)]
    otherwise, said = rows.objects(path, _OTHERWISE), dict(rows.tuples(path, _SAID))
    ended = [
        {**row, "recalled": json.loads(str(row["recalled"])), "learned": json.loads(str(row["learned"]))}
        for row in rows.objects(path, _ENDED)
    ]
    told = {**judge, "said": said, "wrong": wrong, "otherwise": otherwise, "distrusted": ended}
    print(json.dumps({"schema_version": SCHEMA_VERSION, **told}) if args.json else "\n".join(_lines(told)))
    return 0


def _of_daemon(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    answer = ask_status(ctl.socket_path(args))
    return dict(answer.get("judge", {"mode": "off"})), str(answer["journal"]["path"])


def _of_copy(path: str) -> tuple[dict[str, Any], str]:
    from apollod.core.fold import fold
    from apollod.core.state import State
    from apollod.supervisor.status_view import status_view
    from apollod.wire import status as st
    from apollod.wire.status_sections.journal_status import Journal

    state, at_ns = State(), 0
    for item, _ in journal_reader.recorded(path):
        fold(state, item)
        at_ns = item.at_ns
    status = status_view(state, at_ns, Journal(seq=state.seq, bytes=0, head_hash="", path=path))
    return dict(st.plain(status)["judge"]), path


def _about(args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What the cases are about and where they stand, as far as that is known: those that come with apollod, and of
    those of the configuration what can still be read."""
    from apollod.errors import ApolloError
    from apollod.supervisor.config import load_config
    from apollod.supervisor.judge import planted_cases

    try:
        cases = planted_cases(load_config(args.config).judge.cases if args.config else ())
    except ApolloError:
        cases = planted_cases(())
    return {case.planted.id: {"about": case.about, "place": case.place} for case in cases}


def _lines(j: dict[str, Any]) -> list[str]:
    if j.get("mode", "off") == "off":
        head = ["judge       off; [judge] mode in the configuration turns it on"]
    else:
        known = j["agreement"]
        figure = "not known yet" if known is None else f"{known:.2f} ({j['low']:.2f} to {j['high']:.2f}, 95 %)"
        head = [
            f"judge       {j['model'] or '-'} on {j['mode']}: {'trusted' if j['trusted'] else 'not trusted'}",
            *([f"because     {j['reason']}"] if j["reason"] else []),
            f"agreement   {figure}, over {j['good']} good and {j['bad']} bad",
            f"waiting     {j['waiting']} examples, {j['asked']} questions under way",
        ]
    said = ", ".join(f"{times} {verdict}" for verdict, times in j["said"].items())
    lines = [*head, f"verdicts    {said or 'none yet'}"]
    if j["wrong"]:
        cells = [
            (w["case"][:8], w.get("about", ""), w["expected"], w["verdict"], w["reason"], w["quote"])
            for w in j["wrong"]
        ]  # fmt: skip
        lines += ["", "planted cases that it got wrong when it was asked last:"]
        lines.append(render.table(["case", "about", "expected", "said", "reason", "quote"], cells))
    if j["otherwise"]:
        against = [(o["example"][:12], o["verdict"], o["decision"], o["by"], o["reason"]) for o in j["otherwise"]]
        lines += ["", "where a person decided otherwise, the newest first:"]
        lines.append(render.table(["example", "judge", "decision", "by", "the judge's reason"], against))
    for one in j["distrusted"]:
        lines += ["", f"trust ended {one['at']}: {one['reason']}"]
        if one["recalled"]:
            lines.append(f"  {len(one['recalled'])} examples that it had approved since it was last sure wait for you")
        if one["learned"]:
            lines.append(f"  learned meanwhile: {' '.join(one['learned'])}")
    return [render.plain(line) for line in lines]
