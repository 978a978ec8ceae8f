"""`apollod ctl queue show`: what is learned next, and why."""

import argparse
from typing import Any

from apollod.cli import commands, render
from apollod.cli.control import ctl
from apollod.wire import control_messages as msg

_COLUMNS = ("", "example", "tier", "tokens", "session or source", "topic", "why")


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "the examples that wait to be learned"
    (shown,) = ctl.actions(parser, ("show", "what is learned next, and why; what the next step waits for", _show))
    shown.add_argument(
        "--limit", type=commands.limit, default=20, metavar="N", help="the next N (default 20, at most 1000)"
    )


def _show(args: argparse.Namespace) -> int:
    answer = ctl.ask(ctl.socket_path(args), msg.QueueRequest(args.limit or 1000))
    ctl.show(args, answer, "" if args.json else _page(answer))
    return 0


def _page(a: dict[str, Any]) -> str:
    waiting = a["waiting"]
    lines = [
        f"waiting     {waiting['direct']} given directly, {waiting['bulk']} others; {a['not_tokenised']} of them "
        f"are not tokenised yet; {a['held']} more are held for a decision"
    ]
    if a["running"]:
        lines.append(f"running     step {a['running']['step']}: {' '.join(a['running']['examples'])}")
    if a["blocked"]:
        lines.append(f"waits for   {a['blocked']}")
    if a["window"]:
        lines.append(f"window      {a['window']['number']}, {a['window']['examples']} examples so far")
    share = (
        "the order in which they came" if a["share_max"] == 1.0 else f"at most {100 * a['share_max']:g} % of one kind"
    )
    lines.append(f"order       {share}")
    lines += [f"{kind:<12}{_most(a['taken'][kind])}" for kind in ("source", "session", "topic") if a["taken"][kind]]
    if not a["next"]:
        return "\n".join(lines)
    cells = [
        (n["number"], n["example"], n["tier"], n["tokens"], n["session"] or n["source"], n["topic"], n["why"])
        for n in a["next"]
    ]
    return "\n".join([*lines, "", render.table(_COLUMNS, cells)])


def _most(groups: list[dict[str, Any]]) -> str:
    """What most was taken of in this window."""
    return "taken: " + ", ".join(f"{g['name']} {g['examples']}" for g in groups[:3])
