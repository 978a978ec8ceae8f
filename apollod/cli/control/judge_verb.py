"""`apollod ctl judge show|test`: trust in the judge, its wrong verdicts, and a trial on planted cases."""

import argparse
import json
from typing import Any

from apollod.adapters.ipc.light_client import ask_status
from apollod.cli import render
from apollod.cli.control import ctl, rows
from apollod.errors import ApolloError

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
    shown, _ = ctl.actions(
        parser,
        ("show", "how far its verdicts are trusted, the cases it got wrong, and where people decided otherwise", _show),
        ("test", "ask it about every planted case now; needs the configuration and no daemon, changes nothing", _test),
    )
    ctl.of_a_copy(shown)


def _test(args: argparse.Namespace) -> int:
    config = ctl.configuration(args, "the judge stands in the configuration")
    from apollod.cli.control import judge_trial  # asks over HTTP, which takes time to import

    return judge_trial.run(config, args.json)


def _show(args: argparse.Namespace) -> int:
    """Print the agreement of the running daemon's judge, or of a journal's (--file), and the cases behind it."""
    if args.file:
        from apollod.cli.control.moment import status_at

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
    told = {"schema_version": 1, **judge, "said": said, "wrong": wrong, "otherwise": otherwise, "distrusted": ended}
    ctl.show(args, told, lambda: _lines(told))
    return 0


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
