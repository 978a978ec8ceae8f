"""`apollod ctl lease list|show|revoke`: outside trainers that update the weights."""

import argparse
from typing import Any

from apollod.adapters.journal import journal_reader
from apollod.cli import commands, render
from apollod.cli.control import ctl, rows
from apollod.errors import ApolloError
from apollod.wire import control_messages as msg

EPILOG = """\
A trainer of another program may update the weights over HTTP ([control] enabled = true; docs/control.md). While it
does, it has the lease: nothing else is learned. An update is written as one step, which `apollod ctl rollback` takes
back.

examples:
  apollod ctl lease list
  apollod ctl lease show
  apollod ctl lease show 3
  apollod ctl lease revoke --reason 'its trainer hangs'
"""
SHOWN = 20
Object = dict[str, Any]
_COLUMNS: tuple[render.Column, ...] = (
    "update", "at", "dialect", ("by", "given_by"), "state", "step", "label", "tensors",
    ("size", lambda one: render.size(one["bytes"]) if one["bytes"] else ""), ("why", "reason"),
)  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "updates of the weights by outside trainers"
    commands.epilog(parser, EPILOG)
    ctl.actions(
        parser,
        ("list", "the last updates", _list, ctl.of_a_copy),
        ("show", "who has the lease now, or one update", _show, ctl.of_a_copy,
         ctl.argument("update", metavar="NUMBER", type=int, nargs="?", help="of an update (the lease)")),
        ("revoke", "end the update under way, without a change",
         ctl.telling(lambda args: msg.UpdateUndoRequest(args.reason, ctl.by()), _revoked),
         ctl.argument("--reason", default="revoked", help="kept in the journal")),
    )  # fmt: skip


def _updates(args: argparse.Namespace, where: str = "1") -> list[Object]:
    sql = f'SELECT * FROM updates WHERE {where} ORDER BY "update" DESC LIMIT {SHOWN}'
    return rows.objects(ctl.journal_path(args), sql)


def _list(args: argparse.Namespace) -> int:
    found = _updates(args)
    none = "no outside trainer has updated the weights"
    return render.show(args, {"updates": found}, lambda: render.listed(_COLUMNS, found) if found else none)


def _show(args: argparse.Namespace) -> int:
    if args.update is not None:
        found = _updates(args, f'"update" = {journal_reader.literal(args.update)}')
        if not found:
            raise ApolloError(f"there is no update {args.update}", "`apollod ctl lease list` has them")
        return render.show(args, {"update": found[0]}, lambda: _page(found[0]))
    told = ctl.ask_or_fold(args, msg.StatusRequest(), rows.folded_status)["updates"]
    return render.show(args, told, lambda: _lease(told))


def _page(one: Object) -> str:
    return "\n".join(
        render.fields(*((name.replace("_", " "), value) for name, value in one.items() if value is not None))
    )


def _lease(told: Object) -> str:
    totals = f"{told['committed']} updates were written, {told['undone']} ended without a change"
    if (one := told["lease"]) is None:
        return f"nobody has the lease; {totals}"
    return "\n".join(
        render.fields(
            ("lease", f"{one['by']} ({one['dialect']}), update {one['update']}, {one['state']}"),
            ("since", f"{render.duration(one['since_s'])}, its last call {render.duration(one['silent_s'])} ago"),
            ("received", f"{one['tensors']:,} tensors, {render.size(one['bytes'])}"),
            ("so far", totals),
        )
    )


def _revoked(answer: Object) -> str:
    return f"update {answer['update']} ended, nothing was written" if answer["undone"] else "nobody has the lease"
